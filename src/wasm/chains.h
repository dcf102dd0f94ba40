/*
 * Chains: several instructions with one dispatch, because the indirect jump is the main cost of a
 * threaded interpreter.
 *
 * If an instruction is followed by one that it makes a chain with, its word gets the number of the
 * chain. All other words stay the same, so marks and traps work as without chains. A chain runs its
 * first instructions and jumps directly to the last one. A chain ends where a fuel block starts, so
 * that a branch finds a chain there. Chains of two are listed here. They are the first parts of
 * longer ones, which are in chains_long.h.
 *
 * The lists come from counting successive instructions in bench/cell, each kernel with the same
 * weight, SQLite with three times that. Each chain costs compile time, so rare ones are left out.
 */
#pragma once

#include "wasm/chains_long.h"
#include "wasm/iops.h"

/* clang-format off */
/* First parts of chains: X(number, name of the body, words of the last instruction). */
#define CHAIN_FIRSTS(X) CHAIN_FIRSTS_SHORT(X) CHAIN_FIRSTS_LONG(X)
#define CHAIN_FIRSTS_SHORT(X) \
    X(I_CONST32, CONST32, 1) X(I_CONST32_TO, CONST32_TO, 1) X(I_CONST_F64_TO, CONST_F64_TO, 2)    \
    X(I_F64_ADD_RB, F64_ADD_RB, 1) X(I_F64_ADD_RB_TO, F64_ADD_RB_TO, 1)                           \
    X(OP_F64_CONVERT_I32_S, F64_CONVERT_I32_S, 1) X(OP_F64_LOAD, F64_LOAD, 1)                     \
    X(I_F64_LOAD_AT, F64_LOAD_AT, 2) X(I_F64_LOAD_PLUS, F64_LOAD_PLUS, 2)                         \
    X(I_F64_LOAD_PLUS_RB, F64_LOAD_PLUS_RB, 2) X(I_F64_LOAD_PLUS_TO, F64_LOAD_PLUS_TO, 2)         \
    X(I_F64_LOAD_RB, F64_LOAD_RB, 1) X(I_F64_LOAD_RB_TO, F64_LOAD_RB_TO, 1)                       \
    X(I_F64_LOAD_TO, F64_LOAD_TO, 1) X(OP_F64_MUL, F64_MUL, 1) X(I_F64_MUL_RB, F64_MUL_RB, 1)     \
    X(I_F64_MUL_RB_TO, F64_MUL_RB_TO, 1) X(I_F64_MUL_TO, F64_MUL_TO, 1)                           \
    X(I_F64_STORE_AT_RB, F64_STORE_AT_RB, 2) X(I_F64_STORE_RA, F64_STORE_RA, 1)                   \
    X(I_F64_STORE_RB, F64_STORE_RB, 1) X(I_F64_SUB_RC, F64_SUB_RC, 1)                             \
    X(I_F64_SUB_RC_TO, F64_SUB_RC_TO, 1) X(I_GLOBAL_GET1, GLOBAL_GET1, 1)                         \
    X(I_GLOBAL_SET1, GLOBAL_SET1, 1) X(OP_I32_ADD, I32_ADD, 1) X(I_I32_ADD_K, I32_ADD_K, 1)       \
    X(I_I32_ADD_K_RB, I32_ADD_K_RB, 1) X(I_I32_ADD_K_RB_TO, I32_ADD_K_RB_TO, 1)                   \
    X(I_I32_ADD_K_TO, I32_ADD_K_TO, 1) X(I_I32_ADD_RB, I32_ADD_RB, 1)                             \
    X(I_I32_ADD_RB_TO, I32_ADD_RB_TO, 1) X(I_I32_ADD_TO, I32_ADD_TO, 1) X(OP_I32_AND, I32_AND, 1) \
    X(I_I32_AND_K, I32_AND_K, 1) X(I_I32_AND_K_RB_TO, I32_AND_K_RB_TO, 1)                         \
    X(I_I32_AND_K_TO, I32_AND_K_TO, 1) X(I_I32_AND_RB, I32_AND_RB, 1)                             \
    X(I_I32_AND_RB_TO, I32_AND_RB_TO, 1) X(I_I32_AND_TO, I32_AND_TO, 1)                           \
    X(OP_I32_EXTEND8_S, I32_EXTEND8_S, 1) X(OP_I32_LOAD, I32_LOAD, 1)                             \
    X(OP_I32_LOAD16_U, I32_LOAD16_U, 1) X(OP_I32_LOAD8_S, I32_LOAD8_S, 1)                         \
    X(I_I32_LOAD8_S_TO, I32_LOAD8_S_TO, 1) X(OP_I32_LOAD8_U, I32_LOAD8_U, 1)                      \
    X(I_I32_LOAD8_U_PLUS, I32_LOAD8_U_PLUS, 2) X(I_I32_LOAD8_U_PLUS_TO, I32_LOAD8_U_PLUS_TO, 2)   \
    X(I_I32_LOAD8_U_RB_TO, I32_LOAD8_U_RB_TO, 1) X(I_I32_LOAD8_U_TO, I32_LOAD8_U_TO, 1)           \
    X(I_I32_LOAD_PLUS, I32_LOAD_PLUS, 2) X(I_I32_LOAD_PLUS_RB, I32_LOAD_PLUS_RB, 2)               \
    X(I_I32_LOAD_PLUS_RB_TO, I32_LOAD_PLUS_RB_TO, 2) X(I_I32_LOAD_RB, I32_LOAD_RB, 1)             \
    X(I_I32_LOAD_SUM, I32_LOAD_SUM, 2) X(I_I32_LOAD_TO, I32_LOAD_TO, 1)                           \
    X(I_I32_MUL_K, I32_MUL_K, 1) X(I_I32_MUL_K_RB_TO, I32_MUL_K_RB_TO, 1)                         \
    X(I_I32_MUL_K_TO, I32_MUL_K_TO, 1) X(I_I32_MUL_RB_TO, I32_MUL_RB_TO, 1)                       \
    X(I_I32_ROTL_K, I32_ROTL_K, 1) X(I_I32_ROTL_K_RB, I32_ROTL_K_RB, 1)                           \
    X(I_I32_ROTL_K_TO, I32_ROTL_K_TO, 1) X(I_I32_SHL_K_RB_TO, I32_SHL_K_RB_TO, 1)                 \
    X(I_I32_SHL_K_TO, I32_SHL_K_TO, 1) X(I_I32_SHR_U_K_RB, I32_SHR_U_K_RB, 1)                     \
    X(I_I32_SHR_U_K_RB_TO, I32_SHR_U_K_RB_TO, 1) X(I_I32_SHR_U_K_TO, I32_SHR_U_K_TO, 1)           \
    X(I_I32_SHR_U_RC_TO, I32_SHR_U_RC_TO, 1) X(OP_I32_STORE, I32_STORE, 1)                        \
    X(I_I32_STORE8_PLUS, I32_STORE8_PLUS, 2) X(I_I32_STORE8_RB, I32_STORE8_RB, 1)                 \
    X(I_I32_STORE_PLUS, I32_STORE_PLUS, 2) X(I_I32_STORE_RB, I32_STORE_RB, 1)                     \
    X(I_I32_XOR_K_TO, I32_XOR_K_TO, 1) X(I_I32_XOR_RB, I32_XOR_RB, 1)                             \
    X(I_I32_XOR_RB_TO, I32_XOR_RB_TO, 1) X(I_I32_XOR_TO, I32_XOR_TO, 1)                           \
    X(I_I64_ADD_K, I64_ADD_K, 1) X(I_MOV, MOV, 1)

