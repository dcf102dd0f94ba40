#include "wasm/simd.h"

#include "wasm/num.h"
#include "wasm/simd_lanes.h"

/* ---- bits ---- */

UNARY(v128_not, u64, u64, ~x)
BINARY(v128_and, u64, u64, x &y)
BINARY(v128_andnot, u64, u64, x & ~y)
BINARY(v128_or, u64, u64, x | y)
BINARY(v128_xor, u64, u64, x ^ y)
TERNARY(v128_bitselect, u64, u64, (x & z) | (y & ~z))

static uint32_t v128_any_true(union v128 a) {
    return (a.u64[0] | a.u64[1]) != 0;
}

/* ---- comparisons: sets all bits of a lane, or none ---- */

#define COMPARE(NAME, OUT, IN, OP) BINARY(NAME, OUT, IN, x OP y ? -1 : 0)

#define COMPARE_INTEGER(SHAPE, W)         \
    COMPARE(SHAPE##_eq, u##W, u##W, ==)   \
    COMPARE(SHAPE##_ne, u##W, u##W, !=)   \
    COMPARE(SHAPE##_lt_s, u##W, i##W, <)  \
    COMPARE(SHAPE##_gt_s, u##W, i##W, >)  \
    COMPARE(SHAPE##_le_s, u##W, i##W, <=) \
    COMPARE(SHAPE##_ge_s, u##W, i##W, >=)

#define COMPARE_UNSIGNED(SHAPE, W)        \
    COMPARE(SHAPE##_lt_u, u##W, u##W, <)  \
    COMPARE(SHAPE##_gt_u, u##W, u##W, >)  \
    COMPARE(SHAPE##_le_u, u##W, u##W, <=) \
    COMPARE(SHAPE##_ge_u, u##W, u##W, >=)

#define COMPARE_FLOAT(SHAPE, W)         \
    COMPARE(SHAPE##_eq, u##W, f##W, ==) \
    COMPARE(SHAPE##_ne, u##W, f##W, !=) \
    COMPARE(SHAPE##_lt, u##W, f##W, <)  \
    COMPARE(SHAPE##_gt, u##W, f##W, >)  \
    COMPARE(SHAPE##_le, u##W, f##W, <=) \
    COMPARE(SHAPE##_ge, u##W, f##W, >=)

COMPARE_INTEGER(i8x16, 8)
COMPARE_INTEGER(i16x8, 16)
COMPARE_INTEGER(i32x4, 32)
COMPARE_INTEGER(i64x2, 64)
COMPARE_UNSIGNED(i8x16, 8)
COMPARE_UNSIGNED(i16x8, 16)
COMPARE_UNSIGNED(i32x4, 32)
COMPARE_FLOAT(f32x4, 32)
COMPARE_FLOAT(f64x2, 64)

/* ---- integer lanes of any width ---- */

#define SHIFT(NAME, FIELD, OP)                             \
    static union v128 NAME(union v128 a, uint32_t count) { \
        union v128 r;                                      \
        unsigned n = count & (128 / LANES(FIELD) - 1);     \
        for (unsigned i = 0; i < LANES(FIELD); i++)        \
            r.FIELD[i] = (LANE(FIELD))(a.FIELD[i] OP n);   \
        return r;                                          \
    }

/* abs and neg work unsigned, so that the smallest value maps to itself without overflow. */
#define INTEGER(SHAPE, W)                                    \
    UNARY(SHAPE##_abs, u##W, u##W, x >> (W - 1) ? 0 - x : x) \
    UNARY(SHAPE##_neg, u##W, u##W, 0 - x)                    \
    BINARY(SHAPE##_add, u##W, u##W, x + y)                   \
    BINARY(SHAPE##_sub, u##W, u##W, x - y)                   \
    SHIFT(SHAPE##_shl, u##W, <<)                             \
    SHIFT(SHAPE##_shr_s, i##W, >>)                           \
    SHIFT(SHAPE##_shr_u, u##W, >>)                           \
    static uint32_t SHAPE##_all_true(union v128 a) {         \
        uint32_t all = 1;                                    \
        for (unsigned i = 0; i < LANES(u##W); i++)           \
            all &= a.u##W[i] != 0;                           \
        return all;                                          \
    }                                                        \
    static uint32_t SHAPE##_bitmask(union v128 a) {          \
        uint32_t mask = 0;                                   \
        for (unsigned i = 0; i < LANES(u##W); i++)           \
            mask |= (uint32_t)(a.u##W[i] >> (W - 1)) << i;   \
        return mask;                                         \
    }

#define MIN_MAX(SHAPE, W)                            \
    BINARY(SHAPE##_min_s, i##W, i##W, x < y ? x : y) \
    BINARY(SHAPE##_min_u, u##W, u##W, x < y ? x : y) \
    BINARY(SHAPE##_max_s, i##W, i##W, x > y ? x : y) \
    BINARY(SHAPE##_max_u, u##W, u##W, x > y ? x : y)

INTEGER(i8x16, 8)
INTEGER(i16x8, 16)
INTEGER(i32x4, 32)
INTEGER(i64x2, 64)
MIN_MAX(i8x16, 8)
MIN_MAX(i16x8, 16)
MIN_MAX(i32x4, 32)

UNARY(i8x16_popcnt, u8, u8, __builtin_popcount(x))
/* The cast to uint32_t is needed because the product of two promoted uint16_t may overflow int. */
BINARY(i16x8_mul, u16, u16, (uint32_t)x *y)
BINARY(i32x4_mul, u32, u32, x *y)
BINARY(i64x2_mul, u64, u64, x *y)

/* ---- saturation ---- */

static int32_t clamp(int32_t x, int32_t low, int32_t high) {
    return x < low ? low : x > high ? high : x;
}

#define CLAMP_i8(x) clamp(x, INT8_MIN, INT8_MAX)
#define CLAMP_u8(x) clamp(x, 0, UINT8_MAX)
#define CLAMP_i16(x) clamp(x, INT16_MIN, INT16_MAX)
#define CLAMP_u16(x) clamp(x, 0, UINT16_MAX)

#define SATURATE(SHAPE, W)                                   \
    BINARY(SHAPE##_add_sat_s, i##W, i##W, CLAMP_i##W(x + y)) \
    BINARY(SHAPE##_add_sat_u, u##W, u##W, CLAMP_u##W(x + y)) \
    BINARY(SHAPE##_sub_sat_s, i##W, i##W, CLAMP_i##W(x - y)) \
    BINARY(SHAPE##_sub_sat_u, u##W, u##W, CLAMP_u##W(x - y)) \
    BINARY(SHAPE##_avgr_u, u##W, u##W, (x + y + 1) / 2)

SATURATE(i8x16, 8)
SATURATE(i16x8, 16)
BINARY(i16x8_q15mulr_sat_s, i16, i16, CLAMP_i16((x * y + 0x4000) >> 15))

/* The result is the lanes of a, then those of b, halved in width. Source lanes are signed. */
#define NARROW(NAME, OUT, IN)                                       \
    static union v128 NAME(union v128 a, union v128 b) {            \
        union v128 r;                                               \
        for (unsigned i = 0; i < LANES(IN); i++) {                  \
            r.OUT[i] = (LANE(OUT))CLAMP_##OUT(a.IN[i]);             \
            r.OUT[i + LANES(IN)] = (LANE(OUT))CLAMP_##OUT(b.IN[i]); \
        }                                                           \
        return r;                                                   \
    }

NARROW(i8x16_narrow_i16x8_s, i8, i16)
NARROW(i8x16_narrow_i16x8_u, u8, i16)
NARROW(i16x8_narrow_i32x4_s, i16, i32)
NARROW(i16x8_narrow_i32x4_u, u16, i32)

/* ---- widening ---- */

#define EXTEND(NAME, OUT, IN, FIRST)              \
    static union v128 NAME(union v128 a) {        \
        union v128 r;                             \
        for (unsigned i = 0; i < LANES(OUT); i++) \
            r.OUT[i] = a.IN[i + (FIRST)];         \
        return r;                                 \
    }

#define EXTMUL(NAME, OUT, IN, FIRST)                                                             \
    static union v128 NAME(union v128 a, union v128 b) {                                         \
        union v128 r;                                                                            \
        for (unsigned i = 0; i < LANES(OUT); i++)                                                \
            r.OUT[i] = (LANE(OUT))((LANE(OUT))a.IN[i + (FIRST)] * (LANE(OUT))b.IN[i + (FIRST)]); \
        return r;                                                                                \
    }

#define WIDEN(TO, W, FROM, HALF)                                    \
    EXTEND(TO##_extend_low_##FROM##_s, i##W, i##HALF, 0)            \
    EXTEND(TO##_extend_high_##FROM##_s, i##W, i##HALF, LANES(i##W)) \
    EXTEND(TO##_extend_low_##FROM##_u, u##W, u##HALF, 0)            \
    EXTEND(TO##_extend_high_##FROM##_u, u##W, u##HALF, LANES(u##W)) \
    EXTMUL(TO##_extmul_low_##FROM##_s, i##W, i##HALF, 0)            \
    EXTMUL(TO##_extmul_high_##FROM##_s, i##W, i##HALF, LANES(i##W)) \
    EXTMUL(TO##_extmul_low_##FROM##_u, u##W, u##HALF, 0)            \
    EXTMUL(TO##_extmul_high_##FROM##_u, u##W, u##HALF, LANES(u##W))

WIDEN(i16x8, 16, i8x16, 8)
WIDEN(i32x4, 32, i16x8, 16)
WIDEN(i64x2, 64, i32x4, 32)

#define EXTADD(NAME, OUT, IN)                                                            \
    static union v128 NAME(union v128 a) {                                               \
        union v128 r;                                                                    \
        for (unsigned i = 0; i < LANES(OUT); i++)                                        \
            r.OUT[i] = (LANE(OUT))((LANE(OUT))a.IN[2 * i] + (LANE(OUT))a.IN[2 * i + 1]); \
        return r;                                                                        \
    }

EXTADD(i16x8_extadd_pairwise_i8x16_s, i16, i8)
EXTADD(i16x8_extadd_pairwise_i8x16_u, u16, u8)
EXTADD(i32x4_extadd_pairwise_i16x8_s, i32, i16)
EXTADD(i32x4_extadd_pairwise_i16x8_u, u32, u16)

/* Four products of -32768 by itself sum to 2^31, which wraps. */
static union v128 i32x4_dot_i16x8_s(union v128 a, union v128 b) {
    union v128 r;
    for (unsigned i = 0; i < 4; i++)
        r.u32[i] = (uint32_t)(a.i16[2 * i] * b.i16[2 * i]) +
                   (uint32_t)(a.i16[2 * i + 1] * b.i16[2 * i + 1]);
    return r;
}

/* ---- float lanes ---- */

#define FLOAT(SHAPE, W)                                                                \
    UNARY(SHAPE##_abs, u##W, u##W, num_f##W##_abs_bits(x))                             \
    UNARY(SHAPE##_neg, u##W, u##W, num_f##W##_neg_bits(x))                             \
    UNARY(SHAPE##_sqrt, f##W, f##W, num_f##W##_sqrt(x))                                \
    UNARY(SHAPE##_ceil, f##W, f##W, num_f##W##_ceil(x))                                \
    UNARY(SHAPE##_floor, f##W, f##W, num_f##W##_floor(x))                              \
    UNARY(SHAPE##_trunc, f##W, f##W, num_f##W##_trunc(x))                              \
    UNARY(SHAPE##_nearest, f##W, f##W, num_f##W##_nearest(x))                          \
    BINARY(SHAPE##_add, f##W, f##W, num_f##W##_add(x, y))                              \
    BINARY(SHAPE##_sub, f##W, f##W, num_f##W##_sub(x, y))                              \
    BINARY(SHAPE##_mul, f##W, f##W, num_f##W##_mul(x, y))                              \
    BINARY(SHAPE##_div, f##W, f##W, num_f##W##_div(x, y))                              \
    BINARY(SHAPE##_min, f##W, f##W, num_f##W##_min(x, y))                              \
    BINARY(SHAPE##_max, f##W, f##W, num_f##W##_max(x, y))                              \
    PICK(SHAPE##_pmin, W, y < x)                                                       \
    PICK(SHAPE##_pmax, W, x < y)                                                       \
    TERNARY(SHAPE##_relaxed_madd, f##W, f##W, num_f##W##_add(num_f##W##_mul(x, y), z)) \
    TERNARY(SHAPE##_relaxed_nmadd, f##W, f##W, num_f##W##_add(num_f##W##_mul(-x, y), z))

/* pmin and pmax choose one operand by a comparison and keep its bits, NaN or not. */
#define PICK(NAME, W, SECOND)                            \
    static union v128 NAME(union v128 a, union v128 b) { \
        union v128 r;                                    \
        for (unsigned i = 0; i < LANES(u##W); i++) {     \
            LANE(f##W) x = a.f##W[i], y = b.f##W[i];     \
            r.u##W[i] = SECOND ? b.u##W[i] : a.u##W[i];  \
        }                                                \
        return r;                                        \
    }

FLOAT(f32x4, 32)
FLOAT(f64x2, 64)

UNARY(i32x4_trunc_sat_f32x4_s, u32, f32, num_sat_i32_trunc_f32_s(x))
UNARY(i32x4_trunc_sat_f32x4_u, u32, f32, num_sat_i32_trunc_f32_u(x))
UNARY(f32x4_convert_i32x4_s, f32, i32, x)
UNARY(f32x4_convert_i32x4_u, f32, u32, x)
UNARY(f64x2_convert_low_i32x4_s, f64, i32, x)
UNARY(f64x2_convert_low_i32x4_u, f64, u32, x)
UNARY(f64x2_promote_low_f32x4, f64, f32, num_f64_promote(x))

static union v128 f32x4_demote_f64x2_zero(union v128 a) {
    return (union v128){.f32 = {num_f32_demote(a.f64[0]), num_f32_demote(a.f64[1])}};
}

static union v128 i32x4_trunc_sat_f64x2_s_zero(union v128 a) {
    return (union v128){
        .u32 = {num_sat_i32_trunc_f64_s(a.f64[0]), num_sat_i32_trunc_f64_s(a.f64[1])}};
}

static union v128 i32x4_trunc_sat_f64x2_u_zero(union v128 a) {
    return (union v128){
        .u32 = {num_sat_i32_trunc_f64_u(a.f64[0]), num_sat_i32_trunc_f64_u(a.f64[1])}};
}

/* ---- moving lanes by index ---- */

static union v128 i8x16_swizzle(union v128 a, union v128 b) {
    union v128 r;
    for (unsigned i = 0; i < 16; i++)
        r.u8[i] = b.u8[i] < 16 ? a.u8[b.u8[i]] : 0;
    return r;
}

union v128 simd_shuffle(union v128 a, union v128 b, const uint8_t lanes[16]) {
    union v128 r;
    for (unsigned i = 0; i < 16; i++)
        r.u8[i] = lanes[i] < 16 ? a.u8[lanes[i]] : b.u8[lanes[i] & 15];
    return r;
}

#define SPLAT(SHAPE, FIELD)                          \
    static union v128 SHAPE##_splat(uint64_t slot) { \
        union v128 r;                                \
        for (unsigned i = 0; i < LANES(FIELD); i++)  \
            r.FIELD[i] = (LANE(FIELD))slot;          \
        return r;                                    \
    }

#define EXTRACT(NAME, FIELD, SLOT)                      \
    static uint64_t NAME(union v128 a, unsigned lane) { \
        return (SLOT)a.FIELD[lane];                     \
    }

#define REPLACE(SHAPE, FIELD)                                                            \
    static union v128 SHAPE##_replace_lane(union v128 a, unsigned lane, uint64_t slot) { \
        a.FIELD[lane] = (LANE(FIELD))slot;                                               \
        return a;                                                                        \
    }

/* Float lanes are moved as bits, so that no NaN changes. */
SPLAT(i8x16, u8)
SPLAT(i16x8, u16)
SPLAT(i32x4, u32)
SPLAT(i64x2, u64)
EXTRACT(i8x16_extract_lane_s, i8, uint32_t)
EXTRACT(i8x16_extract_lane_u, u8, uint32_t)
EXTRACT(i16x8_extract_lane_s, i16, uint32_t)
EXTRACT(i16x8_extract_lane_u, u16, uint32_t)
EXTRACT(i32x4_extract_lane, u32, uint32_t)
EXTRACT(i64x2_extract_lane, u64, uint64_t)
REPLACE(i8x16, u8)
REPLACE(i16x8, u16)
REPLACE(i32x4, u32)
REPLACE(i64x2, u64)

/* ---- memory ---- */

static union v128 v128_load(const uint8_t *at) {
    union v128 r;
    memcpy(&r, at, 16);
    return r;
}

static void v128_store(uint8_t *at, union v128 a) {
    memcpy(at, &a, 16);
}

#define LOAD_EXTEND(NAME, EXTENDED)             \
    static union v128 NAME(const uint8_t *at) { \
        union v128 half = {0};                  \
        memcpy(&half, at, 8);                   \
        return EXTENDED(half);                  \
    }

LOAD_EXTEND(v128_load8x8_s, i16x8_extend_low_i8x16_s)
LOAD_EXTEND(v128_load8x8_u, i16x8_extend_low_i8x16_u)
LOAD_EXTEND(v128_load16x4_s, i32x4_extend_low_i16x8_s)
LOAD_EXTEND(v128_load16x4_u, i32x4_extend_low_i16x8_u)
LOAD_EXTEND(v128_load32x2_s, i64x2_extend_low_i32x4_s)
LOAD_EXTEND(v128_load32x2_u, i64x2_extend_low_i32x4_u)

#define MEMORY_LANE(W, SHAPE)                                                               \
    static union v128 v128_load##W##_splat(const uint8_t *at) {                             \
        uint##W##_t x;                                                                      \
        memcpy(&x, at, sizeof x);                                                           \
        return SHAPE##_splat(x);                                                            \
    }                                                                                       \
    static union v128 v128_load##W##_lane(const uint8_t *at, union v128 a, unsigned lane) { \
        memcpy(&a.u##W[lane], at, W / 8);                                                   \
        return a;                                                                           \
    }                                                                                       \
    static void v128_store##W##_lane(uint8_t *at, union v128 a, unsigned lane) {            \
        memcpy(at, &a.u##W[lane], W / 8);                                                   \
    }

MEMORY_LANE(8, i8x16)
MEMORY_LANE(16, i16x8)
MEMORY_LANE(32, i32x4)
MEMORY_LANE(64, i64x2)

#define LOAD_ZERO(W)                                           \
    static union v128 v128_load##W##_zero(const uint8_t *at) { \
        union v128 r = {0};                                    \
        memcpy(&r, at, W / 8);                                 \
        return r;                                              \
    }

LOAD_ZERO(32)
LOAD_ZERO(64)

/* ---- relaxed instructions, in the deterministic profile: the first of the allowed results ---- */

/* Adds pairs of signed products. Only the sum of two -128 * -128 is out of range; it saturates. */
static union v128 i16x8_relaxed_dot_i8x16_i7x16_s(union v128 a, union v128 b) {
    union v128 r;
    for (unsigned i = 0; i < 8; i++)
        r.i16[i] =
            (int16_t)CLAMP_i16(a.i8[2 * i] * b.i8[2 * i] + a.i8[2 * i + 1] * b.i8[2 * i + 1]);
    return r;
}

static union v128 i32x4_relaxed_dot_i8x16_i7x16_add_s(union v128 a, union v128 b, union v128 c) {
    union v128 dot = i16x8_relaxed_dot_i8x16_i7x16_s(a, b);
    return i32x4_add(i32x4_extadd_pairwise_i16x8_s(dot), c);
}

/* ---- the table ---- */

#define ROW_UNARY(NAME, FN) \
    { .name = NAME, .shape = SIMD_UNARY, .unary = FN }
#define ROW_BINARY(NAME, FN) \
    { .name = NAME, .shape = SIMD_BINARY, .binary = FN }
#define ROW_TERNARY(NAME, FN) \
    { .name = NAME, .shape = SIMD_TERNARY, .ternary = FN }
#define ROW_SHIFT(NAME, FN) \
    { .name = NAME, .shape = SIMD_SHIFT, .shift = FN }
#define ROW_TEST(NAME, FN) \
    { .name = NAME, .shape = SIMD_TEST, .test = FN }
#define ROW_SPLAT(NAME, SCALAR, FN) \
    { .name = NAME, .shape = SIMD_SPLAT, .scalar = SCALAR, .splat = FN }
#define ROW_EXTRACT(NAME, SCALAR, LANES, FN) \
    { .name = NAME, .shape = SIMD_EXTRACT, .scalar = SCALAR, .lanes = LANES, .extract = FN }
#define ROW_REPLACE(NAME, SCALAR, LANES, FN) \
    { .name = NAME, .shape = SIMD_REPLACE, .scalar = SCALAR, .lanes = LANES, .replace = FN }
#define ROW_LOAD(NAME, WIDTH, FN) \
    { .name = NAME, .shape = SIMD_LOAD, .width = WIDTH, .load = FN }
#define ROW_STORE(NAME, WIDTH, FN) \
    { .name = NAME, .shape = SIMD_STORE, .width = WIDTH, .store = FN }
#define ROW_LOAD_LANE(NAME, WIDTH, FN) \
    { .name = NAME, .shape = SIMD_LOAD_LANE, .width = WIDTH, .lanes = 16 / WIDTH, .load_lane = FN }
#define ROW_STORE_LANE(NAME, WIDTH, FN)                                              \
    {                                                                                \
        .name = NAME, .shape = SIMD_STORE_LANE, .width = WIDTH, .lanes = 16 / WIDTH, \
        .store_lane = FN                                                             \
    }

const struct simd_op simd_ops[SIMD_OPS] = {
    [0x00] = ROW_LOAD("v128.load", 16, v128_load),
    [0x01] = ROW_LOAD("v128.load8x8_s", 8, v128_load8x8_s),
    [0x02] = ROW_LOAD("v128.load8x8_u", 8, v128_load8x8_u),
    [0x03] = ROW_LOAD("v128.load16x4_s", 8, v128_load16x4_s),
    [0x04] = ROW_LOAD("v128.load16x4_u", 8, v128_load16x4_u),
    [0x05] = ROW_LOAD("v128.load32x2_s", 8, v128_load32x2_s),
    [0x06] = ROW_LOAD("v128.load32x2_u", 8, v128_load32x2_u),
    [0x07] = ROW_LOAD("v128.load8_splat", 1, v128_load8_splat),
    [0x08] = ROW_LOAD("v128.load16_splat", 2, v128_load16_splat),
    [0x09] = ROW_LOAD("v128.load32_splat", 4, v128_load32_splat),
    [0x0a] = ROW_LOAD("v128.load64_splat", 8, v128_load64_splat),
    [0x0b] = ROW_STORE("v128.store", 16, v128_store),
    [0x0c] = {.name = "v128.const", .shape = SIMD_CONST},
    [0x0d] = {.name = "i8x16.shuffle", .shape = SIMD_SHUFFLE, .lanes = 32},
    [0x0e] = ROW_BINARY("i8x16.swizzle", i8x16_swizzle),
    [0x0f] = ROW_SPLAT("i8x16.splat", SIMD_I32, i8x16_splat),
    [0x10] = ROW_SPLAT("i16x8.splat", SIMD_I32, i16x8_splat),
    [0x11] = ROW_SPLAT("i32x4.splat", SIMD_I32, i32x4_splat),
    [0x12] = ROW_SPLAT("i64x2.splat", SIMD_I64, i64x2_splat),
    [0x13] = ROW_SPLAT("f32x4.splat", SIMD_F32, i32x4_splat),
    [0x14] = ROW_SPLAT("f64x2.splat", SIMD_F64, i64x2_splat),
    [0x15] = ROW_EXTRACT("i8x16.extract_lane_s", SIMD_I32, 16, i8x16_extract_lane_s),
    [0x16] = ROW_EXTRACT("i8x16.extract_lane_u", SIMD_I32, 16, i8x16_extract_lane_u),
    [0x17] = ROW_REPLACE("i8x16.replace_lane", SIMD_I32, 16, i8x16_replace_lane),
    [0x18] = ROW_EXTRACT("i16x8.extract_lane_s", SIMD_I32, 8, i16x8_extract_lane_s),
    [0x19] = ROW_EXTRACT("i16x8.extract_lane_u", SIMD_I32, 8, i16x8_extract_lane_u),
    [0x1a] = ROW_REPLACE("i16x8.replace_lane", SIMD_I32, 8, i16x8_replace_lane),
    [0x1b] = ROW_EXTRACT("i32x4.extract_lane", SIMD_I32, 4, i32x4_extract_lane),
    [0x1c] = ROW_REPLACE("i32x4.replace_lane", SIMD_I32, 4, i32x4_replace_lane),
    [0x1d] = ROW_EXTRACT("i64x2.extract_lane", SIMD_I64, 2, i64x2_extract_lane),
    [0x1e] = ROW_REPLACE("i64x2.replace_lane", SIMD_I64, 2, i64x2_replace_lane),
    [0x1f] = ROW_EXTRACT("f32x4.extract_lane", SIMD_F32, 4, i32x4_extract_lane),
    [0x20] = ROW_REPLACE("f32x4.replace_lane", SIMD_F32, 4, i32x4_replace_lane),
    [0x21] = ROW_EXTRACT("f64x2.extract_lane", SIMD_F64, 2, i64x2_extract_lane),
    [0x22] = ROW_REPLACE("f64x2.replace_lane", SIMD_F64, 2, i64x2_replace_lane),
    [0x23] = ROW_BINARY("i8x16.eq", i8x16_eq),
    [0x24] = ROW_BINARY("i8x16.ne", i8x16_ne),
    [0x25] = ROW_BINARY("i8x16.lt_s", i8x16_lt_s),
    [0x26] = ROW_BINARY("i8x16.lt_u", i8x16_lt_u),
    [0x27] = ROW_BINARY("i8x16.gt_s", i8x16_gt_s),
    [0x28] = ROW_BINARY("i8x16.gt_u", i8x16_gt_u),
    [0x29] = ROW_BINARY("i8x16.le_s", i8x16_le_s),
    [0x2a] = ROW_BINARY("i8x16.le_u", i8x16_le_u),
    [0x2b] = ROW_BINARY("i8x16.ge_s", i8x16_ge_s),
    [0x2c] = ROW_BINARY("i8x16.ge_u", i8x16_ge_u),
    [0x2d] = ROW_BINARY("i16x8.eq", i16x8_eq),
    [0x2e] = ROW_BINARY("i16x8.ne", i16x8_ne),
    [0x2f] = ROW_BINARY("i16x8.lt_s", i16x8_lt_s),
    [0x30] = ROW_BINARY("i16x8.lt_u", i16x8_lt_u),
    [0x31] = ROW_BINARY("i16x8.gt_s", i16x8_gt_s),
    [0x32] = ROW_BINARY("i16x8.gt_u", i16x8_gt_u),
    [0x33] = ROW_BINARY("i16x8.le_s", i16x8_le_s),
    [0x34] = ROW_BINARY("i16x8.le_u", i16x8_le_u),
    [0x35] = ROW_BINARY("i16x8.ge_s", i16x8_ge_s),
    [0x36] = ROW_BINARY("i16x8.ge_u", i16x8_ge_u),
    [0x37] = ROW_BINARY("i32x4.eq", i32x4_eq),
    [0x38] = ROW_BINARY("i32x4.ne", i32x4_ne),
    [0x39] = ROW_BINARY("i32x4.lt_s", i32x4_lt_s),
    [0x3a] = ROW_BINARY("i32x4.lt_u", i32x4_lt_u),
    [0x3b] = ROW_BINARY("i32x4.gt_s", i32x4_gt_s),
    [0x3c] = ROW_BINARY("i32x4.gt_u", i32x4_gt_u),
    [0x3d] = ROW_BINARY("i32x4.le_s", i32x4_le_s),
    [0x3e] = ROW_BINARY("i32x4.le_u", i32x4_le_u),
    [0x3f] = ROW_BINARY("i32x4.ge_s", i32x4_ge_s),
    [0x40] = ROW_BINARY("i32x4.ge_u", i32x4_ge_u),
    [0x41] = ROW_BINARY("f32x4.eq", f32x4_eq),
    [0x42] = ROW_BINARY("f32x4.ne", f32x4_ne),
    [0x43] = ROW_BINARY("f32x4.lt", f32x4_lt),
    [0x44] = ROW_BINARY("f32x4.gt", f32x4_gt),
    [0x45] = ROW_BINARY("f32x4.le", f32x4_le),
    [0x46] = ROW_BINARY("f32x4.ge", f32x4_ge),
    [0x47] = ROW_BINARY("f64x2.eq", f64x2_eq),
    [0x48] = ROW_BINARY("f64x2.ne", f64x2_ne),
    [0x49] = ROW_BINARY("f64x2.lt", f64x2_lt),
    [0x4a] = ROW_BINARY("f64x2.gt", f64x2_gt),
    [0x4b] = ROW_BINARY("f64x2.le", f64x2_le),
    [0x4c] = ROW_BINARY("f64x2.ge", f64x2_ge),
    [0x4d] = ROW_UNARY("v128.not", v128_not),
    [0x4e] = ROW_BINARY("v128.and", v128_and),
    [0x4f] = ROW_BINARY("v128.andnot", v128_andnot),
    [0x50] = ROW_BINARY("v128.or", v128_or),
    [0x51] = ROW_BINARY("v128.xor", v128_xor),
    [0x52] = ROW_TERNARY("v128.bitselect", v128_bitselect),
    [0x53] = ROW_TEST("v128.any_true", v128_any_true),
    [0x54] = ROW_LOAD_LANE("v128.load8_lane", 1, v128_load8_lane),
    [0x55] = ROW_LOAD_LANE("v128.load16_lane", 2, v128_load16_lane),
    [0x56] = ROW_LOAD_LANE("v128.load32_lane", 4, v128_load32_lane),
    [0x57] = ROW_LOAD_LANE("v128.load64_lane", 8, v128_load64_lane),
    [0x58] = ROW_STORE_LANE("v128.store8_lane", 1, v128_store8_lane),
    [0x59] = ROW_STORE_LANE("v128.store16_lane", 2, v128_store16_lane),
    [0x5a] = ROW_STORE_LANE("v128.store32_lane", 4, v128_store32_lane),
    [0x5b] = ROW_STORE_LANE("v128.store64_lane", 8, v128_store64_lane),
    [0x5c] = ROW_LOAD("v128.load32_zero", 4, v128_load32_zero),
    [0x5d] = ROW_LOAD("v128.load64_zero", 8, v128_load64_zero),
    [0x5e] = ROW_UNARY("f32x4.demote_f64x2_zero", f32x4_demote_f64x2_zero),
    [0x5f] = ROW_UNARY("f64x2.promote_low_f32x4", f64x2_promote_low_f32x4),
    [0x60] = ROW_UNARY("i8x16.abs", i8x16_abs),
    [0x61] = ROW_UNARY("i8x16.neg", i8x16_neg),
    [0x62] = ROW_UNARY("i8x16.popcnt", i8x16_popcnt),
    [0x63] = ROW_TEST("i8x16.all_true", i8x16_all_true),
    [0x64] = ROW_TEST("i8x16.bitmask", i8x16_bitmask),
    [0x65] = ROW_BINARY("i8x16.narrow_i16x8_s", i8x16_narrow_i16x8_s),
    [0x66] = ROW_BINARY("i8x16.narrow_i16x8_u", i8x16_narrow_i16x8_u),
    [0x67] = ROW_UNARY("f32x4.ceil", f32x4_ceil),
    [0x68] = ROW_UNARY("f32x4.floor", f32x4_floor),
    [0x69] = ROW_UNARY("f32x4.trunc", f32x4_trunc),
    [0x6a] = ROW_UNARY("f32x4.nearest", f32x4_nearest),
    [0x6b] = ROW_SHIFT("i8x16.shl", i8x16_shl),
    [0x6c] = ROW_SHIFT("i8x16.shr_s", i8x16_shr_s),
    [0x6d] = ROW_SHIFT("i8x16.shr_u", i8x16_shr_u),
    [0x6e] = ROW_BINARY("i8x16.add", i8x16_add),
    [0x6f] = ROW_BINARY("i8x16.add_sat_s", i8x16_add_sat_s),
    [0x70] = ROW_BINARY("i8x16.add_sat_u", i8x16_add_sat_u),
    [0x71] = ROW_BINARY("i8x16.sub", i8x16_sub),
    [0x72] = ROW_BINARY("i8x16.sub_sat_s", i8x16_sub_sat_s),
    [0x73] = ROW_BINARY("i8x16.sub_sat_u", i8x16_sub_sat_u),
    [0x74] = ROW_UNARY("f64x2.ceil", f64x2_ceil),
    [0x75] = ROW_UNARY("f64x2.floor", f64x2_floor),
    [0x76] = ROW_BINARY("i8x16.min_s", i8x16_min_s),
    [0x77] = ROW_BINARY("i8x16.min_u", i8x16_min_u),
    [0x78] = ROW_BINARY("i8x16.max_s", i8x16_max_s),
    [0x79] = ROW_BINARY("i8x16.max_u", i8x16_max_u),
    [0x7a] = ROW_UNARY("f64x2.trunc", f64x2_trunc),
    [0x7b] = ROW_BINARY("i8x16.avgr_u", i8x16_avgr_u),
    [0x7c] = ROW_UNARY("i16x8.extadd_pairwise_i8x16_s", i16x8_extadd_pairwise_i8x16_s),
    [0x7d] = ROW_UNARY("i16x8.extadd_pairwise_i8x16_u", i16x8_extadd_pairwise_i8x16_u),
    [0x7e] = ROW_UNARY("i32x4.extadd_pairwise_i16x8_s", i32x4_extadd_pairwise_i16x8_s),
    [0x7f] = ROW_UNARY("i32x4.extadd_pairwise_i16x8_u", i32x4_extadd_pairwise_i16x8_u),
    [0x80] = ROW_UNARY("i16x8.abs", i16x8_abs),
    [0x81] = ROW_UNARY("i16x8.neg", i16x8_neg),
    [0x82] = ROW_BINARY("i16x8.q15mulr_sat_s", i16x8_q15mulr_sat_s),
    [0x83] = ROW_TEST("i16x8.all_true", i16x8_all_true),
    [0x84] = ROW_TEST("i16x8.bitmask", i16x8_bitmask),
    [0x85] = ROW_BINARY("i16x8.narrow_i32x4_s", i16x8_narrow_i32x4_s),
    [0x86] = ROW_BINARY("i16x8.narrow_i32x4_u", i16x8_narrow_i32x4_u),
    [0x87] = ROW_UNARY("i16x8.extend_low_i8x16_s", i16x8_extend_low_i8x16_s),
    [0x88] = ROW_UNARY("i16x8.extend_high_i8x16_s", i16x8_extend_high_i8x16_s),
    [0x89] = ROW_UNARY("i16x8.extend_low_i8x16_u", i16x8_extend_low_i8x16_u),
    [0x8a] = ROW_UNARY("i16x8.extend_high_i8x16_u", i16x8_extend_high_i8x16_u),
    [0x8b] = ROW_SHIFT("i16x8.shl", i16x8_shl),
    [0x8c] = ROW_SHIFT("i16x8.shr_s", i16x8_shr_s),
    [0x8d] = ROW_SHIFT("i16x8.shr_u", i16x8_shr_u),
    [0x8e] = ROW_BINARY("i16x8.add", i16x8_add),
    [0x8f] = ROW_BINARY("i16x8.add_sat_s", i16x8_add_sat_s),
    [0x90] = ROW_BINARY("i16x8.add_sat_u", i16x8_add_sat_u),
    [0x91] = ROW_BINARY("i16x8.sub", i16x8_sub),
    [0x92] = ROW_BINARY("i16x8.sub_sat_s", i16x8_sub_sat_s),
    [0x93] = ROW_BINARY("i16x8.sub_sat_u", i16x8_sub_sat_u),
    [0x94] = ROW_UNARY("f64x2.nearest", f64x2_nearest),
    [0x95] = ROW_BINARY("i16x8.mul", i16x8_mul),
    [0x96] = ROW_BINARY("i16x8.min_s", i16x8_min_s),
    [0x97] = ROW_BINARY("i16x8.min_u", i16x8_min_u),
    [0x98] = ROW_BINARY("i16x8.max_s", i16x8_max_s),
    [0x99] = ROW_BINARY("i16x8.max_u", i16x8_max_u),
    [0x9b] = ROW_BINARY("i16x8.avgr_u", i16x8_avgr_u),
    [0x9c] = ROW_BINARY("i16x8.extmul_low_i8x16_s", i16x8_extmul_low_i8x16_s),
    [0x9d] = ROW_BINARY("i16x8.extmul_high_i8x16_s", i16x8_extmul_high_i8x16_s),
    [0x9e] = ROW_BINARY("i16x8.extmul_low_i8x16_u", i16x8_extmul_low_i8x16_u),
    [0x9f] = ROW_BINARY("i16x8.extmul_high_i8x16_u", i16x8_extmul_high_i8x16_u),
    [0xa0] = ROW_UNARY("i32x4.abs", i32x4_abs),
    [0xa1] = ROW_UNARY("i32x4.neg", i32x4_neg),
    [0xa3] = ROW_TEST("i32x4.all_true", i32x4_all_true),
    [0xa4] = ROW_TEST("i32x4.bitmask", i32x4_bitmask),
    [0xa7] = ROW_UNARY("i32x4.extend_low_i16x8_s", i32x4_extend_low_i16x8_s),
    [0xa8] = ROW_UNARY("i32x4.extend_high_i16x8_s", i32x4_extend_high_i16x8_s),
    [0xa9] = ROW_UNARY("i32x4.extend_low_i16x8_u", i32x4_extend_low_i16x8_u),
    [0xaa] = ROW_UNARY("i32x4.extend_high_i16x8_u", i32x4_extend_high_i16x8_u),
    [0xab] = ROW_SHIFT("i32x4.shl", i32x4_shl),
    [0xac] = ROW_SHIFT("i32x4.shr_s", i32x4_shr_s),
    [0xad] = ROW_SHIFT("i32x4.shr_u", i32x4_shr_u),
    [0xae] = ROW_BINARY("i32x4.add", i32x4_add),
    [0xb1] = ROW_BINARY("i32x4.sub", i32x4_sub),
    [0xb5] = ROW_BINARY("i32x4.mul", i32x4_mul),
    [0xb6] = ROW_BINARY("i32x4.min_s", i32x4_min_s),
    [0xb7] = ROW_BINARY("i32x4.min_u", i32x4_min_u),
    [0xb8] = ROW_BINARY("i32x4.max_s", i32x4_max_s),
    [0xb9] = ROW_BINARY("i32x4.max_u", i32x4_max_u),
    [0xba] = ROW_BINARY("i32x4.dot_i16x8_s", i32x4_dot_i16x8_s),
    [0xbc] = ROW_BINARY("i32x4.extmul_low_i16x8_s", i32x4_extmul_low_i16x8_s),
    [0xbd] = ROW_BINARY("i32x4.extmul_high_i16x8_s", i32x4_extmul_high_i16x8_s),
    [0xbe] = ROW_BINARY("i32x4.extmul_low_i16x8_u", i32x4_extmul_low_i16x8_u),
    [0xbf] = ROW_BINARY("i32x4.extmul_high_i16x8_u", i32x4_extmul_high_i16x8_u),
    [0xc0] = ROW_UNARY("i64x2.abs", i64x2_abs),
    [0xc1] = ROW_UNARY("i64x2.neg", i64x2_neg),
    [0xc3] = ROW_TEST("i64x2.all_true", i64x2_all_true),
    [0xc4] = ROW_TEST("i64x2.bitmask", i64x2_bitmask),
    [0xc7] = ROW_UNARY("i64x2.extend_low_i32x4_s", i64x2_extend_low_i32x4_s),
    [0xc8] = ROW_UNARY("i64x2.extend_high_i32x4_s", i64x2_extend_high_i32x4_s),
    [0xc9] = ROW_UNARY("i64x2.extend_low_i32x4_u", i64x2_extend_low_i32x4_u),
    [0xca] = ROW_UNARY("i64x2.extend_high_i32x4_u", i64x2_extend_high_i32x4_u),
    [0xcb] = ROW_SHIFT("i64x2.shl", i64x2_shl),
    [0xcc] = ROW_SHIFT("i64x2.shr_s", i64x2_shr_s),
    [0xcd] = ROW_SHIFT("i64x2.shr_u", i64x2_shr_u),
    [0xce] = ROW_BINARY("i64x2.add", i64x2_add),
    [0xd1] = ROW_BINARY("i64x2.sub", i64x2_sub),
    [0xd5] = ROW_BINARY("i64x2.mul", i64x2_mul),
    [0xd6] = ROW_BINARY("i64x2.eq", i64x2_eq),
    [0xd7] = ROW_BINARY("i64x2.ne", i64x2_ne),
    [0xd8] = ROW_BINARY("i64x2.lt_s", i64x2_lt_s),
    [0xd9] = ROW_BINARY("i64x2.gt_s", i64x2_gt_s),
    [0xda] = ROW_BINARY("i64x2.le_s", i64x2_le_s),
    [0xdb] = ROW_BINARY("i64x2.ge_s", i64x2_ge_s),
    [0xdc] = ROW_BINARY("i64x2.extmul_low_i32x4_s", i64x2_extmul_low_i32x4_s),
    [0xdd] = ROW_BINARY("i64x2.extmul_high_i32x4_s", i64x2_extmul_high_i32x4_s),
    [0xde] = ROW_BINARY("i64x2.extmul_low_i32x4_u", i64x2_extmul_low_i32x4_u),
    [0xdf] = ROW_BINARY("i64x2.extmul_high_i32x4_u", i64x2_extmul_high_i32x4_u),
    [0xe0] = ROW_UNARY("f32x4.abs", f32x4_abs),
    [0xe1] = ROW_UNARY("f32x4.neg", f32x4_neg),
    [0xe3] = ROW_UNARY("f32x4.sqrt", f32x4_sqrt),
    [0xe4] = ROW_BINARY("f32x4.add", f32x4_add),
    [0xe5] = ROW_BINARY("f32x4.sub", f32x4_sub),
    [0xe6] = ROW_BINARY("f32x4.mul", f32x4_mul),
    [0xe7] = ROW_BINARY("f32x4.div", f32x4_div),
    [0xe8] = ROW_BINARY("f32x4.min", f32x4_min),
    [0xe9] = ROW_BINARY("f32x4.max", f32x4_max),
    [0xea] = ROW_BINARY("f32x4.pmin", f32x4_pmin),
    [0xeb] = ROW_BINARY("f32x4.pmax", f32x4_pmax),
    [0xec] = ROW_UNARY("f64x2.abs", f64x2_abs),
    [0xed] = ROW_UNARY("f64x2.neg", f64x2_neg),
    [0xef] = ROW_UNARY("f64x2.sqrt", f64x2_sqrt),
    [0xf0] = ROW_BINARY("f64x2.add", f64x2_add),
    [0xf1] = ROW_BINARY("f64x2.sub", f64x2_sub),
    [0xf2] = ROW_BINARY("f64x2.mul", f64x2_mul),
    [0xf3] = ROW_BINARY("f64x2.div", f64x2_div),
    [0xf4] = ROW_BINARY("f64x2.min", f64x2_min),
    [0xf5] = ROW_BINARY("f64x2.max", f64x2_max),
    [0xf6] = ROW_BINARY("f64x2.pmin", f64x2_pmin),
    [0xf7] = ROW_BINARY("f64x2.pmax", f64x2_pmax),
    [0xf8] = ROW_UNARY("i32x4.trunc_sat_f32x4_s", i32x4_trunc_sat_f32x4_s),
    [0xf9] = ROW_UNARY("i32x4.trunc_sat_f32x4_u", i32x4_trunc_sat_f32x4_u),
    [0xfa] = ROW_UNARY("f32x4.convert_i32x4_s", f32x4_convert_i32x4_s),
    [0xfb] = ROW_UNARY("f32x4.convert_i32x4_u", f32x4_convert_i32x4_u),
    [0xfc] = ROW_UNARY("i32x4.trunc_sat_f64x2_s_zero", i32x4_trunc_sat_f64x2_s_zero),
    [0xfd] = ROW_UNARY("i32x4.trunc_sat_f64x2_u_zero", i32x4_trunc_sat_f64x2_u_zero),
    [0xfe] = ROW_UNARY("f64x2.convert_low_i32x4_s", f64x2_convert_low_i32x4_s),
    [0xff] = ROW_UNARY("f64x2.convert_low_i32x4_u", f64x2_convert_low_i32x4_u),
    [0x100] = ROW_BINARY("i8x16.relaxed_swizzle", i8x16_swizzle),
    [0x101] = ROW_UNARY("i32x4.relaxed_trunc_f32x4_s", i32x4_trunc_sat_f32x4_s),
    [0x102] = ROW_UNARY("i32x4.relaxed_trunc_f32x4_u", i32x4_trunc_sat_f32x4_u),
    [0x103] = ROW_UNARY("i32x4.relaxed_trunc_f64x2_s_zero", i32x4_trunc_sat_f64x2_s_zero),
    [0x104] = ROW_UNARY("i32x4.relaxed_trunc_f64x2_u_zero", i32x4_trunc_sat_f64x2_u_zero),
    [0x105] = ROW_TERNARY("f32x4.relaxed_madd", f32x4_relaxed_madd),
    [0x106] = ROW_TERNARY("f32x4.relaxed_nmadd", f32x4_relaxed_nmadd),
    [0x107] = ROW_TERNARY("f64x2.relaxed_madd", f64x2_relaxed_madd),
    [0x108] = ROW_TERNARY("f64x2.relaxed_nmadd", f64x2_relaxed_nmadd),
    [0x109] = ROW_TERNARY("i8x16.relaxed_laneselect", v128_bitselect),
    [0x10a] = ROW_TERNARY("i16x8.relaxed_laneselect", v128_bitselect),
    [0x10b] = ROW_TERNARY("i32x4.relaxed_laneselect", v128_bitselect),
    [0x10c] = ROW_TERNARY("i64x2.relaxed_laneselect", v128_bitselect),
    [0x10d] = ROW_BINARY("f32x4.relaxed_min", f32x4_min),
    [0x10e] = ROW_BINARY("f32x4.relaxed_max", f32x4_max),
    [0x10f] = ROW_BINARY("f64x2.relaxed_min", f64x2_min),
    [0x110] = ROW_BINARY("f64x2.relaxed_max", f64x2_max),
    [0x111] = ROW_BINARY("i16x8.relaxed_q15mulr_s", i16x8_q15mulr_sat_s),
    [0x112] = ROW_BINARY("i16x8.relaxed_dot_i8x16_i7x16_s", i16x8_relaxed_dot_i8x16_i7x16_s),
    [0x113] =
        ROW_TERNARY("i32x4.relaxed_dot_i8x16_i7x16_add_s", i32x4_relaxed_dot_i8x16_i7x16_add_s),
};

const struct simd_op *simd_op(uint32_t code) {
    return code < SIMD_OPS && simd_ops[code].shape != SIMD_NONE ? &simd_ops[code] : NULL;
}
