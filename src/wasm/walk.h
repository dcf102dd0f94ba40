/*
 * The state of one walk over a function body: the types for validation and, if code is written,
 * the place of each operand.
 *
 * The engine has one struct scratch and uses it for every body, so that a body needs no allocation.
 * An operand is usually not in its slot: it stands for a local or a constant, or for a comparison
 * or sum that the instruction which uses it may include. em_flush() writes code that puts all
 * operands into their slots, as at each block start.
 */
#pragma once

#include "wasm/engine.h"
#include "wasm/iops.h"

enum opnd_kind {
    OPND_SLOT,
    OPND_LOCAL, /* the value of the local in slot a */
    OPND_CONST, /* the constant k */
    OPND_CMP,   /* comparison that is not yet computed: op a b, or op a k */
    OPND_SUM,   /* i32 sum that is not yet computed: of slots a and b, or of a and k */
};

struct opnd {
    uint32_t slot; /* slot where the operand goes on the stack of the frame */
    uint8_t kind;
    bool has_k;
    uint16_t a, b, op;
    uint64_t k;
};

enum { NO_LINK = UINT32_MAX };

struct ctrl {
    uint8_t op; /* OP_BLOCK, OP_LOOP, OP_IF, OP_ELSE, OP_TRY_TABLE; OP_CALL: the function body */
    bool unreachable;
    bool is_single; /* the block has no params and at most one result, of type `single` */
    uint32_t height;
    uint32_t single;
    const struct type *type;
    uint32_t init_height;
    /* The next fields are used only when code is written. */
    uint32_t base;  /* slot of the first param of the block, and of its first result */
    uint32_t pos;   /* code position of the start of a loop, or of the body of a try_table */
    uint32_t node;  /* number of the fuel block at the start of a loop */
    uint32_t sites; /* first in the list of sites that branch to the end of the block */
    uint32_t else_site;
    uint32_t catches, n_catches;
    const uint8_t *checked; /* br_table that is known to fit this label */
};

/* A fuel block. Its cost is known when it ends; then the sites that pay for it are patched. */
struct node {
    uint32_t start; /* scratch.cum when the block began */
    uint32_t cost;
    uint32_t sites;
};

enum site_field { SITE_TAKEN, SITE_FALL, SITE_WIDE, SITE_ENTRY };

struct site {
    uint32_t word; /* code position of the word to patch */
    uint32_t next;
    uint32_t addend;
    uint8_t field;
};

/* Instructions that share one dispatch (chains.h): their number, the position of the first one, and
   the number + 1 of the chain among those that a further instruction can join; 0: none can. */
struct chain {
    uint32_t first, at, number;
};

/* A value register of the interpreter: the slot whose value it has (NO_LINK: unknown), and the
   position and number of the instruction that made the value. */
struct value_reg {
    uint32_t slot, at;
    uint16_t code;
};

struct catch_clause {
    uint32_t tag;
    uint32_t depth;
    bool wants_ref;
};

struct scratch {
    struct reader r;
    struct wasm_module *m;
    struct wasm_engine *e;
    struct fn *fn;
    const uint8_t *ins; /* the present instruction */
    uint32_t op;        /* row of the present instruction */

    uint32_t *types;
    uint32_t n, cap, floor, n_before;
    struct ctrl *ctrls;
    uint32_t n_ctrls, cap_ctrls;
    struct ctrl *top;
    uint32_t *locals;
    uint32_t n_locals, cap_locals, n_params;
    bool has_unset; /* some locals have no default value */
    uint8_t *set;
    uint32_t cap_set;
    uint32_t *set_list;
    uint32_t n_set_list, cap_set_list;