/* X(first part, number of the last instruction, its label in interp.c) */
#define CHAINS_OF_CONST32(X) \
    X(CONST32, I_BR_ALWAYS, do_BR_ALWAYS) X(CONST32, I_CONST32, do_CONST32) \
    X(CONST32, I_CONST32_TO, do_CONST32_TO) X(CONST32, I_MOV, do_MOV)
#define CHAINS_OF_CONST32_TO(X) \
    X(CONST32_TO, I_BR_I32_GT_U_RA, br_I32_GT_U_RA)                                             \
    X(CONST32_TO, I_BR_I32_LT_U_RA, br_I32_LT_U_RA) X(CONST32_TO, I_I32_ADD_RB, do_I32_ADD_RB)  \
    X(CONST32_TO, I_I32_AND_RB, do_I32_AND_RB) X(CONST32_TO, I_I32_AND_RB_TO, do_I32_AND_RB_TO) \
    X(CONST32_TO, I_I32_MUL_RB_TO, do_I32_MUL_RB_TO) X(CONST32_TO, I_I32_SHL_RB, do_I32_SHL_RB) \
    X(CONST32_TO, I_I32_STORE16_RB, do_I32_STORE16_RB)                                          \
    X(CONST32_TO, I_I32_STORE8_PLUS_RB, do_I32_STORE8_PLUS_RB)                                  \
    X(CONST32_TO, I_I32_STORE8_RB, do_I32_STORE8_RB)                                            \
    X(CONST32_TO, I_I32_STORE_RB, do_I32_STORE_RB)
