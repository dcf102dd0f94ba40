/*
 * The code that the interpreter executes: words of 8 bytes. The first word of an instruction is
 * {op, a, b, c} of 16 bits each; words with immediates follow.
 *
 * a, b, c are slots of the frame unless an op says otherwise. The number of a plain instruction is
 * its row in opcodes.def. The others are below: forms that include a constant, a computed address
 * or a branch, and instructions of the engine. A branch word is {offset in words from that word,
 * cost if taken, cost if not}; docs/reference/cells.md explains the fuel blocks of those costs.
 */
#pragma once

#include "wasm/opcode.h"

/* Tables. */
/* clang-format off */

/* Integer operations that have a form with a 16-bit signed constant as second operand. */
#define ALU_OPS(X)                                                                            \
    X(I32_ADD) X(I32_MUL) X(I32_AND) X(I32_OR) X(I32_XOR) X(I32_SHL) X(I32_SHR_S) X(I32_SHR_U) \
    X(I32_ROTL) X(I32_ROTR)                                                                   \
    X(I64_ADD) X(I64_MUL) X(I64_AND) X(I64_OR) X(I64_XOR) X(I64_SHL) X(I64_SHR_S) X(I64_SHR_U) \
    X(I64_ROTL) X(I64_ROTR)

/* Comparisons, in the order of their encoding, on which em_cmp_map() in emit.c depends. */
#define INT_CMPS(X)                                                                            \
    X(I32_EQ) X(I32_NE) X(I32_LT_S) X(I32_LT_U) X(I32_GT_S) X(I32_GT_U) X(I32_LE_S) X(I32_LE_U) \
    X(I32_GE_S) X(I32_GE_U)                                                                    \
    X(I64_EQ) X(I64_NE) X(I64_LT_S) X(I64_LT_U) X(I64_GT_S) X(I64_GT_U) X(I64_LE_S) X(I64_LE_U) \
    X(I64_GE_S) X(I64_GE_U)

#define FLOAT_CMPS(X)                                                        \
    X(F32_EQ) X(F32_NE) X(F32_LT) X(F32_GT) X(F32_LE) X(F32_GE) X(F64_EQ) \
    X(F64_NE) X(F64_LT) X(F64_GT) X(F64_LE) X(F64_GE)

#define LOAD_OPS(X)                                                                            \
    X(I32_LOAD) X(I64_LOAD) X(F32_LOAD) X(F64_LOAD) X(I32_LOAD8_S) X(I32_LOAD8_U)              \
    X(I32_LOAD16_S) X(I32_LOAD16_U) X(I64_LOAD8_S) X(I64_LOAD8_U) X(I64_LOAD16_S) X(I64_LOAD16_U) \
    X(I64_LOAD32_S) X(I64_LOAD32_U)

#define STORE_OPS(X)                                                                \
    X(I32_STORE) X(I64_STORE) X(F32_STORE) X(F64_STORE) X(I32_STORE8) X(I32_STORE16) \
    X(I64_STORE8) X(I64_STORE16) X(I64_STORE32)

/*
 * Instructions that have forms for the value registers of the interpreter (docs/internals/
 * cell-engine.md, 3). COMMUTING_OPS and ORDERED_OPS differ in what stands for "c is in the register":
 * the first swap their operands.
 */
#define COMMUTING_OPS(X)                                                                        \
    X(I32_ADD) X(I32_MUL) X(I32_AND) X(I32_OR) X(I32_XOR)                                       \
    X(I64_ADD) X(I64_MUL) X(I64_AND) X(I64_OR) X(I64_XOR)
#define ORDERED_OPS(X)                                                                          \
    X(I32_SUB) X(I32_SHL) X(I32_SHR_S) X(I32_SHR_U) X(I32_ROTL) X(I32_ROTR)                     \
    X(I64_SUB) X(I64_SHL) X(I64_SHR_S) X(I64_SHR_U) X(I64_ROTL) X(I64_ROTR)
#define REG_F64_COMMUTING(X) X(F64_ADD) X(F64_MUL)
#define REG_F64_ORDERED(X) X(F64_SUB) X(F64_DIV)
#define REG_INT_LOADS(X) \
    X(I32_LOAD) X(I64_LOAD) X(I32_LOAD8_S) X(I32_LOAD8_U) X(I32_LOAD16_S) X(I32_LOAD16_U)
#define REG_LOADS(X) REG_INT_LOADS(X) X(F64_LOAD)
#define REG_STORES(X) X(I32_STORE) X(I64_STORE) X(I32_STORE8) X(I32_STORE16) X(F64_STORE)