    /* The next fields are used only when code is written. */
    bool stepping, dead, recording, no_memory;
    void (*visit)(void *ctx, uint32_t mark, const struct mark_types *t); /* while recording */
    void *visit_ctx;
    struct opnd *vals;
    uint32_t cap_vals;
    uint32_t *slots; /* slot of each local */
    uint32_t cap_slots;
    uint32_t local_slots, max_slots;
    uint64_t *words;
    uint32_t n_words, cap_words;
    struct node *nodes;
    uint32_t n_nodes, cap_nodes, first_open;
    struct site *sites;
    uint32_t n_sites, cap_sites;
    struct mark *marks;
    uint32_t n_marks, cap_marks, first_mark;
    struct handler *handlers;
    uint32_t n_handlers, cap_handlers;
    struct catch_clause *catches;
    uint32_t n_catches, cap_catches;
    uint32_t cum; /* cost of all instructions so far */
    uint32_t entry_cost;
    uint32_t start_end; /* n_words when the last fuel block started; NO_LINK: none yet */
    uint32_t start_cum; /* `cum` when the last fuel block started */
    uint32_t lazy_from; /* operands below this index are in their slots */
    struct chain chain, chain_before; /* the last chain, now and before its last instruction */
    uint32_t chain_last;              /* position of the last instruction; NO_LINK: none */
    bool chain_joined;                /* that instruction is not the first of its chain */
    struct value_reg int_reg, f64_reg;
    uint32_t pending_site; /* site of the present call, which pays for the fuel block after it */
    uint32_t pending_kind;
    struct opnd out; /* the result of the present instruction */
};

/* ---- Writing code (emit.c): called by the walk before it pops the operands ---- */

void em_begin(struct scratch *w);
void em_end(struct scratch *w);
void em_pay(struct scratch *w, uint32_t cost); /* adds the cost of the present instruction */
void em_flush(struct scratch *w, uint32_t except_top);
bool em_push(struct scratch *w, uint32_t type); /* false: out of memory */

void em_local_get(struct scratch *w, uint32_t i);
void em_local_set(struct scratch *w, uint32_t i);
void em_local_tee(struct scratch *w, uint32_t i);
void em_const(struct scratch *w, uint32_t type, uint64_t k);
void em_const128(struct scratch *w, const uint8_t *bytes);
void em_numeric(struct scratch *w, uint8_t byte, unsigned n_in);
void em_load(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset);
void em_store(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset);
void em_select(struct scratch *w, uint32_t type);
void em_global(struct scratch *w, uint32_t i, uint32_t type, bool is_set);
/* Writes an instruction that has only one form: op, result slot, operands, then `extra` words. */
void em_plain(struct scratch *w, uint16_t op, unsigned n_in, bool has_result, uint64_t *extra,
              unsigned n_extra);
void em_bulk(struct scratch *w, uint32_t row, unsigned n_in, uint32_t x, uint32_t y);

void em_block(struct scratch *w, struct ctrl *c);
void em_loop(struct scratch *w, struct ctrl *c);
void em_if(struct scratch *w, struct ctrl *c);
void em_else(struct scratch *w, struct ctrl *c);
void em_end_block(struct scratch *w, struct ctrl *c);
void em_br(struct scratch *w, uint32_t depth);
void em_br_if(struct scratch *w, uint32_t depth);
void em_br_null(struct scratch *w, uint32_t depth, bool on_null);
void em_br_cast(struct scratch *w, uint32_t depth, uint32_t type, bool on_fail);
void em_br_table(struct scratch *w, const uint8_t *labels, uint32_t n);
void em_return(struct scratch *w, bool is_branch);
void em_unreachable(struct scratch *w);
void em_call(struct scratch *w, const struct type *t, uint16_t op, uint64_t word, unsigned n_extra);
void em_tail(struct scratch *w, const struct type *t, uint16_t op, uint64_t word, unsigned n_extra);
void em_after_call(struct scratch *w);
void em_throw(struct scratch *w, uint32_t tag, uint32_t n_args);
void em_throw_ref(struct scratch *w);
void em_try(struct scratch *w, struct ctrl *c);

/* Returns the types that a branch to the label carries: the params of a loop, else the results. */
const uint32_t *ctrl_label(const struct ctrl *c, uint32_t *ret_n);