#define CHAINS_OF_CONST_F64_TO(X) \
    X(CONST_F64_TO, I_F64_ADD_RB, do_F64_ADD_RB) X(CONST_F64_TO, I_F64_MUL_RB, do_F64_MUL_RB) \
    X(CONST_F64_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)
#define CHAINS_OF_F64_ADD_RB(X) \
    X(F64_ADD_RB, I_CONST_F64_TO, do_CONST_F64_TO)                                                 \
    X(F64_ADD_RB, I_F64_LOAD_PLUS_RB, do_F64_LOAD_PLUS_RB)                                         \
    X(F64_ADD_RB, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO) X(F64_ADD_RB, OP_F64_SQRT, do_F64_SQRT) \
    X(F64_ADD_RB, I_F64_STORE_RA, do_F64_STORE_RA) X(F64_ADD_RB, I_I32_ADD_K, do_I32_ADD_K)
#define CHAINS_OF_F64_ADD_RB_TO(X) X(F64_ADD_RB_TO, I_F64_STORE_AT_RB, do_F64_STORE_AT_RB)
#define CHAINS_OF_F64_CONVERT_I32_S(X) X(F64_CONVERT_I32_S, OP_F64_ADD, do_F64_ADD)
#define CHAINS_OF_F64_LOAD(X) \
    X(F64_LOAD, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO) X(F64_LOAD, I_F64_MUL_RB, do_F64_MUL_RB) \
    X(F64_LOAD, I_F64_MUL_TO, do_F64_MUL_TO)
#define CHAINS_OF_F64_LOAD_AT(X) \
    X(F64_LOAD_AT, I_CONST_F64_TO, do_CONST_F64_TO) X(F64_LOAD_AT, I_F64_LOAD_AT, do_F64_LOAD_AT)
#define CHAINS_OF_F64_LOAD_PLUS(X) X(F64_LOAD_PLUS, I_F64_LOAD_PLUS, do_F64_LOAD_PLUS)
#define CHAINS_OF_F64_LOAD_PLUS_RB(X) X(F64_LOAD_PLUS_RB, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO)
#define CHAINS_OF_F64_LOAD_PLUS_TO(X) \
    X(F64_LOAD_PLUS_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO) \
    X(F64_LOAD_PLUS_TO, I_F64_SUB_RC, do_F64_SUB_RC)
#define CHAINS_OF_F64_LOAD_RB(X) \
    X(F64_LOAD_RB, I_F64_LOAD_TO, do_F64_LOAD_TO) X(F64_LOAD_RB, I_F64_MUL_TO, do_F64_MUL_TO)
