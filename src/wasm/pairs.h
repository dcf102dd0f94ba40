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
/* Instructions that can begin a pair: X(number, name of the body, words). */
#define PAIR_FIRSTS(X) \
    X(I_I32_ADD_K, I32_ADD_K, 1) X(I_MOV, MOV, 1) X(I_CONST32_TO, CONST32_TO, 1)               \
    X(OP_I32_ADD, I32_ADD, 1) X(I_F64_MUL_RB_TO, F64_MUL_RB_TO, 1)                             \
    X(I_F64_ADD_RB, F64_ADD_RB, 1) X(I_I32_STORE_RB, I32_STORE_RB, 1)                          \
    X(I_I32_XOR_RB, I32_XOR_RB, 1) X(OP_I32_LOAD, I32_LOAD, 1)                                 \
    X(I_I32_ADD_RB_TO, I32_ADD_RB_TO, 1) X(I_I32_LOAD_TO, I32_LOAD_TO, 1)                      \
    X(I_F64_LOAD_PLUS_TO, F64_LOAD_PLUS_TO, 2) X(I_I32_SHL_K_RB_TO, I32_SHL_K_RB_TO, 1)        \
    X(I_I32_ADD_RB, I32_ADD_RB, 1) X(I_I32_ADD_TO, I32_ADD_TO, 1)                              \
    X(I_I32_STORE8_PLUS_RB, I32_STORE8_PLUS_RB, 2) X(OP_I32_LOAD8_U, I32_LOAD8_U, 1)           \
    X(I_F64_LOAD_PLUS_RB, F64_LOAD_PLUS_RB, 2) X(I_I32_SHL_K_TO, I32_SHL_K_TO, 1)              \
    X(I_I32_XOR_RB_TO, I32_XOR_RB_TO, 1) X(I_I32_AND_K_RB_TO, I32_AND_K_RB_TO, 1)              \
    X(I_I32_LOAD_RB, I32_LOAD_RB, 1) X(I_I32_ADD_K_TO, I32_ADD_K_TO, 1)                        \
    X(I_I32_XOR_TO, I32_XOR_TO, 1) X(I_I32_ADD_K_RB, I32_ADD_K_RB, 1)                          \
    X(I_I32_LOAD_PLUS_RB, I32_LOAD_PLUS_RB, 2) X(I_I32_ROTL_K_TO, I32_ROTL_K_TO, 1)            \
    X(I_CONST32, CONST32, 1) X(I_F64_MUL_TO, F64_MUL_TO, 1) X(I_I32_AND_K_TO, I32_AND_K_TO, 1) \
    X(I_F64_MUL_RB, F64_MUL_RB, 1) X(I_CONST_F64_TO, CONST_F64_TO, 2)                          \
    X(I_I32_ADD_K_RB_TO, I32_ADD_K_RB_TO, 1) X(I_F64_LOAD_RB, F64_LOAD_RB, 1)                  \
    X(OP_F64_LOAD, F64_LOAD, 1) X(I_I32_LOAD8_U_TO, I32_LOAD8_U_TO, 1)                         \
    X(I_I32_LOAD8_U_PLUS, I32_LOAD8_U_PLUS, 2) X(I_F64_LOAD_TO, F64_LOAD_TO, 1)                \
    X(I_I32_SHR_U_K_RB_TO, I32_SHR_U_K_RB_TO, 1) X(I_I32_LOAD8_U_RB_TO, I32_LOAD8_U_RB_TO, 1)  \
    X(I_F64_STORE_RA, F64_STORE_RA, 1) X(OP_I32_AND, I32_AND, 1)                               \
    X(I_F64_STORE_RB, F64_STORE_RB, 1) X(I_F64_LOAD_AT, F64_LOAD_AT, 2)                        \
    X(I_F64_SUB_RC, F64_SUB_RC, 1) X(I_F64_SUB_RC_TO, F64_SUB_RC_TO, 1)                        \
    X(OP_I32_EXTEND8_S, I32_EXTEND8_S, 1) X(I_I32_STORE8_RB, I32_STORE8_RB, 1)                 \
    X(I_I32_STORE8_PLUS, I32_STORE8_PLUS, 2) X(I_I32_MUL_RB_TO, I32_MUL_RB_TO, 1)              \
    X(I_I32_LOAD_PLUS_RB_TO, I32_LOAD_PLUS_RB_TO, 2) X(I_I32_STORE_PLUS, I32_STORE_PLUS, 2)    \
    X(OP_I32_STORE, I32_STORE, 1) X(I_I32_LOAD_RB_TO, I32_LOAD_RB_TO, 1)                       \
    X(I_F64_LOAD_RB_TO, F64_LOAD_RB_TO, 1) X(I_I32_MUL_K_TO, I32_MUL_K_TO, 1)                  \
    X(I_I32_LOAD_PLUS, I32_LOAD_PLUS, 2) X(I_F64_LOAD_PLUS, F64_LOAD_PLUS, 2)                  \
    X(I_I32_ROTL_K, I32_ROTL_K, 1) X(I_F64_ADD_RB_TO, F64_ADD_RB_TO, 1)                        \
    X(I_F64_STORE_AT_RB, F64_STORE_AT_RB, 2) X(I_I32_XOR_K_TO, I32_XOR_K_TO, 1)                \
    X(I_I32_AND_RB_TO, I32_AND_RB_TO, 1) X(I_I32_SHR_U_K_TO, I32_SHR_U_K_TO, 1)                \
    X(I_I32_ROTL_K_RB, I32_ROTL_K_RB, 1) X(I_I32_LOAD8_U_PLUS_TO, I32_LOAD8_U_PLUS_TO, 2)      \
    X(OP_F64_MUL, F64_MUL, 1) X(I_F64_DIV_RB, F64_DIV_RB, 1) X(I_I32_MUL_K, I32_MUL_K, 1)      \
    X(I_I32_SHR_U_RC_TO, I32_SHR_U_RC_TO, 1) X(I_GLOBAL_GET1, GLOBAL_GET1, 1)                  \
    X(I_I64_ADD_K, I64_ADD_K, 1) X(I_I32_AND_TO, I32_AND_TO, 1) X(I_I32_AND_RB, I32_AND_RB, 1) \
    X(I_I32_LOAD_SUM, I32_LOAD_SUM, 2) X(OP_I32_LOAD8_S, I32_LOAD8_S, 1)                       \
    X(I_I32_MUL_K_RB_TO, I32_MUL_K_RB_TO, 1) X(I_GLOBAL_SET1, GLOBAL_SET1, 1)                  \
    X(I_I32_AND_K, I32_AND_K, 1) X(I_I32_SHR_U_K_RB, I32_SHR_U_K_RB, 1)                        \
    X(I_I32_SHL_K, I32_SHL_K, 1) X(I_I32_SHL_RB, I32_SHL_RB, 1)                                \
    X(I_I32_LOAD8_S_TO, I32_LOAD8_S_TO, 1) X(OP_F64_ADD, F64_ADD, 1)                           \
    X(I_I32_MUL_RB, I32_MUL_RB, 1) X(I_I32_LOAD8_S_PLUS_TO, I32_LOAD8_S_PLUS_TO, 2)            \
    X(I_I32_LOAD_SUM_RB, I32_LOAD_SUM_RB, 2) X(I_I32_STORE_RA, I32_STORE_RA, 1)                \
    X(OP_I32_LOAD16_U, I32_LOAD16_U, 1) X(I_I32_OR_K_RB_TO, I32_OR_K_RB_TO, 1)

