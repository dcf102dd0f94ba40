/*
 * One hash for each numeric function, over corner values and random bits. Every CPU and compiler
 * must print the same lines: the cross test compares them.
 */
#include <inttypes.h>
#include <stdio.h>

#include "wasm/num.h"
#include "wasm/simd.h"

enum { ROUNDS = 20000 };

static uint64_t state = 88172645463325252u;

static uint64_t next_bits(void) {
    static const uint64_t corners[] = {
        0,
        1,
        UINT64_MAX,
        UINT64_C(1) << 63,
        UINT64_C(0x7ff0000000000001),
        UINT64_C(0xfff8000000000000),
        UINT64_C(0x7fc000017f800000),
        UINT64_C(0xff80000080000000),
        UINT64_C(0x41dfffffffc00000), /* 2^31 - 1 */
        UINT64_C(0xc1e0000000000000), /* -2^31 */
        UINT64_C(0x4f0000003f000000), /* 2^31 and 0.5, as f32 */
        UINT64_C(0x43e0000000000000), /* 2^63 */
        UINT64_C(0x0000000100800000), /* subnormal and smallest normal */
    };
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    uint64_t n = state * UINT64_C(0x9e3779b97f4a7c15);
    return (n >> 60) < 6 ? corners[(n >> 32) % (sizeof corners / sizeof corners[0])] : n;
}

static union v128 next_vector(void) {
    return (union v128){.u64 = {next_bits(), next_bits()}};
}

static uint64_t mix(uint64_t hash, uint64_t x) {
    return (hash ^ x) * UINT64_C(1099511628211);
}

static uint64_t mix_vector(uint64_t hash, union v128 v) {
    return mix(mix(hash, v.u64[0]), v.u64[1]);
}

static uint64_t apply(const struct simd_op *op, uint64_t hash) {
    union v128 a = next_vector(), b = next_vector(), c = next_vector();
    switch (op->shape) {
    case SIMD_UNARY:
        return mix_vector(hash, op->unary(a));
    case SIMD_BINARY:
        return mix_vector(hash, op->binary(a, b));
    case SIMD_TERNARY:
        return mix_vector(hash, op->ternary(a, b, c));
    case SIMD_SHIFT:
        return mix_vector(hash, op->shift(a, b.u32[0]));
    case SIMD_TEST:
        return mix(hash, op->test(a));
    case SIMD_SPLAT:
        return mix_vector(hash, op->splat(a.u64[0]));
    case SIMD_EXTRACT:
        return mix(hash, op->extract(a, b.u8[0] % op->lanes));
    case SIMD_REPLACE:
        return mix_vector(hash, op->replace(a, b.u8[0] % op->lanes, c.u64[0]));
    case SIMD_LOAD:
        return mix_vector(hash, op->load(a.u8));
    case SIMD_LOAD_LANE:
        return mix_vector(hash, op->load_lane(a.u8, b, c.u8[0] % op->lanes));
    default:
        return hash;
    }
}

static void sweep_vectors(void) {
    for (uint32_t code = 0; code < SIMD_OPS; code++) {
        const struct simd_op *op = simd_op(code);
        uint64_t hash = 1;
        for (int i = 0; op && i < ROUNDS; i++)
            hash = apply(op, hash);
        if (op)
            printf("%s %016" PRIx64 "\n", op->name, hash);
    }
}

#define SWEEP(NAME, MIXED)                             \
    do {                                               \
        uint64_t hash = 1;                             \
        for (int i = 0; i < ROUNDS; i++) {             \
            uint64_t x = next_bits(), y = next_bits(); \
            hash = mix(hash, MIXED);                   \
        }                                              \
        printf("%s %016" PRIx64 "\n", NAME, hash);     \
    } while (0)

#define F32(x) num_f32_of_bits((uint32_t)(x))
#define F64(x) num_f64_of_bits(x)
#define SWEEP_F32(OP) SWEEP("f32." #OP, num_f32_bits(num_f32_##OP(F32(x), F32(y))))
#define SWEEP_F64(OP) SWEEP("f64." #OP, num_f64_bits(num_f64_##OP(F64(x), F64(y))))
#define SWEEP_F32_1(OP) SWEEP("f32." #OP, num_f32_bits(num_f32_##OP(F32(x))) + (y & 0))
#define SWEEP_F64_1(OP) SWEEP("f64." #OP, num_f64_bits(num_f64_##OP(F64(x))) + (y & 0))

static void sweep_floats(void) {
    SWEEP_F32(add);
    SWEEP_F32(sub);
    SWEEP_F32(mul);
    SWEEP_F32(div);
    SWEEP_F32(min);
    SWEEP_F32(max);
    SWEEP_F64(add);
    SWEEP_F64(sub);
    SWEEP_F64(mul);
    SWEEP_F64(div);
    SWEEP_F64(min);
    SWEEP_F64(max);
    SWEEP_F32_1(sqrt);
    SWEEP_F32_1(ceil);
    SWEEP_F32_1(floor);
    SWEEP_F32_1(trunc);
    SWEEP_F32_1(nearest);
    SWEEP_F64_1(sqrt);
    SWEEP_F64_1(ceil);
    SWEEP_F64_1(floor);
    SWEEP_F64_1(trunc);
    SWEEP_F64_1(nearest);
    SWEEP("f32.demote", num_f32_bits(num_f32_demote(F64(x))) + (y & 0));
    SWEEP("f64.promote", num_f64_bits(num_f64_promote(F32(x))) + (y & 0));
    SWEEP("f32.convert_i64_u", num_f32_bits((float)x) + (y & 0));
    SWEEP("f32.convert_i64_s", num_f32_bits((float)(int64_t)x) + (y & 0));
    SWEEP("f64.convert_i64_u", num_f64_bits((double)x) + (y & 0));
}

#define SWEEP_TRUNC(OP, FROM) SWEEP("sat." #OP, (uint64_t)num_sat_##OP(FROM(x)) + (y & 0))

static void sweep_truncations(void) {
    SWEEP_TRUNC(i32_trunc_f32_s, F32);
    SWEEP_TRUNC(i32_trunc_f32_u, F32);
    SWEEP_TRUNC(i32_trunc_f64_s, F64);
    SWEEP_TRUNC(i32_trunc_f64_u, F64);
    SWEEP_TRUNC(i64_trunc_f32_s, F32);
    SWEEP_TRUNC(i64_trunc_f32_u, F32);
    SWEEP_TRUNC(i64_trunc_f64_s, F64);
    SWEEP_TRUNC(i64_trunc_f64_u, F64);
}

int main(void) {
    sweep_floats();
    sweep_truncations();
    sweep_vectors();
}