#define CHAINS_OF_F64_LOAD_RB_TO(X) X(F64_LOAD_RB_TO, I_F64_ADD_RB, do_F64_ADD_RB)
#define CHAINS_OF_F64_LOAD_TO(X) X(F64_LOAD_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)
#define CHAINS_OF_F64_MUL(X) X(F64_MUL, I_F64_LOAD_PLUS_TO, do_F64_LOAD_PLUS_TO)
#define CHAINS_OF_F64_MUL_RB(X) \
    X(F64_MUL_RB, I_CONST_F64_TO, do_CONST_F64_TO) \
    X(F64_MUL_RB, I_F64_LOAD_RB_TO, do_F64_LOAD_RB_TO) X(F64_MUL_RB, OP_F64_MUL, do_F64_MUL)
#define CHAINS_OF_F64_MUL_RB_TO(X) \
    X(F64_MUL_RB_TO, I_F64_ADD_RB, do_F64_ADD_RB) \
    X(F64_MUL_RB_TO, I_F64_SUB_RC_TO, do_F64_SUB_RC_TO)
#define CHAINS_OF_F64_MUL_TO(X) \
    X(F64_MUL_TO, I_F64_MUL_RB, do_F64_MUL_RB) X(F64_MUL_TO, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)
#define CHAINS_OF_F64_STORE_AT_RB(X) X(F64_STORE_AT_RB, I_F64_LOAD_AT, do_F64_LOAD_AT)
#define CHAINS_OF_F64_STORE_RA(X) X(F64_STORE_RA, I_I32_ADD_K, do_I32_ADD_K)
#define CHAINS_OF_F64_STORE_RB(X) \
    X(F64_STORE_RB, OP_F64_LOAD, do_F64_LOAD) X(F64_STORE_RB, I_I32_ADD_K, do_I32_ADD_K)
#define CHAINS_OF_F64_SUB_RC(X) \
    X(F64_SUB_RC, OP_F64_LOAD, do_F64_LOAD) X(F64_SUB_RC, I_F64_MUL_RB_TO, do_F64_MUL_RB_TO)
#define CHAINS_OF_F64_SUB_RC_TO(X) X(F64_SUB_RC_TO, I_F64_STORE_RB, do_F64_STORE_RB)
#define CHAINS_OF_GLOBAL_GET1(X) X(GLOBAL_GET1, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define CHAINS_OF_GLOBAL_SET1(X) X(GLOBAL_SET1, I_RET1, do_RET1)
#define CHAINS_OF_I32_ADD(X) \
    X(I32_ADD, I_BR_I32_EQ_K, br_I32_EQ_K) X(I32_ADD, I_CONST32_TO, do_CONST32_TO)  \
    X(I32_ADD, I_F64_LOAD_RB, do_F64_LOAD_RB) X(I32_ADD, I_I32_ADD_K, do_I32_ADD_K) \
    X(I32_ADD, OP_I32_LOAD8_S, do_I32_LOAD8_S)                                      \
    X(I32_ADD, I_I32_LOAD8_U_RB_TO, do_I32_LOAD8_U_RB_TO)                           \
    X(I32_ADD, I_I32_LOAD_PLUS_RB, do_I32_LOAD_PLUS_RB)                             \
    X(I32_ADD, I_I32_SHR_U_K_RB, do_I32_SHR_U_K_RB)
#define CHAINS_OF_I32_ADD_K(X) \
    X(I32_ADD_K, I_BR_ALWAYS, do_BR_ALWAYS) X(I32_ADD_K, I_BR_I32_GT_U, br_I32_GT_U)              \
    X(I32_ADD_K, I_BR_I32_GT_U_K_RA, br_I32_GT_U_K_RA)                                            \
    X(I32_ADD_K, I_BR_I32_LT_S_RA, br_I32_LT_S_RA) X(I32_ADD_K, I_BR_I32_NE_K_RA, br_I32_NE_K_RA) \
    X(I32_ADD_K, I_BR_I32_NE_RA, br_I32_NE_RA) X(I32_ADD_K, I_BR_TRUE, do_BR_TRUE)                \
    X(I32_ADD_K, I_BR_TRUE_RA, do_BR_TRUE_RA) X(I32_ADD_K, I_CALL_FN, do_CALL_FN)                 \
    X(I32_ADD_K, I_CONST32_TO, do_CONST32_TO) X(I32_ADD_K, I_F64_LOAD_RB, do_F64_LOAD_RB)         \
    X(I32_ADD_K, I_F64_MUL_TO, do_F64_MUL_TO) X(I32_ADD_K, I_GLOBAL_SET1, do_GLOBAL_SET1)         \
    X(I32_ADD_K, I_I32_ADD_K, do_I32_ADD_K) X(I32_ADD_K, I_I32_ADD_K_TO, do_I32_ADD_K_TO)         \
    X(I32_ADD_K, OP_I32_LOAD, do_I32_LOAD) X(I32_ADD_K, I_I32_LOAD_PLUS, do_I32_LOAD_PLUS)        \
    X(I32_ADD_K, I_I32_LOAD_RB, do_I32_LOAD_RB) X(I32_ADD_K, I_I32_LOAD_RB_TO, do_I32_LOAD_RB_TO) \
    X(I32_ADD_K, I_I32_LOAD_TO, do_I32_LOAD_TO) X(I32_ADD_K, I_I32_SHL_K_TO, do_I32_SHL_K_TO)     \
    X(I32_ADD_K, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_ADD_K, I_MOV, do_MOV)
