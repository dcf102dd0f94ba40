/*
 * Chooses the forms of instructions that use the value registers of the interpreter.
 *
 * The interpreter has two: one with the last integer, one with the last double that an instruction
 * made. If the next instructions of the same fuel block use that value, they read the register
 * instead of the slot. An operand on the stack is used once, so its slot need not be written then.
 * At each block start and self-paying instruction the registers are unknown (em_regs_forget), so
 * that all operands are in their slots where a program can stop.
 */
#include "wasm/emit_inner.h"

enum { GIVES_UNKNOWN, GIVES_NONE, GIVES_INT, GIVES_F64 };

/*
 * How an instruction uses the registers. in_a, in_b, in_c: its form that reads operand a, b or c
 * from a register; 0: none. swaps: that form of the last operand also swaps it with the one before.
 * f64: operand b (and c) are doubles. to: its form that does not write the result to a slot.
 */
struct reg_row {
    uint16_t in_a, in_b, in_c, to;
    uint8_t gives;
    bool swaps, f64;
};

/* clang-format off */
#define PLAIN(number, gives_) [number] = {.gives = (gives_)},
#define WITH_TO(number, gives_) [number] = {.gives = (gives_), .to = number##_TO},
#define COMMUTING(name, gives_, f64_)                                                         \
    [OP_##name] = {.in_b = I_##name##_RB, .in_c = I_##name##_RB, .to = I_##name##_TO,         \
                   .gives = (gives_), .swaps = true, .f64 = (f64_)},                          \
    WITH_TO(I_##name##_RB, gives_) PLAIN(I_##name##_TO, gives_) PLAIN(I_##name##_RB_TO, gives_)
#define ORDERED(name, gives_, f64_)                                                           \
    [OP_##name] = {.in_b = I_##name##_RB, .in_c = I_##name##_RC, .to = I_##name##_TO,         \
                   .gives = (gives_), .f64 = (f64_)},                                         \
    WITH_TO(I_##name##_RB, gives_) WITH_TO(I_##name##_RC, gives_)
#define LOAD(name, gives_)                                                                    \
    [OP_##name] = {.in_b = I_##name##_RB, .to = I_##name##_TO, .gives = (gives_)},            \
    [I_##name##_SUM] = {.in_b = I_##name##_SUM_RB, .in_c = I_##name##_SUM_RB,                 \
                        .to = I_##name##_SUM_TO, .gives = (gives_), .swaps = true},           \
    WITH_TO(I_##name##_RB, gives_) WITH_TO(I_##name##_SUM_RB, gives_)                         \
    [I_##name##_PLUS] = {.in_b = I_##name##_PLUS_RB, .to = I_##name##_PLUS_TO, .gives = (gives_)}, \
    WITH_TO(I_##name##_PLUS_RB, gives_) PLAIN(I_##name##_FAR, gives_) PLAIN(I_##name##_AT, gives_)

static const struct reg_row reg_rows[IOP_COUNT] = {
#define X(name) COMMUTING(name, GIVES_INT, false)
    COMMUTING_OPS(X)
#undef X
#define X(name) ORDERED(name, GIVES_INT, false)
    ORDERED_OPS(X)
#undef X
#define X(name) COMMUTING(name, GIVES_F64, true)
    REG_F64_COMMUTING(X)
#undef X
#define X(name) ORDERED(name, GIVES_F64, true)
    REG_F64_ORDERED(X)
#undef X
#define X(name) [I_##name##_K] = {.in_b = I_##name##_K_RB, .to = I_##name##_K_TO, .gives = GIVES_INT}, \
    WITH_TO(I_##name##_K_RB, GIVES_INT)
    ALU_OPS(X)
#undef X
#define X(name) LOAD(name, GIVES_INT)
    REG_INT_LOADS(X)
#undef X
    LOAD(F64_LOAD, GIVES_F64)
#define X(name) [OP_##name] = {.in_a = I_##name##_RA, .in_b = I_##name##_RB, .gives = GIVES_NONE, \
                               .f64 = OP_##name == OP_F64_STORE},                                \
    [I_##name##_AT] = {.in_b = I_##name##_AT_RB, .gives = GIVES_NONE,                            \
                       .f64 = OP_##name == OP_F64_STORE},                                       \
    [I_##name##_PLUS] = {.in_b = I_##name##_PLUS_RB, .gives = GIVES_NONE,                       \
                         .f64 = OP_##name == OP_F64_STORE},                                     \
    PLAIN(I_##name##_PLUS_RB, GIVES_NONE)                                                       \
    PLAIN(I_##name##_FAR, GIVES_NONE) PLAIN(I_##name##_AT_RB, GIVES_NONE)                       \
    PLAIN(I_##name##_RA, GIVES_NONE) PLAIN(I_##name##_RB, GIVES_NONE)
    REG_STORES(X)
#undef X
#define X(name) [I_BR_##name##_K] = {.in_a = I_BR_##name##_K_RA},
    INT_CMPS(X)
#undef X
#define BRANCH(name, mirror) [I_BR_##name] = {.in_a = I_BR_##name##_RA, .in_b = I_BR_##mirror##_RA, .swaps = true},
#define BRANCHES(w)                                                                             \
    BRANCH(w##_EQ, w##_EQ) BRANCH(w##_NE, w##_NE) BRANCH(w##_LT_S, w##_GT_S)                    \
    BRANCH(w##_LT_U, w##_GT_U) BRANCH(w##_GT_S, w##_LT_S) BRANCH(w##_GT_U, w##_LT_U)            \
    BRANCH(w##_LE_S, w##_GE_S) BRANCH(w##_LE_U, w##_GE_U) BRANCH(w##_GE_S, w##_LE_S)            \
    BRANCH(w##_GE_U, w##_LE_U)
    BRANCHES(I32) BRANCHES(I64)
    [I_BR_TRUE] = {.in_a = I_BR_TRUE_RA},
    [I_BR_FALSE] = {.in_a = I_BR_FALSE_RA},
    [I_SWITCH] = {.in_a = I_SWITCH_RA},
    [I_RET1] = {.in_a = I_RET1_RA},
    WITH_TO(I_CONST32, GIVES_INT) WITH_TO(I_CONST_F64, GIVES_F64)
    PLAIN(I_MOV, GIVES_INT) PLAIN(I_CONST64, GIVES_INT)
    PLAIN(I_SELECT1, GIVES_INT) PLAIN(I_GLOBAL_GET1, GIVES_INT)
    PLAIN(OP_F64_SQRT, GIVES_F64)
    PLAIN(OP_I32_WRAP_I64, GIVES_INT) PLAIN(OP_I64_EXTEND_I32_U, GIVES_INT)
    PLAIN(OP_I64_EXTEND_I32_S, GIVES_INT) PLAIN(OP_I32_EXTEND8_S, GIVES_INT)
    PLAIN(OP_I32_EXTEND16_S, GIVES_INT) PLAIN(OP_I32_CLZ, GIVES_INT) PLAIN(OP_I32_CTZ, GIVES_INT)
#define X(name) PLAIN(OP_##name, GIVES_INT) PLAIN(I_##name##_K, GIVES_INT)
    INT_CMPS(X)
#undef X
};
/* clang-format on */

void em_regs_forget(struct scratch *w) {
    w->int_reg.slot = w->f64_reg.slot = NO_LINK;
}

/* The operand of a register is used. If it was on the stack, nobody reads its slot any more. */
static void reg_used(struct scratch *w, const struct value_reg *r) {
    uint16_t to = reg_rows[r->code].to;
    if (r->slot < w->local_slots || !to || w->no_memory || (w->words[r->at] & 0xffff) != r->code)
        return;
    w->words[r->at] = (w->words[r->at] & ~UINT64_C(0xffff)) | to;
    em_chain_renumber(w, r->at, to);
}

uint32_t em_regs_use(struct scratch *w, uint32_t code, uint32_t *a, uint32_t *b, uint32_t *c) {
    const struct reg_row *row = &reg_rows[code];
    const struct value_reg *values = row->f64 ? &w->f64_reg : &w->int_reg;
    if (row->in_a && *a == w->int_reg.slot) {
        reg_used(w, &w->int_reg);
        return row->in_a;
    }
    if (row->in_b && *b == values->slot) {
        reg_used(w, values);
        if (row->in_a && row->swaps)
            *b = *a;
        return row->in_b;
    }
    if (row->in_c && *c == values->slot) {
        reg_used(w, values);
        if (row->swaps)
            *c = *b;
        return row->in_c;
    }
    return code;
}

void em_regs_set(struct scratch *w, uint32_t code, uint32_t a) {
    uint8_t gives = reg_rows[code].gives;
    if (gives == GIVES_NONE)
        return;
    if (gives == GIVES_UNKNOWN) {
        em_regs_forget(w);
        return;
    }
    if (w->int_reg.slot == a)
        w->int_reg.slot = NO_LINK;
    if (w->f64_reg.slot == a)
        w->f64_reg.slot = NO_LINK;
    struct value_reg *r = gives == GIVES_F64 ? &w->f64_reg : &w->int_reg;
    *r = (struct value_reg){.slot = a, .at = w->n_words, .code = (uint16_t)code};
}

uint32_t em_plus_form(uint32_t row) {
    switch (row) {
#define X(name)     \
    case OP_##name: \
        return I_##name##_PLUS;
        REG_LOADS(X)
        REG_STORES(X)
#undef X
    default:
        return 0;
    }
}
