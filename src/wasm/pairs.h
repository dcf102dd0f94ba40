/*
 * Pairs: two instructions with one dispatch, because the indirect jump is the main cost of a
 * threaded interpreter.
 *
 * If an instruction is followed by one that it makes a pair with, its word gets the number of the
 * pair. All other words stay the same, so branches to the second, marks and traps work as without
 * pairs. A pair runs the first instruction and jumps directly to the second. The lists come from
 * counting successive instructions in bench/cell. Each pair costs compile time, so rare ones are
 * left out.
 */
#pragma once

#include "wasm/iops.h"

/* clang-format off */
/* Instructions that can begin a pair: X(number, name of the body in interp.c). */
#define PAIR_FIRSTS(X)             \
    X(I_I32_ADD_K, I32_ADD_K)      \
    X(I_I32_AND_K, I32_AND_K)      \
    X(I_I32_SHL_K, I32_SHL_K)      \
    X(I_I32_SHR_U_K, I32_SHR_U_K)  \
    X(I_I32_ROTL_K, I32_ROTL_K)    \
    X(OP_I32_ADD, I32_ADD)         \
    X(OP_I32_XOR, I32_XOR)         \
    X(OP_I32_AND, I32_AND)         \
    X(OP_I32_MUL, I32_MUL)         \
    X(I_MOV, MOV)                  \
    X(I_CONST32, CONST32)          \
    X(OP_I32_LOAD, I32_LOAD)       \
    X(OP_I32_LOAD8_U, I32_LOAD8_U) \
    X(OP_I64_LOAD, I64_LOAD)       \
    X(OP_F64_LOAD, F64_LOAD)       \
    X(OP_I32_STORE, I32_STORE)     \
    X(OP_I32_STORE8, I32_STORE8)   \
    X(OP_I64_STORE, I64_STORE)     \
    X(OP_F64_STORE, F64_STORE)     \
    X(OP_F64_ADD, F64_ADD)         \
    X(OP_F64_SUB, F64_SUB)         \
    X(OP_F64_MUL, F64_MUL)

/* X(first instruction, number of the second, label of the second in interp.c) */
#define PAIRS_OF_I32_ADD_K(X)                                                                 \
    X(I32_ADD_K, I_I32_ADD_K, do_I32_ADD_K) X(I32_ADD_K, I_I32_AND_K, do_I32_AND_K)           \
    X(I32_ADD_K, I_I32_SHL_K, do_I32_SHL_K) X(I32_ADD_K, OP_I32_ADD, do_I32_ADD)              \
    X(I32_ADD_K, OP_I32_XOR, do_I32_XOR) X(I32_ADD_K, I_MOV, do_MOV)                          \
    X(I32_ADD_K, I_CONST32, do_CONST32) X(I32_ADD_K, OP_I32_LOAD, do_I32_LOAD)                \
    X(I32_ADD_K, OP_I32_LOAD8_U, do_I32_LOAD8_U) X(I32_ADD_K, OP_I64_LOAD, do_I64_LOAD)       \
    X(I32_ADD_K, OP_F64_LOAD, do_F64_LOAD) X(I32_ADD_K, OP_I32_STORE, do_I32_STORE)           \
    X(I32_ADD_K, OP_I32_STORE8, do_I32_STORE8) X(I32_ADD_K, OP_I64_STORE, do_I64_STORE)       \
    X(I32_ADD_K, OP_F64_STORE, do_F64_STORE) X(I32_ADD_K, I_CALL_FN, do_CALL_FN)              \
    X(I32_ADD_K, I_RET1, do_RET1) X(I32_ADD_K, I_SWITCH, do_SWITCH)                           \
    X(I32_ADD_K, I_BR_ALWAYS, do_BR_ALWAYS) X(I32_ADD_K, I_BR_TRUE, do_BR_TRUE)               \
    X(I32_ADD_K, I_BR_FALSE, do_BR_FALSE) X(I32_ADD_K, I_BR_I32_EQ, br_I32_EQ)                \
    X(I32_ADD_K, I_BR_I32_NE, br_I32_NE) X(I32_ADD_K, I_BR_I32_LT_S, br_I32_LT_S)             \
    X(I32_ADD_K, I_BR_I32_LT_U, br_I32_LT_U) X(I32_ADD_K, I_BR_I32_GT_S, br_I32_GT_S)         \
    X(I32_ADD_K, I_BR_I32_GT_U, br_I32_GT_U) X(I32_ADD_K, I_BR_I32_EQ_K, br_I32_EQ_K)         \
    X(I32_ADD_K, I_BR_I32_NE_K, br_I32_NE_K) X(I32_ADD_K, I_BR_I32_LT_S_K, br_I32_LT_S_K)     \
    X(I32_ADD_K, I_BR_I32_LT_U_K, br_I32_LT_U_K) X(I32_ADD_K, I_BR_I32_GT_S_K, br_I32_GT_S_K) \
    X(I32_ADD_K, I_BR_I32_GT_U_K, br_I32_GT_U_K)