#define CHAINS_OF_I32_ADD_K_RB(X) \
    X(I32_ADD_K_RB, I_BR_I32_GT_U_K_RA, br_I32_GT_U_K_RA)                                     \
    X(I32_ADD_K_RB, OP_F64_CONVERT_I32_S, do_F64_CONVERT_I32_S)                               \
    X(I32_ADD_K_RB, I_GLOBAL_SET1, do_GLOBAL_SET1) X(I32_ADD_K_RB, I_I32_ADD_K, do_I32_ADD_K) \
    X(I32_ADD_K_RB, I_I32_STORE_RB, do_I32_STORE_RB)
#define CHAINS_OF_I32_ADD_K_RB_TO(X) \
    X(I32_ADD_K_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB) \
    X(I32_ADD_K_RB_TO, I_SWITCH_RA, do_SWITCH_RA)
#define CHAINS_OF_I32_ADD_K_TO(X) \
    X(I32_ADD_K_TO, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_ADD_K_TO, I_SWITCH_RA, do_SWITCH_RA)
#define CHAINS_OF_I32_ADD_RB(X) \
    X(I32_ADD_RB, OP_I32_ADD, do_I32_ADD) X(I32_ADD_RB, I_I32_ADD_K, do_I32_ADD_K)                \
    X(I32_ADD_RB, I_I32_ADD_K_RB, do_I32_ADD_K_RB) X(I32_ADD_RB, I_I32_SHL_K_TO, do_I32_SHL_K_TO) \
    X(I32_ADD_RB, I_I32_XOR_TO, do_I32_XOR_TO) X(I32_ADD_RB, I_MOV, do_MOV)
#define CHAINS_OF_I32_ADD_RB_TO(X) \
    X(I32_ADD_RB_TO, I_I32_ADD_K_RB, do_I32_ADD_K_RB)   \
    X(I32_ADD_RB_TO, I_I32_ADD_RB, do_I32_ADD_RB)       \
    X(I32_ADD_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_ADD_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_ADD_RB_TO, I_RET1_RA, do_RET1_RA)
#define CHAINS_OF_I32_ADD_TO(X) X(I32_ADD_TO, I_RET1_RA, do_RET1_RA)
#define CHAINS_OF_I32_AND(X) X(I32_AND, I_I32_XOR_TO, do_I32_XOR_TO)
#define CHAINS_OF_I32_AND_K(X) X(I32_AND_K, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)
#define CHAINS_OF_I32_AND_K_RB_TO(X) \
    X(I32_AND_K_RB_TO, I_BR_FALSE_RA, do_BR_FALSE_RA)        \
    X(I32_AND_K_RB_TO, I_BR_I32_LT_U_K_RA, br_I32_LT_U_K_RA) \
    X(I32_AND_K_RB_TO, I_I32_SHL_K_RB_TO, do_I32_SHL_K_RB_TO)