/* X(first instruction, number of the second, label of the second in interp.c) */
#define PAIRS_OF_I32_ADD_K(X) \
    X(I32_ADD_K, I_I32_ADD_K, do_I32_ADD_K) X(I32_ADD_K, I_CALL_FN, do_CALL_FN)                  \
    X(I32_ADD_K, I_BR_I32_GT_U_K_RA, br_I32_GT_U_K_RA) X(I32_ADD_K, I_MOV, do_MOV)               \
    X(I32_ADD_K, I_I32_LOAD_RB, do_I32_LOAD_RB) X(I32_ADD_K, I_I32_LOAD_TO, do_I32_LOAD_TO)      \
    X(I32_ADD_K, I_BR_I32_NE_RA, br_I32_NE_RA) X(I32_ADD_K, I_BR_ALWAYS, do_BR_ALWAYS)           \
    X(I32_ADD_K, I_BR_I32_NE_K_RA, br_I32_NE_K_RA) X(I32_ADD_K, OP_I32_LOAD, do_I32_LOAD)        \
    X(I32_ADD_K, I_BR_I32_GT_U, br_I32_GT_U) X(I32_ADD_K, I_CONST32_TO, do_CONST32_TO)           \
    X(I32_ADD_K, I_BR_TRUE_RA, do_BR_TRUE_RA) X(I32_ADD_K, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)    \
    X(I32_ADD_K, I_I32_LOAD_RB_TO, do_I32_LOAD_RB_TO) X(I32_ADD_K, I_F64_MUL_TO, do_F64_MUL_TO)  \
    X(I32_ADD_K, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_ADD_K, I_I32_SHL_K_TO, do_I32_SHL_K_TO)  \
    X(I32_ADD_K, I_BR_I32_LT_S_RA, br_I32_LT_S_RA) X(I32_ADD_K, I_F64_LOAD_RB, do_F64_LOAD_RB)   \
    X(I32_ADD_K, I_I32_ADD_K_TO, do_I32_ADD_K_TO)                                                \
    X(I32_ADD_K, I_I32_ADD_K_RB_TO, do_I32_ADD_K_RB_TO)                                          \
    X(I32_ADD_K, I_GLOBAL_SET1, do_GLOBAL_SET1) X(I32_ADD_K, I_I32_LOAD_PLUS, do_I32_LOAD_PLUS)  \
    X(I32_ADD_K, I_BR_TRUE, do_BR_TRUE) X(I32_ADD_K, I_BR_I32_NE_K, br_I32_NE_K)                 \
    X(I32_ADD_K, OP_I32_LOAD8_U, do_I32_LOAD8_U) X(I32_ADD_K, I_F64_LOAD_PLUS, do_F64_LOAD_PLUS) \
    X(I32_ADD_K, I_BR_I32_LT_U_RA, br_I32_LT_U_RA)