#define PAIRS_OF_I32_AND_K(X)                                                    \
    X(I32_AND_K, I_I32_SHL_K, do_I32_SHL_K) X(I32_AND_K, OP_I32_ADD, do_I32_ADD) \
    X(I32_AND_K, I_BR_TRUE, do_BR_TRUE) X(I32_AND_K, I_BR_FALSE, do_BR_FALSE)    \
    X(I32_AND_K, I_BR_I32_EQ_K, br_I32_EQ_K) X(I32_AND_K, I_BR_I32_NE_K, br_I32_NE_K)
#define PAIRS_OF_I32_SHL_K(X)                                                    \
    X(I32_SHL_K, I_I32_ADD_K, do_I32_ADD_K) X(I32_SHL_K, OP_I32_ADD, do_I32_ADD) \
    X(I32_SHL_K, OP_I32_XOR, do_I32_XOR) X(I32_SHL_K, OP_I32_OR, do_I32_OR)
#define PAIRS_OF_I32_SHR_U_K(X) \
    X(I32_SHR_U_K, OP_I32_XOR, do_I32_XOR) X(I32_SHR_U_K, I_I32_AND_K, do_I32_AND_K)
#define PAIRS_OF_I32_ROTL_K(X)                                                       \
    X(I32_ROTL_K, I_I32_ROTL_K, do_I32_ROTL_K) X(I32_ROTL_K, OP_I32_XOR, do_I32_XOR) \
    X(I32_ROTL_K, OP_I32_ADD, do_I32_ADD)
#define PAIRS_OF_I32_ADD(X)                                                         \
    X(I32_ADD, I_I32_ADD_K, do_I32_ADD_K) X(I32_ADD, I_I32_SHL_K, do_I32_SHL_K)     \
    X(I32_ADD, OP_I32_ADD, do_I32_ADD) X(I32_ADD, I_I32_ROTL_K, do_I32_ROTL_K)      \
    X(I32_ADD, I_MOV, do_MOV) X(I32_ADD, I_CONST32, do_CONST32)                     \
    X(I32_ADD, OP_I32_LOAD, do_I32_LOAD) X(I32_ADD, OP_I32_LOAD8_U, do_I32_LOAD8_U) \
    X(I32_ADD, OP_F64_LOAD, do_F64_LOAD) X(I32_ADD, OP_I32_STORE, do_I32_STORE)     \
    X(I32_ADD, I_RET1, do_RET1) X(I32_ADD, I_BR_I32_LT_U, br_I32_LT_U)
#define PAIRS_OF_I32_XOR(X)                                                           \
    X(I32_XOR, I_I32_AND_K, do_I32_AND_K) X(I32_XOR, I_I32_SHL_K, do_I32_SHL_K)       \
    X(I32_XOR, I_I32_SHR_U_K, do_I32_SHR_U_K) X(I32_XOR, I_I32_ROTL_K, do_I32_ROTL_K) \
    X(I32_XOR, OP_I32_ADD, do_I32_ADD) X(I32_XOR, OP_I32_XOR, do_I32_XOR)             \
    X(I32_XOR, I_CONST32, do_CONST32) X(I32_XOR, OP_I32_STORE, do_I32_STORE)          \
    X(I32_XOR, OP_I32_STORE8, do_I32_STORE8) X(I32_XOR, I_RET1, do_RET1)