#define CHAINS_OF_I32_AND_K_TO(X) \
    X(I32_AND_K_TO, I_BR_FALSE_RA, do_BR_FALSE_RA) X(I32_AND_K_TO, I_BR_TRUE_RA, do_BR_TRUE_RA) \
    X(I32_AND_K_TO, I_I32_SHR_U_RC_TO, do_I32_SHR_U_RC_TO)
#define CHAINS_OF_I32_AND_RB(X) X(I32_AND_RB, I_I32_AND_TO, do_I32_AND_TO)
#define CHAINS_OF_I32_AND_RB_TO(X) \
    X(I32_AND_RB_TO, I_BR_I32_EQ_K_RA, br_I32_EQ_K_RA) \
    X(I32_AND_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)
#define CHAINS_OF_I32_AND_TO(X) X(I32_AND_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define CHAINS_OF_I32_EXTEND8_S(X) X(I32_EXTEND8_S, I_MOV, do_MOV)
#define CHAINS_OF_I32_LOAD(X) \
    X(I32_LOAD, I_BR_I32_LE_U_RA, br_I32_LE_U_RA) X(I32_LOAD, I_CONST32_TO, do_CONST32_TO)        \
    X(I32_LOAD, OP_I32_LOAD, do_I32_LOAD) X(I32_LOAD, I_I32_LOAD8_U_TO, do_I32_LOAD8_U_TO)        \
    X(I32_LOAD, I_I32_LOAD_TO, do_I32_LOAD_TO) X(I32_LOAD, I_I32_MUL_K_RB_TO, do_I32_MUL_K_RB_TO) \
    X(I32_LOAD, I_I32_SHL_K_TO, do_I32_SHL_K_TO) X(I32_LOAD, I_MOV, do_MOV)
#define CHAINS_OF_I32_LOAD16_U(X) X(I32_LOAD16_U, OP_I32_LOAD, do_I32_LOAD)
#define CHAINS_OF_I32_LOAD8_S(X) X(I32_LOAD8_S, I_I32_AND_K_RB, do_I32_AND_K_RB)
#define CHAINS_OF_I32_LOAD8_S_TO(X) X(I32_LOAD8_S_TO, I_I32_ADD_K_RB, do_I32_ADD_K_RB)
#define CHAINS_OF_I32_LOAD8_U(X) \
    X(I32_LOAD8_U, I_BR_I32_NE_K_RA, br_I32_NE_K_RA)      \
    X(I32_LOAD8_U, I_I32_ADD_K_RB, do_I32_ADD_K_RB)       \
    X(I32_LOAD8_U, I_I32_ADD_K_RB_TO, do_I32_ADD_K_RB_TO) \
    X(I32_LOAD8_U, OP_I32_EXTEND8_S, do_I32_EXTEND8_S)    \
    X(I32_LOAD8_U, OP_I32_LOAD8_U, do_I32_LOAD8_U) X(I32_LOAD8_U, I_SWITCH_RA, do_SWITCH_RA)
#define CHAINS_OF_I32_LOAD8_U_PLUS(X) X(I32_LOAD8_U_PLUS, I_BR_ALWAYS, do_BR_ALWAYS)
#define CHAINS_OF_I32_LOAD8_U_PLUS_TO(X) \
    X(I32_LOAD8_U_PLUS_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)
#define CHAINS_OF_I32_LOAD8_U_RB_TO(X) X(I32_LOAD8_U_RB_TO, I_I32_SHL_K_RB, do_I32_SHL_K_RB)
#define CHAINS_OF_I32_LOAD8_U_TO(X) \
    X(I32_LOAD8_U_TO, I_BR_FALSE_RA, do_BR_FALSE_RA)    \
    X(I32_LOAD8_U_TO, I_BR_I32_EQ_K_RA, br_I32_EQ_K_RA) \
    X(I32_LOAD8_U_TO, I_BR_I32_NE_K_RA, br_I32_NE_K_RA)
#define CHAINS_OF_I32_LOAD_PLUS(X) \
    X(I32_LOAD_PLUS, OP_I32_AND, do_I32_AND) X(I32_LOAD_PLUS, I_I32_ROTL_K_RB, do_I32_ROTL_K_RB)
