/*
 * Functions that append code and fuel costs to a function body. Only for src/wasm/emit*.c.
 *
 * Exhausted memory is noted in struct scratch and reported once, at the end of the body.
 */
#pragma once

#include "wasm/iops.h"
#include "wasm/walk.h"

extern const uint8_t em_cmp_inverse[10];

/* emit.c */
uint32_t em_offset_of(const struct scratch *w, const uint8_t *p);
void em_no_room(struct scratch *w);
void em_word(struct scratch *w, uint64_t v);
void em_patch(struct scratch *w, uint32_t at, uint64_t bits);
void em_op(struct scratch *w, uint32_t code, uint32_t a, uint32_t b, uint32_t c);
uint32_t em_site(struct scratch *w, uint32_t at, enum site_field field, uint32_t addend);
void em_site_pay(struct scratch *w, const struct site *s, uint32_t cost);
uint32_t em_block_pos(struct scratch *w);
uint32_t em_node(struct scratch *w, uint32_t sites, uint32_t offset, uint32_t kind);
void em_close(struct scratch *w);
void em_to_slot(struct scratch *w, const struct opnd *o, uint32_t type, uint32_t dst);
uint32_t em_use(struct scratch *w, uint32_t i);
void em_self_charging(struct scratch *w);
uint32_t em_carry_cost(uint32_t values);
uint16_t em_cmp_map(uint16_t row, const uint8_t map[10]);
uint32_t em_first_slot(const struct scratch *w, uint32_t from_top);

/* emit_chains.c */
/* The instruction `code` is written next. */
void em_chain_next(struct scratch *w, uint32_t code);
/* No chain goes on here: a branch may come to the next word, or it is not an instruction. */
void em_chain_break(struct scratch *w);
/* The instruction at `at` became `code`; its word has that number already. */
void em_chain_renumber(struct scratch *w, uint32_t at, uint32_t code);

/* emit_regs.c */
/* The values in the registers are unknown from here on. */
void em_regs_forget(struct scratch *w);
/* Returns the form of the next instruction that reads a value register; may swap operands. */
uint32_t em_regs_use(struct scratch *w, uint32_t code, uint32_t *a, uint32_t *b, uint32_t *c);
/* The forms of a load or store whose address is a slot plus a constant; 0: it has none. */
uint32_t em_plus_form(uint32_t row);
/* Notes which register the next instruction writes, and for which slot. */
void em_regs_set(struct scratch *w, uint32_t code, uint32_t a);
