/* The immediates of an instruction, and what reading them shares with reading instructions. */
#pragma once

#include "wasm/text/wat_enc.h"

/* wat_imm.c */
int wat_imm_index(struct enc *e, enum wat_space space, struct buf *b);
int wat_imm_label(struct enc *e, struct buf *b);
int wat_take_immediate(struct enc *e, enum wasm_op op, struct buf *b);