#define CHAINS_OF_I32_LOAD_PLUS_RB(X) \
    X(I32_LOAD_PLUS_RB, I_I32_LOAD_PLUS, do_I32_LOAD_PLUS) X(I32_LOAD_PLUS_RB, I_MOV, do_MOV)
#define CHAINS_OF_I32_LOAD_PLUS_RB_TO(X) X(I32_LOAD_PLUS_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)
#define CHAINS_OF_I32_LOAD_RB(X) X(I32_LOAD_RB, I_BR_I32_LT_U_RA, br_I32_LT_U_RA)
#define CHAINS_OF_I32_LOAD_SUM(X) X(I32_LOAD_SUM, I_I32_ADD_K, do_I32_ADD_K)
#define CHAINS_OF_I32_LOAD_TO(X) \
    X(I32_LOAD_TO, I_I32_MUL_K_RB_TO, do_I32_MUL_K_RB_TO)                                       \
    X(I32_LOAD_TO, I_I32_SHL_K_RB_TO, do_I32_SHL_K_RB_TO)                                       \
    X(I32_LOAD_TO, I_I32_STORE_RB, do_I32_STORE_RB) X(I32_LOAD_TO, I_I32_XOR_RB, do_I32_XOR_RB) \
    X(I32_LOAD_TO, I_SWITCH_RA, do_SWITCH_RA)
#define CHAINS_OF_I32_MUL_K(X) X(I32_MUL_K, I_I32_ADD_K, do_I32_ADD_K)
#define CHAINS_OF_I32_MUL_K_RB_TO(X) X(I32_MUL_K_RB_TO, I_I32_ADD_RB, do_I32_ADD_RB)
#define CHAINS_OF_I32_MUL_K_TO(X) \
    X(I32_MUL_K_TO, I_I32_ADD_RB, do_I32_ADD_RB) \
    X(I32_MUL_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)
#define CHAINS_OF_I32_MUL_RB_TO(X) X(I32_MUL_RB_TO, I_I32_STORE_RB, do_I32_STORE_RB)
#define CHAINS_OF_I32_ROTL_K(X) X(I32_ROTL_K, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)
#define CHAINS_OF_I32_ROTL_K_RB(X) X(I32_ROTL_K_RB, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)
#define CHAINS_OF_I32_ROTL_K_TO(X) \
    X(I32_ROTL_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_ROTL_K_TO, I_I32_XOR_RB, do_I32_XOR_RB)       \
    X(I32_ROTL_K_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)
