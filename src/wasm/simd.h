/*
 * Each v128 instruction as a pure function, found by its opcode after prefix 0xfd.
 *
 * The interpreter dispatches on the row's shape and calls the one function
 * that goes with it; the validator reads the operand type, the lane count and
 * the access width from the same row. Relaxed instructions have the meaning
 * of the deterministic profile. NaN results are canonical as in wasm/num.h.
 */
#pragma once

#include <stdint.h>

/* Lane 0 is the lowest byte, as in linear memory. Aligned for two 8-byte slots. */
union v128 {
    uint8_t u8[16];
    int8_t i8[16];
    uint16_t u16[8];
    int16_t i16[8];
    uint32_t u32[4];
    int32_t i32[4];
    uint64_t u64[2];
    int64_t i64[2];
    float f32[4];
    double f64[2];
};

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "lanes overlay as in linear memory on little-endian hosts only");

/* Immediates, operands and results of a vector instruction. */
enum simd_shape {
    SIMD_NONE,       /* no such instruction */
    SIMD_CONST,      /* immediate: 16 bytes; no operands -> v128 */
    SIMD_SHUFFLE,    /* immediate: 16 lanes < 32; v128 v128 -> v128 (simd_shuffle) */
    SIMD_UNARY,      /* v128 -> v128 */
    SIMD_BINARY,     /* v128 v128 -> v128 */
    SIMD_TERNARY,    /* v128 v128 v128 -> v128 */
    SIMD_SHIFT,      /* v128 i32 -> v128 */
    SIMD_TEST,       /* v128 -> i32 */
    SIMD_SPLAT,      /* scalar -> v128 */
    SIMD_EXTRACT,    /* immediate: lane; v128 -> scalar */
    SIMD_REPLACE,    /* immediate: lane; v128 scalar -> v128 */
    SIMD_LOAD,       /* immediate: memarg; address -> v128 */
    SIMD_STORE,      /* immediate: memarg; address v128 -> no result */
    SIMD_LOAD_LANE,  /* immediates: memarg, lane; address v128 -> v128 */
    SIMD_STORE_LANE, /* immediates: memarg, lane; address v128 -> no result */
};

/* The type of the scalar operand or result of a splat, extract or replace. */
enum simd_scalar {
    SIMD_I32,
    SIMD_I64,
    SIMD_F32,
    SIMD_F64,
};

struct simd_op {
    const char *name; /* name in the text format; NULL for SIMD_NONE */
    uint8_t shape;    /* enum simd_shape */
    uint8_t scalar;   /* enum simd_scalar, where the shape has a scalar */
    uint8_t lanes;    /* number of lanes: the immediate of a lane must be less */
    uint8_t width;    /* bytes of memory read or written; also the natural alignment */
    /*
     * The function of the instruction. Scalars are slots: 32-bit ones in the low half, upper half
     * zero. `at` is the address of `width` bytes of memory that are already checked.
     */
    union {
        union v128 (*unary)(union v128 a);
        union v128 (*binary)(union v128 a, union v128 b);
        union v128 (*ternary)(union v128 a, union v128 b, union v128 c);
        union v128 (*shift)(union v128 a, uint32_t count);
        uint32_t (*test)(union v128 a);
        union v128 (*splat)(uint64_t slot);
        uint64_t (*extract)(union v128 a, unsigned lane);
        union v128 (*replace)(union v128 a, unsigned lane, uint64_t slot);
        union v128 (*load)(const uint8_t *at);
        void (*store)(uint8_t *at, union v128 a);
        union v128 (*load_lane)(const uint8_t *at, union v128 a, unsigned lane);
        void (*store_lane)(uint8_t *at, union v128 a, unsigned lane);
    };
};

#define SIMD_OPS 0x114

extern const struct simd_op simd_ops[SIMD_OPS];

/* Returns the vector instruction with this opcode, or NULL if there is none. */
const struct simd_op *simd_op(uint32_t code);

union v128 simd_shuffle(union v128 a, union v128 b, const uint8_t lanes[16]);
