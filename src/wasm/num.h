/*
 * The results of scalar instructions, bit for bit the same on every CPU.
 *
 * Integers are unsigned here, as in the slots; _s in a name means signed.
 * Each arithmetic float result that is a NaN becomes the positive canonical
 * NaN; neg, abs and copysign work on bits and keep payloads. A function that
 * can trap returns the trap's text, or NULL with the result in *ret. Files that
 * include this need -ffp-contract=off and the default rounding mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* The traps of numeric instructions, compared by pointer. */
extern const char num_trap_div_zero[];
extern const char num_trap_overflow[];
extern const char num_trap_conversion[];

#define NUM_F32_NAN UINT32_C(0x7fc00000)
#define NUM_F64_NAN UINT64_C(0x7ff8000000000000)

/* ---- bits and values ---- */

static inline float num_f32_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline double num_f64_of_bits(uint64_t bits) {
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint32_t num_f32_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline uint64_t num_f64_bits(double x) {
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* 1 in files whose code runs only in the mode of fpmode.h, which they define before this header. */
#ifndef NUM_CPU_CANONICAL
#define NUM_CPU_CANONICAL 0
#endif

static inline float num_f32_canon(float x) {
    return NUM_CPU_CANONICAL || __builtin_expect(x == x, 1) ? x : num_f32_of_bits(NUM_F32_NAN);
}

static inline double num_f64_canon(double x) {
    return NUM_CPU_CANONICAL || __builtin_expect(x == x, 1) ? x : num_f64_of_bits(NUM_F64_NAN);
}

/* ---- integers ---- */

/* Counting, shifting and rotating for one width; shift counts are taken modulo the width. */
#define NUM_BITS(W, CLZ, CTZ, POPCOUNT)                                        \
    static inline uint##W##_t num_i##W##_clz(uint##W##_t x) {                  \
        return x ? (uint##W##_t)CLZ(x) : W;                                    \
    }                                                                          \
    static inline uint##W##_t num_i##W##_ctz(uint##W##_t x) {                  \
        return x ? (uint##W##_t)CTZ(x) : W;                                    \
    }                                                                          \
    static inline uint##W##_t num_i##W##_popcnt(uint##W##_t x) {               \
        return (uint##W##_t)POPCOUNT(x);                                       \
    }                                                                          \
    static inline uint##W##_t num_i##W##_shl(uint##W##_t x, uint##W##_t n) {   \
        return x << (n & (W - 1));                                             \
    }                                                                          \
    static inline uint##W##_t num_i##W##_shr_u(uint##W##_t x, uint##W##_t n) { \
        return x >> (n & (W - 1));                                             \
    }                                                                          \
    static inline uint##W##_t num_i##W##_shr_s(uint##W##_t x, uint##W##_t n) { \
        return (uint##W##_t)((int##W##_t)x >> (n & (W - 1)));                  \
    }                                                                          \
    static inline uint##W##_t num_i##W##_rotl(uint##W##_t x, uint##W##_t n) {  \
        return x << (n & (W - 1)) | x >> ((0 - n) & (W - 1));                  \
    }                                                                          \
    static inline uint##W##_t num_i##W##_rotr(uint##W##_t x, uint##W##_t n) {  \
        return x >> (n & (W - 1)) | x << ((0 - n) & (W - 1));                  \
    }

NUM_BITS(32, __builtin_clz, __builtin_ctz, __builtin_popcount)
NUM_BITS(64, __builtin_clzll, __builtin_ctzll, __builtin_popcountll)
#undef NUM_BITS