#define CHAINS_OF_I32_SHL_K_RB_TO(X) \
    X(I32_SHL_K_RB_TO, I_I32_LOAD_PLUS_RB, do_I32_LOAD_PLUS_RB) \
    X(I32_SHL_K_RB_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define CHAINS_OF_I32_SHL_K_TO(X) \
    X(I32_SHL_K_TO, I_I32_ADD_RB, do_I32_ADD_RB) X(I32_SHL_K_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define CHAINS_OF_I32_SHR_U_K_RB(X) X(I32_SHR_U_K_RB, I_MOV, do_MOV)
#define CHAINS_OF_I32_SHR_U_K_RB_TO(X) X(I32_SHR_U_K_RB_TO, I_I32_XOR_RB, do_I32_XOR_RB)
#define CHAINS_OF_I32_SHR_U_K_TO(X) X(I32_SHR_U_K_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)
#define CHAINS_OF_I32_SHR_U_RC_TO(X) X(I32_SHR_U_RC_TO, I_I32_XOR_RB_TO, do_I32_XOR_RB_TO)
#define CHAINS_OF_I32_STORE(X) X(I32_STORE, I_I32_STORE_PLUS, do_I32_STORE_PLUS)
#define CHAINS_OF_I32_STORE8_PLUS(X) X(I32_STORE8_PLUS, I_RET0, do_RET0)
#define CHAINS_OF_I32_STORE8_RB(X) X(I32_STORE8_RB, I_I32_ADD_K, do_I32_ADD_K)
#define CHAINS_OF_I32_STORE_PLUS(X) X(I32_STORE_PLUS, I_MOV, do_MOV)
#define CHAINS_OF_I32_STORE_RB(X) \
    X(I32_STORE_RB, I_BR_ALWAYS, do_BR_ALWAYS) X(I32_STORE_RB, I_I32_ADD_K, do_I32_ADD_K) \
    X(I32_STORE_RB, OP_I32_LOAD8_U, do_I32_LOAD8_U)                                       \
    X(I32_STORE_RB, I_I32_LOAD8_U_TO, do_I32_LOAD8_U_TO) X(I32_STORE_RB, I_MOV, do_MOV)
#define CHAINS_OF_I32_XOR_K_TO(X) \
    X(I32_XOR_K_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_XOR_K_TO, I_I32_AND_RB_TO, do_I32_AND_RB_TO)
#define CHAINS_OF_I32_XOR_RB(X) \
    X(I32_XOR_RB, I_CONST32_TO, do_CONST32_TO) X(I32_XOR_RB, I_I32_ROTL_K, do_I32_ROTL_K) \
    X(I32_XOR_RB, I_I32_ROTL_K_TO, do_I32_ROTL_K_TO)                                      \
    X(I32_XOR_RB, I_I32_SHL_K_RB_TO, do_I32_SHL_K_RB_TO)                                  \
    X(I32_XOR_RB, I_I32_SHR_U_K_RB_TO, do_I32_SHR_U_K_RB_TO)                              \
    X(I32_XOR_RB, I_I32_SHR_U_K_TO, do_I32_SHR_U_K_TO)
#define CHAINS_OF_I32_XOR_RB_TO(X) \
    X(I32_XOR_RB_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO)     \
    X(I32_XOR_RB_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO) \
    X(I32_XOR_RB_TO, I_RET1_RA, do_RET1_RA)
#define CHAINS_OF_I32_XOR_TO(X) \
    X(I32_XOR_TO, I_I32_ADD_RB, do_I32_ADD_RB) X(I32_XOR_TO, I_I32_ADD_RB_TO, do_I32_ADD_RB_TO) \
    X(I32_XOR_TO, I_I32_AND_K_RB_TO, do_I32_AND_K_RB_TO)                                        \
    X(I32_XOR_TO, I_I32_AND_RB, do_I32_AND_RB)
#define CHAINS_OF_I64_ADD_K(X) X(I64_ADD_K, OP_I32_LOAD8_U, do_I32_LOAD8_U)
#define CHAINS_OF_MOV(X) \
    X(MOV, I_BR_ALWAYS, do_BR_ALWAYS) X(MOV, I_BR_I32_LT_U_RA, br_I32_LT_U_RA) \
    X(MOV, I_CALL_FN, do_CALL_FN) X(MOV, I_CALL_TABLE, do_CALL_TABLE)          \
    X(MOV, I_I32_ADD_K, do_I32_ADD_K) X(MOV, I_I32_ADD_K_RB, do_I32_ADD_K_RB)  \
    X(MOV, OP_I32_LOAD8_U, do_I32_LOAD8_U) X(MOV, I_I64_ADD_K, do_I64_ADD_K) X(MOV, I_MOV, do_MOV)
/* clang-format on */

enum {
#define X(number, first, words) CHAIN_FIRST_##first,
    CHAIN_FIRSTS(X)
#undef X
        N_CHAIN_FIRSTS
};

enum {
#define X(number, first, words) CHAIN_WORDS_##first = (words),
    CHAIN_FIRSTS(X)
#undef X
};

/* Chains are numbered after all plain instructions. I_CHAINS_OF_x: the first one with first part x.
 */
enum {
    I_CHAINS = IOP_COUNT,
    I_BEFORE_CHAINS_ = IOP_COUNT - 1,
#define X(first, number, label) I_CHAIN_##first##_##label,
#define ROW(number, first, words) \
    I_CHAINS_OF_##first, I_BEFORE_##first = I_CHAINS_OF_##first - 1, CHAINS_OF_##first(X)
    CHAIN_FIRSTS(ROW)
#undef ROW
#undef X
        CHAINS_END
};
