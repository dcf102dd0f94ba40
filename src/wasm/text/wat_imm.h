/*
 * Reads the immediates of an instruction. Only for src/wasm/text/wat*.c.
 *
 * Functions return 0, or -1 with the error in diags.
 */
#pragma once

#include "wasm/text/wat_enc.h"

/* wat_imm.c */
int wat_imm_index(struct enc *e, enum wat_space space, struct buf *b);
int wat_imm_label(struct enc *e, struct buf *b);
int wat_take_immediate(struct enc *e, enum wasm_op op, struct buf *b);