/* MIN % -1 is 0 and does not trap, but is undefined in C and faults on x86. */
#define NUM_DIVIDE(W)                                                                            \
    static inline const char *num_i##W##_div_s(uint##W##_t a, uint##W##_t b, uint##W##_t *ret) { \
        if (b == 0)                                                                              \
            return num_trap_div_zero;                                                            \
        if (b == (uint##W##_t) - 1 && a == (uint##W##_t)INT##W##_MIN)                            \
            return num_trap_overflow;                                                            \
        *ret = (uint##W##_t)((int##W##_t)a / (int##W##_t)b);                                     \
        return NULL;                                                                             \
    }                                                                                            \
    static inline const char *num_i##W##_div_u(uint##W##_t a, uint##W##_t b, uint##W##_t *ret) { \
        if (b == 0)                                                                              \
            return num_trap_div_zero;                                                            \
        *ret = a / b;                                                                            \
        return NULL;                                                                             \
    }                                                                                            \
    static inline const char *num_i##W##_rem_s(uint##W##_t a, uint##W##_t b, uint##W##_t *ret) { \
        if (b == 0)                                                                              \
            return num_trap_div_zero;                                                            \
        *ret = b == (uint##W##_t) - 1 ? 0 : (uint##W##_t)((int##W##_t)a % (int##W##_t)b);        \
        return NULL;                                                                             \
    }                                                                                            \
    static inline const char *num_i##W##_rem_u(uint##W##_t a, uint##W##_t b, uint##W##_t *ret) { \
        if (b == 0)                                                                              \
            return num_trap_div_zero;                                                            \
        *ret = a % b;                                                                            \
        return NULL;                                                                             \
    }

NUM_DIVIDE(32)
NUM_DIVIDE(64)
#undef NUM_DIVIDE

static inline uint32_t num_i32_extend8_s(uint32_t x) {
    return (uint32_t)(int8_t)x;
}

static inline uint32_t num_i32_extend16_s(uint32_t x) {
    return (uint32_t)(int16_t)x;
}

static inline uint64_t num_i64_extend8_s(uint64_t x) {
    return (uint64_t)(int8_t)x;
}

static inline uint64_t num_i64_extend16_s(uint64_t x) {
    return (uint64_t)(int16_t)x;
}

static inline uint64_t num_i64_extend32_s(uint64_t x) {
    return (uint64_t)(int32_t)x;
}

/* ---- floats ---- */

/*
 * F is the width in bits, T the C type, S the suffix of the builtins. rint is
 * round-to-nearest-even in the default rounding mode. min and max order the
 * two zeros by or-ing and and-ing their sign bits.
 */