#define PAIRS_OF_MOV(X) \
    X(MOV, I_MOV, do_MOV) X(MOV, I_I32_ADD_K, do_I32_ADD_K) X(MOV, I_CALL_FN, do_CALL_FN) \
    X(MOV, I_CALL_TABLE, do_CALL_TABLE) X(MOV, I_BR_ALWAYS, do_BR_ALWAYS)                 \
    X(MOV, OP_I32_LOAD8_U, do_I32_LOAD8_U) X(MOV, I_I32_ADD_K_RB, do_I32_ADD_K_RB)        \
    X(MOV, I_BR_I32_LT_U_RA, br_I32_LT_U_RA) X(MOV, I_BR_I32_LT_S_RA, br_I32_LT_S_RA)     \
    X(MOV, I_CONST32, do_CONST32) X(MOV, I_BR_I32_LE_S, br_I32_LE_S)                      \
    X(MOV, OP_I32_LOAD, do_I32_LOAD) X(MOV, I_I64_ADD_K, do_I64_ADD_K)                    \
    X(MOV, I_CONST32_TO, do_CONST32_TO) X(MOV, I_BR_I32_NE_K, br_I32_NE_K)                \
    X(MOV, OP_F64_LOAD, do_F64_LOAD) X(MOV, I_BR_TRUE, do_BR_TRUE)
#define PAIRS_OF_CONST32_TO(X) \
    X(CONST32_TO, I_I32_STORE8_PLUS_RB, do_I32_STORE8_PLUS_RB)                                  \
    X(CONST32_TO, I_BR_I32_GT_U_RA, br_I32_GT_U_RA)                                             \
    X(CONST32_TO, I_BR_I32_LT_U_RA, br_I32_LT_U_RA) X(CONST32_TO, I_BR_I32_EQ_RA, br_I32_EQ_RA) \
    X(CONST32_TO, I_I32_ADD_RB, do_I32_ADD_RB) X(CONST32_TO, I_I32_MUL_RB_TO, do_I32_MUL_RB_TO) \
    X(CONST32_TO, I_I32_AND_RB_TO, do_I32_AND_RB_TO)                                            \
    X(CONST32_TO, I_I32_STORE_RB, do_I32_STORE_RB) X(CONST32_TO, I_I32_AND_RB, do_I32_AND_RB)   \
    X(CONST32_TO, I_I32_STORE8_RB, do_I32_STORE8_RB)                                            \
    X(CONST32_TO, I_I32_STORE16_RB, do_I32_STORE16_RB)                                          \
    X(CONST32_TO, I_I32_SHL_RB, do_I32_SHL_RB) X(CONST32_TO, I_I32_MUL_RB, do_I32_MUL_RB)       \
    X(CONST32_TO, I_I32_SUB_RB, do_I32_SUB_RB)
#define PAIRS_OF_I32_ADD(X) \
    X(I32_ADD, I_CONST32_TO, do_CONST32_TO) X(I32_ADD, I_I32_ADD_K, do_I32_ADD_K)                \
    X(I32_ADD, I_F64_LOAD_RB, do_F64_LOAD_RB)                                                    \
    X(I32_ADD, I_I32_LOAD8_U_RB_TO, do_I32_LOAD8_U_RB_TO) X(I32_ADD, I_BR_I32_EQ_K, br_I32_EQ_K) \
    X(I32_ADD, I_I32_SHR_U_K_RB, do_I32_SHR_U_K_RB)                                              \
    X(I32_ADD, I_I32_LOAD_PLUS_RB, do_I32_LOAD_PLUS_RB)                                          \
    X(I32_ADD, I_I32_ADD_K_RB, do_I32_ADD_K_RB) X(I32_ADD, OP_I32_LOAD8_S, do_I32_LOAD8_S)
#define PAIRS_OF_F64_MUL_RB_TO(X) \
    X(F64_MUL_RB_TO, I_F64_ADD_RB, do_F64_ADD_RB)       \
    X(F64_MUL_RB_TO, I_F64_SUB_RC_TO, do_F64_SUB_RC_TO) \
    X(F64_MUL_RB_TO, I_F64_ADD_RB_TO, do_F64_ADD_RB_TO)