#define PAIRS_OF_I32_AND(X)                                               \
    X(I32_AND, OP_I32_XOR, do_I32_XOR) X(I32_AND, OP_I32_ADD, do_I32_ADD) \
    X(I32_AND, I_BR_TRUE, do_BR_TRUE) X(I32_AND, I_BR_FALSE, do_BR_FALSE)
#define PAIRS_OF_I32_MUL(X)                                               \
    X(I32_MUL, OP_I32_ADD, do_I32_ADD) X(I32_MUL, OP_I32_XOR, do_I32_XOR) \
    X(I32_MUL, OP_I32_STORE, do_I32_STORE)
#define PAIRS_OF_MOV(X)                                                                   \
    X(MOV, I_I32_ADD_K, do_I32_ADD_K) X(MOV, I_MOV, do_MOV) X(MOV, I_CONST32, do_CONST32) \
    X(MOV, OP_I32_LOAD, do_I32_LOAD) X(MOV, I_CALL_FN, do_CALL_FN)                        \
    X(MOV, I_CALL_TABLE, do_CALL_TABLE) X(MOV, I_RET1, do_RET1)                           \
    X(MOV, I_BR_ALWAYS, do_BR_ALWAYS) X(MOV, I_BR_I32_NE, br_I32_NE)
#define PAIRS_OF_CONST32(X)                                                    \
    X(CONST32, OP_I32_ADD, do_I32_ADD) X(CONST32, OP_I32_AND, do_I32_AND)      \
    X(CONST32, OP_I32_MUL, do_I32_MUL) X(CONST32, I_MOV, do_MOV)               \
    X(CONST32, I_CONST32, do_CONST32) X(CONST32, OP_I32_STORE, do_I32_STORE)   \
    X(CONST32, OP_I32_STORE8, do_I32_STORE8) X(CONST32, I_CALL_FN, do_CALL_FN) \
    X(CONST32, I_BR_ALWAYS, do_BR_ALWAYS) X(CONST32, I_BR_I32_EQ, br_I32_EQ)   \
    X(CONST32, I_BR_I32_NE, br_I32_NE) X(CONST32, I_BR_I32_LT_U, br_I32_LT_U)  \
    X(CONST32, I_BR_I32_GT_U, br_I32_GT_U)
#define PAIRS_OF_I32_LOAD(X)                                                        \
    X(I32_LOAD, I_I32_ADD_K, do_I32_ADD_K) X(I32_LOAD, I_I32_AND_K, do_I32_AND_K)   \
    X(I32_LOAD, I_I32_SHL_K, do_I32_SHL_K) X(I32_LOAD, I_I32_ROTL_K, do_I32_ROTL_K) \
    X(I32_LOAD, OP_I32_ADD, do_I32_ADD) X(I32_LOAD, OP_I32_XOR, do_I32_XOR)         \
    X(I32_LOAD, I_MOV, do_MOV) X(I32_LOAD, I_CONST32, do_CONST32)                   \
    X(I32_LOAD, OP_I32_LOAD, do_I32_LOAD) X(I32_LOAD, OP_I32_STORE, do_I32_STORE)   \
    X(I32_LOAD, I_SWITCH, do_SWITCH) X(I32_LOAD, I_BR_TRUE, do_BR_TRUE)             \
    X(I32_LOAD, I_BR_FALSE, do_BR_FALSE) X(I32_LOAD, I_BR_I32_NE, br_I32_NE)        \
    X(I32_LOAD, I_BR_I32_LT_U, br_I32_LT_U) X(I32_LOAD, I_BR_I32_EQ_K, br_I32_EQ_K) \
    X(I32_LOAD, I_BR_I32_NE_K, br_I32_NE_K)