#define NUM_FLOAT(F, T, S)                                                                \
    static inline T num_f##F##_add(T a, T b) {                                            \
        return num_f##F##_canon(a + b);                                                   \
    }                                                                                     \
    static inline T num_f##F##_sub(T a, T b) {                                            \
        return num_f##F##_canon(a - b);                                                   \
    }                                                                                     \
    static inline T num_f##F##_mul(T a, T b) {                                            \
        return num_f##F##_canon(a * b);                                                   \
    }                                                                                     \
    static inline T num_f##F##_div(T a, T b) {                                            \
        return num_f##F##_canon(a / b);                                                   \
    }                                                                                     \
    static inline T num_f##F##_min(T a, T b) {                                            \
        if (a != a || b != b)                                                             \
            return num_f##F##_of_bits(NUM_F##F##_NAN);                                    \
        if (a == b)                                                                       \
            return num_f##F##_of_bits(num_f##F##_bits(a) | num_f##F##_bits(b));           \
        return a < b ? a : b;                                                             \
    }                                                                                     \
    static inline T num_f##F##_max(T a, T b) {                                            \
        if (a != a || b != b)                                                             \
            return num_f##F##_of_bits(NUM_F##F##_NAN);                                    \
        if (a == b)                                                                       \
            return num_f##F##_of_bits(num_f##F##_bits(a) & num_f##F##_bits(b));           \
        return a > b ? a : b;                                                             \
    }                                                                                     \
    static inline T num_f##F##_ceil(T x) {                                                \
        return num_f##F##_canon(__builtin_ceil##S(x));                                    \
    }                                                                                     \
    static inline T num_f##F##_floor(T x) {                                               \
        return num_f##F##_canon(__builtin_floor##S(x));                                   \
    }                                                                                     \
    static inline T num_f##F##_trunc(T x) {                                               \
        return num_f##F##_canon(__builtin_trunc##S(x));                                   \
    }                                                                                     \
    static inline T num_f##F##_nearest(T x) {                                             \
        return num_f##F##_canon(__builtin_rint##S(x));                                    \
    }                                                                                     \
    static inline T num_f##F##_sqrt(T x) {                                                \
        return num_f##F##_canon(__builtin_sqrt##S(x));                                    \
    }                                                                                     \
    static inline uint##F##_t num_f##F##_neg_bits(uint##F##_t x) {                        \
        return x ^ (uint##F##_t)INT##F##_MIN;                                             \
    }                                                                                     \
    static inline uint##F##_t num_f##F##_abs_bits(uint##F##_t x) {                        \
        return x & (uint##F##_t)INT##F##_MAX;                                             \
    }                                                                                     \
    static inline uint##F##_t num_f##F##_copysign_bits(uint##F##_t x, uint##F##_t sign) { \
        return (x & (uint##F##_t)INT##F##_MAX) | (sign & (uint##F##_t)INT##F##_MIN);      \
    }

NUM_FLOAT(32, float, f)
NUM_FLOAT(64, double, )
#undef NUM_FLOAT

static inline float num_f32_demote(double x) {
    return num_f32_canon((float)x);
}

static inline double num_f64_promote(float x) {
    return num_f64_canon((double)x);
}

/* ---- float to integer ---- */

/*
 * One row per conversion: values above LOW and below HIGH truncate into the
 * integer type. LOW and HIGH must be exact in the float type. Where MIN - 1 is
 * not exact (wide signed integers), LOW is MIN and LOW_OP is >=.
 */
#define NUM_TRUNCATE(NAME, FROM, TO, AS, LOW_OP, LOW, HIGH, MIN, MAX) \
    static inline const char *num_##NAME(FROM x, TO *ret) {           \
        if (__builtin_expect(x LOW_OP LOW && x < HIGH, 1)) {          \
            *ret = (TO)(AS)x;                                         \
            return NULL;                                              \
        }                                                             \
        return x != x ? num_trap_conversion : num_trap_overflow;      \
    }                                                                 \
    static inline TO num_sat_##NAME(FROM x) {                         \
        if (__builtin_expect(x LOW_OP LOW && x < HIGH, 1))            \
            return (TO)(AS)x;                                         \
        if (x != x)                                                   \
            return 0;                                                 \
        return x < 0 ? (TO)MIN : (TO)MAX;                             \
    }

NUM_TRUNCATE(i32_trunc_f32_s, float, uint32_t, int32_t, >=, -0x1p31f, 0x1p31f, INT32_MIN, INT32_MAX)
NUM_TRUNCATE(i32_trunc_f32_u, float, uint32_t, uint32_t, >, -1.0f, 0x1p32f, 0, UINT32_MAX)
NUM_TRUNCATE(i32_trunc_f64_s, double, uint32_t, int32_t, >, -0x1.00000002p31, 0x1p31, INT32_MIN,
             INT32_MAX)
NUM_TRUNCATE(i32_trunc_f64_u, double, uint32_t, uint32_t, >, -1.0, 0x1p32, 0, UINT32_MAX)
NUM_TRUNCATE(i64_trunc_f32_s, float, uint64_t, int64_t, >=, -0x1p63f, 0x1p63f, INT64_MIN, INT64_MAX)
NUM_TRUNCATE(i64_trunc_f32_u, float, uint64_t, uint64_t, >, -1.0f, 0x1p64f, 0, UINT64_MAX)
NUM_TRUNCATE(i64_trunc_f64_s, double, uint64_t, int64_t, >=, -0x1p63, 0x1p63, INT64_MIN, INT64_MAX)
NUM_TRUNCATE(i64_trunc_f64_u, double, uint64_t, uint64_t, >, -1.0, 0x1p64, 0, UINT64_MAX)
#undef NUM_TRUNCATE
