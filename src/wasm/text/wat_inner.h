/*
 * Functions that the files of the text encoder share. Only for src/wasm/text/wat*.c.
 *
 * Each definition has two functions: declare gives it an index, define writes it (see wat_enc.h).
 */
#pragma once

#include "wasm/text/wat.h"
#include "wasm/text/wat_enc.h"

enum { MAX_BINARY = 512 << 20, PAGE = 65536 };

/* wat.c */
void wat_append_part(struct enc *e, struct part *to, struct part *from);
void wat_part_done(struct part *p);
void wat_take_strings(struct enc *e, struct buf *out);
int wat_put_instructions(struct enc *e, struct part *p, bool folded);
bool wat_take_address_type(struct enc *e);
void wat_put_limits(struct enc *e, struct buf *b, bool is64, uint64_t min, const uint64_t *max);
int wat_take_limits(struct enc *e, struct buf *b, bool is64);
int wat_take_table_type(struct enc *e, struct buf *b);

/* wat_segments.c */
int wat_define_elem(struct enc *e);
int wat_define_table(struct enc *e, uint32_t index);
int wat_define_data(struct enc *e);

/* wat_fields.c */
int wat_define_import(struct enc *e);
int wat_define_export(struct enc *e);
int wat_define_start(struct enc *e);
int wat_define_kind(struct enc *e);
int wat_declare_kind(struct enc *e);
int wat_declare_import(struct enc *e);
int wat_declare_type(struct enc *e);
int wat_declare_group(struct enc *e);
int wat_declare_elem(struct enc *e);
int wat_declare_data(struct enc *e);
