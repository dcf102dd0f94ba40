/*
 * The first instructions of pairs (pairs.h), without their dispatch. Only for interp.c, which has
 * the macros for operands and results.
 */
#pragma once

/* clang-format off */
#define FIRST(type, first, second, expr, out) \
    do {                                      \
        type a = (type)(first);               \
        type b = (type)(second);              \
        out((type)(expr));                    \
    } while (0)
#define FIRST_LOAD(type, wide, out, address)      \
    do {                                          \
        uint64_t at_ = (address);                 \
        type v_;                                  \
        if (UNLIKELY(at_ + sizeof v_ > mem_size)) \
            BEYOND(at_ + sizeof v_);              \
        memcpy(&v_, mem + at_, sizeof v_);        \
        out((wide)v_);                            \
    } while (0)
#define FIRST_STORE(type, value, address)         \
    do {                                          \
        uint64_t at_ = (address);                 \
        type v_ = (type)(value);                  \
        if (UNLIKELY(at_ + sizeof v_ > mem_size)) \
            BEYOND(at_ + sizeof v_);              \
        memcpy(mem + at_, &v_, sizeof v_);        \
    } while (0)
#define BODY_CONST32 OUT((uint32_t)(*pc >> 32))
#define BODY_CONST32_TO OUT_TO((uint32_t)(*pc >> 32))
#define BODY_CONST_F64_TO OUT_F64_TO(F64_OF(pc[1]))
#define BODY_F64_ADD OUT_F64(num_f64_add(F64_OF(fp[RB]), F64_OF(fp[RC])))
#define BODY_F64_ADD_RB OUT_F64(num_f64_add(fval, F64_OF(fp[RC])))
#define BODY_F64_ADD_RB_TO OUT_F64_TO(num_f64_add(fval, F64_OF(fp[RC])))
#define BODY_F64_DIV_RB OUT_F64(num_f64_div(fval, F64_OF(fp[RC])))
#define BODY_F64_LOAD FIRST_LOAD(double, double, OUT_F64, NEAR(fp[RB]))
#define BODY_F64_LOAD_AT FIRST_LOAD(double, double, OUT_F64, pc[1])
#define BODY_F64_LOAD_PLUS FIRST_LOAD(double, double, OUT_F64, PLUS(fp[RB]))
#define BODY_F64_LOAD_PLUS_RB FIRST_LOAD(double, double, OUT_F64, PLUS(ival))
#define BODY_F64_LOAD_PLUS_TO FIRST_LOAD(double, double, OUT_F64_TO, PLUS(fp[RB]))
#define BODY_F64_LOAD_RB FIRST_LOAD(double, double, OUT_F64, NEAR(ival))
#define BODY_F64_LOAD_RB_TO FIRST_LOAD(double, double, OUT_F64_TO, NEAR(ival))
#define BODY_F64_LOAD_TO FIRST_LOAD(double, double, OUT_F64_TO, NEAR(fp[RB]))
#define BODY_F64_MUL OUT_F64(num_f64_mul(F64_OF(fp[RB]), F64_OF(fp[RC])))
#define BODY_F64_MUL_RB OUT_F64(num_f64_mul(fval, F64_OF(fp[RC])))
#define BODY_F64_MUL_RB_TO OUT_F64_TO(num_f64_mul(fval, F64_OF(fp[RC])))
#define BODY_F64_MUL_TO OUT_F64_TO(num_f64_mul(F64_OF(fp[RB]), F64_OF(fp[RC])))
#define BODY_F64_STORE_AT_RB FIRST_STORE(uint64_t, num_f64_bits(fval), pc[1])
#define BODY_F64_STORE_RA FIRST_STORE(uint64_t, fp[RB], NEAR(ival))
#define BODY_F64_STORE_RB FIRST_STORE(uint64_t, num_f64_bits(fval), NEAR(fp[RA]))
#define BODY_F64_SUB_RC OUT_F64(num_f64_sub(F64_OF(fp[RB]), fval))
#define BODY_F64_SUB_RC_TO OUT_F64_TO(num_f64_sub(F64_OF(fp[RB]), fval))
#define BODY_GLOBAL_GET1 OUT(inst->globals[*pc >> 32]->value[0])
#define BODY_GLOBAL_SET1 inst->globals[*pc >> 32]->value[0] = fp[RA]
#define BODY_I32_ADD FIRST(uint32_t, fp[RB], fp[RC], a + b, OUT)
#define BODY_I32_ADD_K FIRST(uint32_t, fp[RB], RC_SIGNED, a + b, OUT)
#define BODY_I32_ADD_K_RB FIRST(uint32_t, ival, RC_SIGNED, a + b, OUT)
#define BODY_I32_ADD_K_RB_TO FIRST(uint32_t, ival, RC_SIGNED, a + b, OUT_TO)
#define BODY_I32_ADD_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, a + b, OUT_TO)
#define BODY_I32_ADD_RB FIRST(uint32_t, ival, fp[RC], a + b, OUT)
#define BODY_I32_ADD_RB_TO FIRST(uint32_t, ival, fp[RC], a + b, OUT_TO)
#define BODY_I32_ADD_TO FIRST(uint32_t, fp[RB], fp[RC], a + b, OUT_TO)
#define BODY_I32_AND FIRST(uint32_t, fp[RB], fp[RC], a & b, OUT)
#define BODY_I32_AND_K FIRST(uint32_t, fp[RB], RC_SIGNED, a & b, OUT)
#define BODY_I32_AND_K_RB_TO FIRST(uint32_t, ival, RC_SIGNED, a & b, OUT_TO)
#define BODY_I32_AND_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, a & b, OUT_TO)
#define BODY_I32_AND_RB FIRST(uint32_t, ival, fp[RC], a & b, OUT)
#define BODY_I32_AND_RB_TO FIRST(uint32_t, ival, fp[RC], a & b, OUT_TO)
#define BODY_I32_AND_TO FIRST(uint32_t, fp[RB], fp[RC], a & b, OUT_TO)
#define BODY_I32_EXTEND8_S OUT(num_i32_extend8_s((uint32_t)fp[RB]))
#define BODY_I32_LOAD FIRST_LOAD(uint32_t, uint32_t, OUT, NEAR(fp[RB]))
#define BODY_I32_LOAD16_U FIRST_LOAD(uint16_t, uint32_t, OUT, NEAR(fp[RB]))
#define BODY_I32_LOAD8_S FIRST_LOAD(int8_t, uint32_t, OUT, NEAR(fp[RB]))
#define BODY_I32_LOAD8_S_PLUS_TO FIRST_LOAD(int8_t, uint32_t, OUT_TO, PLUS(fp[RB]))
#define BODY_I32_LOAD8_S_TO FIRST_LOAD(int8_t, uint32_t, OUT_TO, NEAR(fp[RB]))
#define BODY_I32_LOAD8_U FIRST_LOAD(uint8_t, uint32_t, OUT, NEAR(fp[RB]))
#define BODY_I32_LOAD8_U_PLUS FIRST_LOAD(uint8_t, uint32_t, OUT, PLUS(fp[RB]))
#define BODY_I32_LOAD8_U_PLUS_TO FIRST_LOAD(uint8_t, uint32_t, OUT_TO, PLUS(fp[RB]))
#define BODY_I32_LOAD8_U_RB_TO FIRST_LOAD(uint8_t, uint32_t, OUT_TO, NEAR(ival))
#define BODY_I32_LOAD8_U_TO FIRST_LOAD(uint8_t, uint32_t, OUT_TO, NEAR(fp[RB]))
#define BODY_I32_LOAD_PLUS FIRST_LOAD(uint32_t, uint32_t, OUT, PLUS(fp[RB]))
#define BODY_I32_LOAD_PLUS_RB FIRST_LOAD(uint32_t, uint32_t, OUT, PLUS(ival))
#define BODY_I32_LOAD_PLUS_RB_TO FIRST_LOAD(uint32_t, uint32_t, OUT_TO, PLUS(ival))
#define BODY_I32_LOAD_RB FIRST_LOAD(uint32_t, uint32_t, OUT, NEAR(ival))
#define BODY_I32_LOAD_RB_TO FIRST_LOAD(uint32_t, uint32_t, OUT_TO, NEAR(ival))
#define BODY_I32_LOAD_SUM FIRST_LOAD(uint32_t, uint32_t, OUT, SUM(fp[RB]))
#define BODY_I32_LOAD_SUM_RB FIRST_LOAD(uint32_t, uint32_t, OUT, SUM(ival))
#define BODY_I32_LOAD_TO FIRST_LOAD(uint32_t, uint32_t, OUT_TO, NEAR(fp[RB]))
#define BODY_I32_MUL_K FIRST(uint32_t, fp[RB], RC_SIGNED, a * b, OUT)
#define BODY_I32_MUL_K_RB_TO FIRST(uint32_t, ival, RC_SIGNED, a * b, OUT_TO)
#define BODY_I32_MUL_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, a * b, OUT_TO)
#define BODY_I32_MUL_RB FIRST(uint32_t, ival, fp[RC], a * b, OUT)
#define BODY_I32_MUL_RB_TO FIRST(uint32_t, ival, fp[RC], a * b, OUT_TO)
#define BODY_I32_OR_K_RB_TO FIRST(uint32_t, ival, RC_SIGNED, a | b, OUT_TO)
#define BODY_I32_ROTL_K FIRST(uint32_t, fp[RB], RC_SIGNED, num_i32_rotl(a, b), OUT)
#define BODY_I32_ROTL_K_RB FIRST(uint32_t, ival, RC_SIGNED, num_i32_rotl(a, b), OUT)
#define BODY_I32_ROTL_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, num_i32_rotl(a, b), OUT_TO)
#define BODY_I32_SHL_K FIRST(uint32_t, fp[RB], RC_SIGNED, num_i32_shl(a, b), OUT)
#define BODY_I32_SHL_K_RB_TO FIRST(uint32_t, ival, RC_SIGNED, num_i32_shl(a, b), OUT_TO)
#define BODY_I32_SHL_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, num_i32_shl(a, b), OUT_TO)
#define BODY_I32_SHL_RB FIRST(uint32_t, ival, fp[RC], num_i32_shl(a, b), OUT)
#define BODY_I32_SHR_U_K_RB FIRST(uint32_t, ival, RC_SIGNED, num_i32_shr_u(a, b), OUT)
#define BODY_I32_SHR_U_K_RB_TO FIRST(uint32_t, ival, RC_SIGNED, num_i32_shr_u(a, b), OUT_TO)
#define BODY_I32_SHR_U_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, num_i32_shr_u(a, b), OUT_TO)
#define BODY_I32_SHR_U_RC_TO FIRST(uint32_t, fp[RB], ival, num_i32_shr_u(a, b), OUT_TO)
#define BODY_I32_STORE FIRST_STORE(uint32_t, fp[RB], NEAR(fp[RA]))
#define BODY_I32_STORE8_PLUS FIRST_STORE(uint8_t, fp[RB], PLUS(fp[RA]))
#define BODY_I32_STORE8_PLUS_RB FIRST_STORE(uint8_t, ival, PLUS(fp[RA]))
#define BODY_I32_STORE8_RB FIRST_STORE(uint8_t, ival, NEAR(fp[RA]))
#define BODY_I32_STORE_PLUS FIRST_STORE(uint32_t, fp[RB], PLUS(fp[RA]))
#define BODY_I32_STORE_RA FIRST_STORE(uint32_t, fp[RB], NEAR(ival))
#define BODY_I32_STORE_RB FIRST_STORE(uint32_t, ival, NEAR(fp[RA]))
#define BODY_I32_XOR_K_TO FIRST(uint32_t, fp[RB], RC_SIGNED, a ^ b, OUT_TO)
#define BODY_I32_XOR_RB FIRST(uint32_t, ival, fp[RC], a ^ b, OUT)
#define BODY_I32_XOR_RB_TO FIRST(uint32_t, ival, fp[RC], a ^ b, OUT_TO)
#define BODY_I32_XOR_TO FIRST(uint32_t, fp[RB], fp[RC], a ^ b, OUT_TO)
#define BODY_I64_ADD_K FIRST(uint64_t, fp[RB], RC_SIGNED, a + b, OUT)
#define BODY_MOV OUT(fp[RB])
/* clang-format on */