/* Instructions of the engine. Braces stand for the words that follow {op, a, b, c}. */
#define ENGINE_OPS(X)                                                                             \
    X(MOV)        /* a = b */                                                                     \
    X(MOV2)       /* a = b, for a v128 */                                                         \
    X(MOVN)       /* copy c slots from b.. to a.. */                                              \
    X(CONST32)    /* a = b | c << 16 */                                                           \
    X(CONST32_TO)                                                                                 \
    X(CONST64)    /* a = value; {value} */                                                        \
    X(CONST_F64)  /* a = double; {value} */                                                       \
    X(CONST_F64_TO)                                                                               \
    X(CONST128)   /* a = v128; {low}{high} */                                                     \
    X(SELECT1)    /* a = d ? b : c; {d} */                                                        \
    X(SELECT2)                                                                                    \
    X(BR_ALWAYS)  /* jump; {branch} */                                                            \
    X(BR_TRUE)    /* jump if a is not 0; {branch} */                                              \
    X(BR_FALSE)                                                                                   \
    X(BR_TRUE_RA) X(BR_FALSE_RA)                                                                  \
    X(BR_VALUES)  /* if a: copy n slots c.. to b.., jump; {branch}{n}; pays for itself */         \
    X(BR_NULL)    /* like BR_VALUES, but if reference a is null; {branch}{n} */                   \
    X(BR_NOT_NULL)                                                                                \
    X(BR_CAST)    /* like BR_VALUES, but if a is of the type; {branch}{n}{type, negate} */        \
    X(SWITCH)     /* jump by branch a, or n if a > n; {n}{branch} * (n + 1), cost: 32 bits */     \
    X(SWITCH_RA)                                                                                  \
    X(CALL_FN)    /* call; a: slots of the callee; {struct fn *}{0, cost after the call} */       \
    X(CALL_TABLE) /* like CALL_FN, but of element b of a table; {type, table}{0, cost after} */   \
    X(CALL_REF_)  /* like CALL_FN, but of reference b; {0, cost after} */                         \
    X(TAIL_FN)    /* tail call; a: arguments, b: their slots; {function} */                       \
    X(TAIL_TABLE) /* like TAIL_FN, but of element c of a table; {type, table} */                  \
    X(TAIL_REF)   /* like TAIL_FN, but of reference c */                                          \
    X(RET0)                                                                                       \
    X(RET1)       /* return the value of a */                                                     \
    X(RET1_RA)                                                                                    \
    X(RETN)       /* return the values of b slots from a on */                                    \
    X(GLOBAL_GET1) X(GLOBAL_GET2) X(GLOBAL_SET1) X(GLOBAL_SET2)                                   \
    X(MEM_LOAD)   /* a = load at address b of any memory; {row, memory, lane}{offset} */          \
    X(MEM_STORE)  /* store b at address a of any memory; words of MEM_LOAD */                     \
    X(V_LOAD) X(V_STORE) X(V_LOAD_LANE) X(V_STORE_LANE)                                           \
    X(V_UNARY) X(V_BINARY) X(V_TERNARY) X(V_SHIFT) X(V_TEST) X(V_SPLAT)                           \
    X(V_EXTRACT) X(V_REPLACE) X(V_SHUFFLE)                                                        \
    X(BULK)       /* a: first operand, b: end of live slots; {row, cost after}{x, y} */           \
    X(STEP)       /* pay the cost a of the next instruction */                                    \
    X(REJOIN)     /* start of a fuel block: continue in the fast code if fuel suffices */         \
    X(NOTHING)    /* separates two places that have no code between them */                       \
    X(CHARGE)     /* pay for a fuel block that continues a very long one; {0, cost} */            \
    X(NULL_CHECK) /* trap if reference a is null */                                               \
    X(THROW_TAG)  /* throw; a: first argument; {tag} */                                           \
    X(THROW_VALUE) /* throw exception reference a again */                                        \
    X(EXIT)

enum iop {
    IOP_FIRST_ = OP_COUNT - 1,
#define X(name) I_##name##_K,
    ALU_OPS(X) INT_CMPS(X)
#undef X
#define X(name) I_BR_##name,
    INT_CMPS(X)
#undef X
#define X(name) I_BR_##name##_K,
    INT_CMPS(X)
#undef X
#define X(name) I_BR_##name,
    FLOAT_CMPS(X)
#undef X
#define X(name) I_BRN_##name,
    FLOAT_CMPS(X)
#undef X
/*
 * Accesses to memory 0 with 32-bit addresses. In the plain form, the offset is in c. FAR: {offset}.
 * AT: no address, only {offset}. SUM, used by loads only: the address is b + c; {offset}.
 */
#define X(name) I_##name##_FAR, I_##name##_AT, I_##name##_SUM,
    LOAD_OPS(X) STORE_OPS(X)
#undef X
#define X(name) I_##name,
    ENGINE_OPS(X)
#undef X
/*
 * Forms for the value registers. RA, RB, RC: operand a, b or c is in the register. TO: the result
 * stays in the register and is not written to slot a.
 */
#define X(name) I_##name##_TO, I_##name##_RB, I_##name##_RB_TO,
    COMMUTING_OPS(X) ORDERED_OPS(X) REG_F64_COMMUTING(X) REG_F64_ORDERED(X) REG_LOADS(X)
#undef X
#define X(name) I_##name##_RC, I_##name##_RC_TO,
    ORDERED_OPS(X) REG_F64_ORDERED(X)
#undef X
#define X(name) I_##name##_K_TO, I_##name##_K_RB, I_##name##_K_RB_TO,
    ALU_OPS(X)
#undef X
#define X(name) I_BR_##name##_RA, I_BR_##name##_K_RA,
    INT_CMPS(X)
#undef X
#define X(name) I_##name##_SUM_TO, I_##name##_SUM_RB, I_##name##_SUM_RB_TO,
    REG_LOADS(X)
#undef X
#define X(name) I_##name##_RA, I_##name##_RB, I_##name##_AT_RB,
    REG_STORES(X)
#undef X
/* PLUS: the address is the slot of the address + the 16-bit signed constant c; {offset}. */
#define X(name) I_##name##_PLUS, I_##name##_PLUS_TO, I_##name##_PLUS_RB, I_##name##_PLUS_RB_TO,
    REG_LOADS(X)
#undef X
#define X(name) I_##name##_PLUS, I_##name##_PLUS_RB,
    REG_STORES(X)
#undef X
    IOP_COUNT
};

#define WORD(op, a, b, c) \
    ((uint64_t)(op) | (uint64_t)(a) << 16 | (uint64_t)(b) << 32 | (uint64_t)(c) << 48)
#define PAIR(low, high) ((uint64_t)(uint32_t)(low) | (uint64_t)(uint32_t)(high) << 32)

/* clang-format on */