#define PAIRS_OF_I32_LOAD8_U(X)                                                            \
    X(I32_LOAD8_U, I_I32_ADD_K, do_I32_ADD_K) X(I32_LOAD8_U, OP_I32_STORE8, do_I32_STORE8) \
    X(I32_LOAD8_U, I_SWITCH, do_SWITCH) X(I32_LOAD8_U, I_BR_ALWAYS, do_BR_ALWAYS)          \
    X(I32_LOAD8_U, I_BR_TRUE, do_BR_TRUE) X(I32_LOAD8_U, I_BR_FALSE, do_BR_FALSE)          \
    X(I32_LOAD8_U, I_BR_I32_EQ_K, br_I32_EQ_K) X(I32_LOAD8_U, I_BR_I32_NE_K, br_I32_NE_K)
#define PAIRS_OF_I64_LOAD(X) \
    X(I64_LOAD, OP_I64_STORE, do_I64_STORE) X(I64_LOAD, OP_I64_ADD, do_I64_ADD)
#define PAIRS_OF_F64_LOAD(X)                                                     \
    X(F64_LOAD, I_I32_ADD_K, do_I32_ADD_K) X(F64_LOAD, OP_F64_LOAD, do_F64_LOAD) \
    X(F64_LOAD, OP_F64_ADD, do_F64_ADD) X(F64_LOAD, OP_F64_SUB, do_F64_SUB)      \
    X(F64_LOAD, OP_F64_MUL, do_F64_MUL)
#define PAIRS_OF_I32_STORE(X)                                                             \
    X(I32_STORE, I_I32_ADD_K, do_I32_ADD_K) X(I32_STORE, I_MOV, do_MOV)                   \
    X(I32_STORE, I_CONST32, do_CONST32) X(I32_STORE, OP_I32_LOAD, do_I32_LOAD)            \
    X(I32_STORE, OP_I32_LOAD8_U, do_I32_LOAD8_U) X(I32_STORE, OP_I32_STORE, do_I32_STORE) \
    X(I32_STORE, I_BR_ALWAYS, do_BR_ALWAYS)
#define PAIRS_OF_I32_STORE8(X) \
    X(I32_STORE8, I_I32_ADD_K, do_I32_ADD_K) X(I32_STORE8, OP_I32_ADD, do_I32_ADD)
#define PAIRS_OF_I64_STORE(X) \
    X(I64_STORE, I_I32_ADD_K, do_I32_ADD_K) X(I64_STORE, OP_I64_LOAD, do_I64_LOAD)
#define PAIRS_OF_F64_STORE(X) \
    X(F64_STORE, I_I32_ADD_K, do_I32_ADD_K) X(F64_STORE, OP_F64_LOAD, do_F64_LOAD)
#define PAIRS_OF_F64_ADD(X)                                                      \
    X(F64_ADD, I_I32_ADD_K, do_I32_ADD_K) X(F64_ADD, OP_F64_STORE, do_F64_STORE) \
    X(F64_ADD, OP_F64_ADD, do_F64_ADD) X(F64_ADD, OP_F64_MUL, do_F64_MUL)
#define PAIRS_OF_F64_SUB(X) \
    X(F64_SUB, OP_F64_STORE, do_F64_STORE) X(F64_SUB, OP_F64_MUL, do_F64_MUL)
#define PAIRS_OF_F64_MUL(X)                                               \
    X(F64_MUL, OP_F64_ADD, do_F64_ADD) X(F64_MUL, OP_F64_SUB, do_F64_SUB) \
    X(F64_MUL, OP_F64_MUL, do_F64_MUL)
/* clang-format on */

enum {
#define X(number, first) PAIR_FIRST_##first,
    PAIR_FIRSTS(X)
#undef X
        N_PAIR_FIRSTS
};

/* Pairs are numbered after all plain instructions. */
enum {
    I_PAIRS = IOP_COUNT,
    I_BEFORE_PAIRS_ = IOP_COUNT - 1,
#define X(first, number, label) I_PAIR_##first##_##label,
#define ROW(number, first) PAIRS_OF_##first(X)
    PAIR_FIRSTS(ROW)
#undef ROW
#undef X
        PAIRS_END
};