#define PAIRS_OF_F64_ADD_RB(X) \
    X(F64_ADD_RB, I_F64_LOAD_PLUS_RB, do_F64_LOAD_PLUS_RB)                                  \
    X(F64_ADD_RB, I_I32_ADD_K, do_I32_ADD_K) X(F64_ADD_RB, I_F64_STORE_RA, do_F64_STORE_RA) \
    X(F64_ADD_RB, OP_F64_SQRT, do_F64_SQRT)                                                 \
    X(F64_ADD_RB, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO)                                  \
    X(F64_ADD_RB, I_CONST_F64_TO, do_CONST_F64_TO)
#define PAIRS_OF_I32_STORE_RB(X) \
    X(I32_STORE_RB, I_BR_ALWAYS, do_BR_ALWAYS)                                              \
    X(I32_STORE_RB, I_I32_STORE8_PLUS, do_I32_STORE8_PLUS) X(I32_STORE_RB, I_MOV, do_MOV)   \
    X(I32_STORE_RB, OP_I32_LOAD8_U, do_I32_LOAD8_U)                                         \
    X(I32_STORE_RB, I_I32_LOAD8_U_TO, do_I32_LOAD8_U_TO)                                    \
    X(I32_STORE_RB, I_CONST32_TO, do_CONST32_TO) X(I32_STORE_RB, I_I32_ADD_K, do_I32_ADD_K) \
    X(I32_STORE_RB, I_CONST32, do_CONST32) X(I32_STORE_RB, I_RET0, do_RET0)                 \
    X(I32_STORE_RB, I_CONST_F64_TO, do_CONST_F64_TO)
#define PAIRS_OF_I32_XOR_RB(X) \
    X(I32_XOR_RB, I_I32_SHR_U_K_RB_TO, do_I32_SHR_U_K_RB_TO)                                    \
    X(I32_XOR_RB, I_I32_SHL_K_RB_TO, do_I32_SHL_K_RB_TO)                                        \
    X(I32_XOR_RB, I_I32_STORE8_RB, do_I32_STORE8_RB) X(I32_XOR_RB, I_CONST32_TO, do_CONST32_TO) \
    X(I32_XOR_RB, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)                                            \
    X(I32_XOR_RB, I_I32_SHR_U_K_TO, do_I32_SHR_U_K_TO)                                          \
    X(I32_XOR_RB, I_I32_ROTL_K, do_I32_ROTL_K) X(I32_XOR_RB, I_I32_STORE_RB, do_I32_STORE_RB)
#define PAIRS_OF_I32_LOAD(X) \
    X(I32_LOAD, I_I32_ADD_K, do_I32_ADD_K) X(I32_LOAD, I_CONST32_TO, do_CONST32_TO)             \
    X(I32_LOAD, OP_I32_LOAD, do_I32_LOAD) X(I32_LOAD, I_BR_I32_LE_U_RA, br_I32_LE_U_RA)         \
    X(I32_LOAD, I_I32_LOAD_TO, do_I32_LOAD_TO) X(I32_LOAD, I_I32_LOAD8_U_TO, do_I32_LOAD8_U_TO) \
    X(I32_LOAD, I_MOV, do_MOV) X(I32_LOAD, OP_I32_LOAD8_U, do_I32_LOAD8_U)                      \
    X(I32_LOAD, I_I32_SHL_K_TO, do_I32_SHL_K_TO) X(I32_LOAD, I_I32_ADD_K_RB, do_I32_ADD_K_RB)   \
    X(I32_LOAD, I_I32_MUL_K_RB_TO, do_I32_MUL_K_RB_TO)
#define PAIRS_OF_I32_ADD_RB_TO(X) \
    X(I32_ADD_RB_TO, I_RET1_RA, do_RET1_RA) X(I32_ADD_RB_TO, I_I32_ADD_RB, do_I32_ADD_RB) \
    X(I32_ADD_RB_TO, I_I32_LOAD_PLUS_RB_TO, do_I32_LOAD_PLUS_RB_TO)                       \
    X(I32_ADD_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)                                     \
    X(I32_ADD_RB_TO, I_I32_ADD_K_RB, do_I32_ADD_K_RB)                                     \
    X(I32_ADD_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)                                   \
    X(I32_ADD_RB_TO, I_I32_STORE_RA, do_I32_STORE_RA)
#define PAIRS_OF_I32_LOAD_TO(X) \
    X(I32_LOAD_TO, I_SWITCH_RA, do_SWITCH_RA)                                                   \
    X(I32_LOAD_TO, I_I32_SHL_K_RB_TO, do_I32_SHL_K_RB_TO)                                       \
    X(I32_LOAD_TO, I_I32_XOR_RB, do_I32_XOR_RB) X(I32_LOAD_TO, I_I32_STORE_RB, do_I32_STORE_RB) \
    X(I32_LOAD_TO, I_I32_MUL_K_RB_TO, do_I32_MUL_K_RB_TO)                                       \
    X(I32_LOAD_TO, I_I32_LOAD_RB, do_I32_LOAD_RB)
#define PAIRS_OF_F64_LOAD_PLUS_TO(X) \
    X(F64_LOAD_PLUS_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO) \
    X(F64_LOAD_PLUS_TO, I_F64_SUB_RC, do_F64_SUB_RC)
#define PAIRS_OF_I32_SHL_K_RB_TO(X) \
    X(I32_SHL_K_RB_TO, I_I32_LOAD_PLUS_RB, do_I32_LOAD_PLUS_RB) \
    X(I32_SHL_K_RB_TO, I_I32_XOR_RB, do_I32_XOR_RB)             \
    X(I32_SHL_K_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)       \
    X(I32_SHL_K_RB_TO, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define PAIRS_OF_I32_ADD_RB(X) \
    X(I32_ADD_RB, I_I32_SHL_K_TO, do_I32_SHL_K_TO) X(I32_ADD_RB, I_MOV, do_MOV)               \
    X(I32_ADD_RB, I_I32_ADD_K, do_I32_ADD_K) X(I32_ADD_RB, OP_I32_ADD, do_I32_ADD)            \
    X(I32_ADD_RB, I_I32_XOR_TO, do_I32_XOR_TO) X(I32_ADD_RB, I_I32_XOR_K_TO, do_I32_XOR_K_TO) \
    X(I32_ADD_RB, I_I32_ADD_K_RB, do_I32_ADD_K_RB) X(I32_ADD_RB, I_CONST32_TO, do_CONST32_TO) \
    X(I32_ADD_RB, I_I32_LOAD8_U_RB_TO, do_I32_LOAD8_U_RB_TO)                                  \
    X(I32_ADD_RB, OP_I32_LOAD, do_I32_LOAD)
#define PAIRS_OF_I32_ADD_TO(X) \
    X(I32_ADD_TO, I_RET1_RA, do_RET1_RA)
#define PAIRS_OF_I32_STORE8_PLUS_RB(X) \
    X(I32_STORE8_PLUS_RB, OP_I32_ADD, do_I32_ADD)      \
    X(I32_STORE8_PLUS_RB, I_I32_ADD_K, do_I32_ADD_K)   \
    X(I32_STORE8_PLUS_RB, I_CONST32_TO, do_CONST32_TO)
#define PAIRS_OF_I32_LOAD8_U(X) \
    X(I32_LOAD8_U, I_I32_ADD_K_RB_TO, do_I32_ADD_K_RB_TO)                                     \
    X(I32_LOAD8_U, I_BR_I32_NE_K_RA, br_I32_NE_K_RA)                                          \
    X(I32_LOAD8_U, OP_I32_LOAD8_U, do_I32_LOAD8_U)                                            \
    X(I32_LOAD8_U, OP_I32_EXTEND8_S, do_I32_EXTEND8_S)                                        \
    X(I32_LOAD8_U, I_BR_I32_NE_RA, br_I32_NE_RA) X(I32_LOAD8_U, I_I32_ADD_K, do_I32_ADD_K)    \
    X(I32_LOAD8_U, I_SWITCH_RA, do_SWITCH_RA) X(I32_LOAD8_U, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define PAIRS_OF_F64_LOAD_PLUS_RB(X) \
    X(F64_LOAD_PLUS_RB, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO)
#define PAIRS_OF_I32_SHL_K_TO(X) \
    X(I32_SHL_K_TO, I_I32_ADD_RB, do_I32_ADD_RB) X(I32_SHL_K_TO, I_I32_XOR_RB, do_I32_XOR_RB) \
    X(I32_SHL_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)                                        \
    X(I32_SHL_K_TO, I_I32_LOAD_SUM_RB, do_I32_LOAD_SUM_RB)
#define PAIRS_OF_I32_XOR_RB_TO(X) \
    X(I32_XOR_RB_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)                                     \
    X(I32_XOR_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) X(I32_XOR_RB_TO, I_RET1_RA, do_RET1_RA)
#define PAIRS_OF_I32_AND_K_RB_TO(X) \
    X(I32_AND_K_RB_TO, I_I32_SHL_K_RB_TO, do_I32_SHL_K_RB_TO) \
    X(I32_AND_K_RB_TO, I_BR_FALSE_RA, do_BR_FALSE_RA)         \
    X(I32_AND_K_RB_TO, I_BR_I32_LT_U_K_RA, br_I32_LT_U_K_RA)
#define PAIRS_OF_I32_LOAD_RB(X) \
    X(I32_LOAD_RB, I_BR_I32_LT_U_RA, br_I32_LT_U_RA) X(I32_LOAD_RB, I_MOV, do_MOV)   \
    X(I32_LOAD_RB, OP_I32_LT_S, do_I32_LT_S) X(I32_LOAD_RB, I_I32_EQ_K, do_I32_EQ_K) \
    X(I32_LOAD_RB, OP_I32_REM_S, do_I32_REM_S)
#define PAIRS_OF_I32_ADD_K_TO(X) \
    X(I32_ADD_K_TO, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_ADD_K_TO, I_SWITCH_RA, do_SWITCH_RA) \
    X(I32_ADD_K_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)
#define PAIRS_OF_I32_XOR_TO(X) \
    X(I32_XOR_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)                                        \
    X(I32_XOR_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) X(I32_XOR_TO, I_I32_AND_RB, do_I32_AND_RB) \
    X(I32_XOR_TO, I_I32_ADD_RB, do_I32_ADD_RB)
#define PAIRS_OF_I32_ADD_K_RB(X) \
    X(I32_ADD_K_RB, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_ADD_K_RB, I_I32_ADD_K, do_I32_ADD_K) \
    X(I32_ADD_K_RB, I_GLOBAL_SET1, do_GLOBAL_SET1)                                              \
    X(I32_ADD_K_RB, I_BR_I32_GT_U_K_RA, br_I32_GT_U_K_RA)                                       \
    X(I32_ADD_K_RB, OP_F64_CONVERT_I32_S, do_F64_CONVERT_I32_S)                                 \
    X(I32_ADD_K_RB, I_BR_I32_GT_U_K, br_I32_GT_U_K) X(I32_ADD_K_RB, I_BR_ALWAYS, do_BR_ALWAYS)
#define PAIRS_OF_I32_LOAD_PLUS_RB(X) \
    X(I32_LOAD_PLUS_RB, I_MOV, do_MOV) X(I32_LOAD_PLUS_RB, I_I32_LOAD_PLUS, do_I32_LOAD_PLUS)
#define PAIRS_OF_I32_ROTL_K_TO(X) \
    X(I32_ROTL_K_TO, I_I32_XOR_RB, do_I32_XOR_RB)       \
    X(I32_ROTL_K_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO) \
    X(I32_ROTL_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)
#define PAIRS_OF_CONST32(X) \
    X(CONST32, I_MOV, do_MOV) X(CONST32, I_BR_ALWAYS, do_BR_ALWAYS)           \
    X(CONST32, I_CONST32, do_CONST32) X(CONST32, I_CONST32_TO, do_CONST32_TO) \
    X(CONST32, I_SELECT1, do_SELECT1)
#define PAIRS_OF_F64_MUL_TO(X) \
    X(F64_MUL_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO) X(F64_MUL_TO, I_F64_MUL_RB, do_F64_MUL_RB)
#define PAIRS_OF_I32_AND_K_TO(X) \
    X(I32_AND_K_TO, I_BR_TRUE_RA, do_BR_TRUE_RA)           \
    X(I32_AND_K_TO, I_I32_SHR_U_RC_TO, do_I32_SHR_U_RC_TO) \
    X(I32_AND_K_TO, I_BR_FALSE_RA, do_BR_FALSE_RA)
#define PAIRS_OF_F64_MUL_RB(X) \
    X(F64_MUL_RB, I_F64_LOAD_RB_TO, do_F64_LOAD_RB_TO)                                   \
    X(F64_MUL_RB, I_CONST_F64_TO, do_CONST_F64_TO) X(F64_MUL_RB, OP_F64_MUL, do_F64_MUL) \
    X(F64_MUL_RB, I_I32_LOAD8_S_TO, do_I32_LOAD8_S_TO)
#define PAIRS_OF_CONST_F64_TO(X) \
    X(CONST_F64_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)                                        \
    X(CONST_F64_TO, I_F64_ADD_RB, do_F64_ADD_RB) X(CONST_F64_TO, I_F64_DIV_RB, do_F64_DIV_RB) \
    X(CONST_F64_TO, I_F64_MUL_RB, do_F64_MUL_RB)
#define PAIRS_OF_I32_ADD_K_RB_TO(X) \
    X(I32_ADD_K_RB_TO, I_SWITCH_RA, do_SWITCH_RA)             \
    X(I32_ADD_K_RB_TO, I_BR_I32_GT_S_K_RA, br_I32_GT_S_K_RA)  \
    X(I32_ADD_K_RB_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO) \
    X(I32_ADD_K_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)
#define PAIRS_OF_F64_LOAD_RB(X) \
    X(F64_LOAD_RB, I_F64_LOAD_TO, do_F64_LOAD_TO) X(F64_LOAD_RB, I_F64_MUL_TO, do_F64_MUL_TO)
#define PAIRS_OF_F64_LOAD(X) \
    X(F64_LOAD, I_F64_MUL_TO, do_F64_MUL_TO) X(F64_LOAD, I_F64_MUL_RB, do_F64_MUL_RB) \
    X(F64_LOAD, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO)
#define PAIRS_OF_I32_LOAD8_U_TO(X) \
    X(I32_LOAD8_U_TO, I_BR_I32_NE_K_RA, br_I32_NE_K_RA)      \
    X(I32_LOAD8_U_TO, I_BR_I32_EQ_K_RA, br_I32_EQ_K_RA)      \
    X(I32_LOAD8_U_TO, I_I32_ADD_K_RB_TO, do_I32_ADD_K_RB_TO) \
    X(I32_LOAD8_U_TO, I_BR_FALSE_RA, do_BR_FALSE_RA)         \
    X(I32_LOAD8_U_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)
#define PAIRS_OF_I32_LOAD8_U_PLUS(X) \
    X(I32_LOAD8_U_PLUS, I_BR_ALWAYS, do_BR_ALWAYS)
#define PAIRS_OF_F64_LOAD_TO(X) \
    X(F64_LOAD_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)
#define PAIRS_OF_I32_SHR_U_K_RB_TO(X) \
    X(I32_SHR_U_K_RB_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define PAIRS_OF_I32_LOAD8_U_RB_TO(X) \
    X(I32_LOAD8_U_RB_TO, I_BR_I32_NE_K_RA, br_I32_NE_K_RA) \
    X(I32_LOAD8_U_RB_TO, I_BR_I32_EQ_K_RA, br_I32_EQ_K_RA) \
    X(I32_LOAD8_U_RB_TO, I_I32_SHL_K_RB, do_I32_SHL_K_RB)
#define PAIRS_OF_F64_STORE_RA(X) \
    X(F64_STORE_RA, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_I32_AND(X) \
    X(I32_AND, I_I32_XOR_TO, do_I32_XOR_TO) X(I32_AND, I_I32_ROTL_K, do_I32_ROTL_K)
#define PAIRS_OF_F64_STORE_RB(X) \
    X(F64_STORE_RB, OP_F64_LOAD, do_F64_LOAD) X(F64_STORE_RB, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_F64_LOAD_AT(X) \
    X(F64_LOAD_AT, I_F64_LOAD_AT, do_F64_LOAD_AT)   \
    X(F64_LOAD_AT, I_CONST_F64_TO, do_CONST_F64_TO)
#define PAIRS_OF_F64_SUB_RC(X) \
    X(F64_SUB_RC, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO) X(F64_SUB_RC, OP_F64_LOAD, do_F64_LOAD)
#define PAIRS_OF_F64_SUB_RC_TO(X) \
    X(F64_SUB_RC_TO, I_F64_STORE_RB, do_F64_STORE_RB)
#define PAIRS_OF_I32_EXTEND8_S(X) \
    X(I32_EXTEND8_S, I_MOV, do_MOV) X(I32_EXTEND8_S, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_I32_STORE8_RB(X) \
    X(I32_STORE8_RB, I_I32_ADD_K, do_I32_ADD_K) X(I32_STORE8_RB, I_CONST32_TO, do_CONST32_TO)
#define PAIRS_OF_I32_STORE8_PLUS(X) \
    X(I32_STORE8_PLUS, I_RET0, do_RET0) X(I32_STORE8_PLUS, I_MOV, do_MOV)
#define PAIRS_OF_I32_MUL_RB_TO(X) \
    X(I32_MUL_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)   \
    X(I32_MUL_RB_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)
#define PAIRS_OF_I32_LOAD_PLUS_RB_TO(X) \
    X(I32_LOAD_PLUS_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)
#define PAIRS_OF_I32_STORE_PLUS(X) \
    X(I32_STORE_PLUS, I_MOV, do_MOV) X(I32_STORE_PLUS, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_I32_STORE(X) \
    X(I32_STORE, I_I32_STORE_PLUS, do_I32_STORE_PLUS)                                       \
    X(I32_STORE, I_I32_LOAD8_S_PLUS_TO, do_I32_LOAD8_S_PLUS_TO) X(I32_STORE, I_MOV, do_MOV)
#define PAIRS_OF_I32_LOAD_RB_TO(X) \
    X(I32_LOAD_RB_TO, I_BR_FALSE_RA, do_BR_FALSE_RA)     \
    X(I32_LOAD_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)   \
    X(I32_LOAD_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_LOAD_RB_TO, I_I32_MUL_RB_TO, do_I32_MUL_RB_TO)
#define PAIRS_OF_F64_LOAD_RB_TO(X) \
    X(F64_LOAD_RB_TO, I_F64_ADD_RB, do_F64_ADD_RB)
#define PAIRS_OF_I32_MUL_K_TO(X) \
    X(I32_MUL_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_MUL_K_TO, I_I32_ADD_RB, do_I32_ADD_RB)
#define PAIRS_OF_I32_LOAD_PLUS(X) \
    X(I32_LOAD_PLUS, I_I32_ROTL_K_RB, do_I32_ROTL_K_RB) X(I32_LOAD_PLUS, OP_I32_AND, do_I32_AND)
#define PAIRS_OF_F64_LOAD_PLUS(X) \
    X(F64_LOAD_PLUS, I_F64_LOAD_PLUS, do_F64_LOAD_PLUS) X(F64_LOAD_PLUS, I_MOV, do_MOV)
#define PAIRS_OF_I32_ROTL_K(X) \
    X(I32_ROTL_K, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)
#define PAIRS_OF_F64_ADD_RB_TO(X) \
    X(F64_ADD_RB_TO, I_F64_STORE_AT_RB, do_F64_STORE_AT_RB)
#define PAIRS_OF_F64_STORE_AT_RB(X) \
    X(F64_STORE_AT_RB, I_F64_LOAD_AT, do_F64_LOAD_AT)
#define PAIRS_OF_I32_XOR_K_TO(X) \
    X(I32_XOR_K_TO, I_I32_AND_RB_TO, do_I32_AND_RB_TO) \
    X(I32_XOR_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)
#define PAIRS_OF_I32_AND_RB_TO(X) \
    X(I32_AND_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_AND_RB_TO, I_BR_I32_EQ_K_RA, br_I32_EQ_K_RA)
#define PAIRS_OF_I32_SHR_U_K_TO(X) \
    X(I32_SHR_U_K_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)
#define PAIRS_OF_I32_ROTL_K_RB(X) \
    X(I32_ROTL_K_RB, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)
#define PAIRS_OF_I32_LOAD8_U_PLUS_TO(X) \
    X(I32_LOAD8_U_PLUS_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)       \
    X(I32_LOAD8_U_PLUS_TO, I_I32_STORE8_PLUS_RB, do_I32_STORE8_PLUS_RB)
#define PAIRS_OF_F64_MUL(X) \
    X(F64_MUL, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO)
#define PAIRS_OF_F64_DIV_RB(X) \
    X(F64_DIV_RB, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)
#define PAIRS_OF_I32_MUL_K(X) \
    X(I32_MUL_K, I_I32_ADD_K, do_I32_ADD_K) X(I32_MUL_K, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define PAIRS_OF_I32_SHR_U_RC_TO(X) \
    X(I32_SHR_U_RC_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)
#define PAIRS_OF_GLOBAL_GET1(X) \
    X(GLOBAL_GET1, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define PAIRS_OF_I64_ADD_K(X) \
    X(I64_ADD_K, OP_I32_LOAD8_U, do_I32_LOAD8_U)
#define PAIRS_OF_I32_AND_TO(X) \
    X(I32_AND_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define PAIRS_OF_I32_AND_RB(X) \
    X(I32_AND_RB, I_I32_AND_TO, do_I32_AND_TO)
#define PAIRS_OF_I32_LOAD_SUM(X) \
    X(I32_LOAD_SUM, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_I32_LOAD8_S(X) \
    X(I32_LOAD8_S, I_I32_AND_K_RB, do_I32_AND_K_RB)
#define PAIRS_OF_I32_MUL_K_RB_TO(X) \
    X(I32_MUL_K_RB_TO, I_I32_ADD_RB, do_I32_ADD_RB)
#define PAIRS_OF_GLOBAL_SET1(X) \
    X(GLOBAL_SET1, I_RET1, do_RET1)
#define PAIRS_OF_I32_AND_K(X) \
    X(I32_AND_K, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)
#define PAIRS_OF_I32_SHR_U_K_RB(X) \
    X(I32_SHR_U_K_RB, I_MOV, do_MOV)
#define PAIRS_OF_I32_SHL_K(X) \
    X(I32_SHL_K, I_CONST32_TO, do_CONST32_TO)
#define PAIRS_OF_I32_SHL_RB(X) \
    X(I32_SHL_RB, I_CONST32_TO, do_CONST32_TO)
#define PAIRS_OF_I32_LOAD8_S_TO(X) \
    X(I32_LOAD8_S_TO, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define PAIRS_OF_F64_ADD(X) \
    X(F64_ADD, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_I32_MUL_RB(X) \
    X(I32_MUL_RB, I_I32_STORE_RB, do_I32_STORE_RB)
#define PAIRS_OF_I32_LOAD8_S_PLUS_TO(X) \
    X(I32_LOAD8_S_PLUS_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define PAIRS_OF_I32_LOAD_SUM_RB(X) \
    X(I32_LOAD_SUM_RB, I_MOV, do_MOV)
#define PAIRS_OF_I32_STORE_RA(X) \
    X(I32_STORE_RA, I_I32_ADD_K, do_I32_ADD_K)
#define PAIRS_OF_I32_LOAD16_U(X) \
    X(I32_LOAD16_U, OP_I32_LOAD, do_I32_LOAD)
#define PAIRS_OF_I32_OR_K_RB_TO(X) \
    X(I32_OR_K_RB_TO, I_I32_STORE8_RB, do_I32_STORE8_RB)
/* clang-format on */

enum {
#define X(number, first, words) PAIR_FIRST_##first,
    PAIR_FIRSTS(X)
#undef X
        N_PAIR_FIRSTS
};

enum {
#define X(number, first, words) PAIR_WORDS_##first = (words),
    PAIR_FIRSTS(X)
#undef X
};

/* Pairs are numbered after all plain instructions. */
enum {
    I_PAIRS = IOP_COUNT,
    I_BEFORE_PAIRS_ = IOP_COUNT - 1,
#define X(first, number, label) I_PAIR_##first##_##label,
#define ROW(number, first, words) PAIRS_OF_##first(X)
    PAIR_FIRSTS(ROW)
#undef ROW
#undef X
        PAIRS_END
};
