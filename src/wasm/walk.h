/*
 * The state of one walk over a function body: types for validation, and beside them, when code is
 * made, where each operand is.
 *
 * One walker belongs to the engine and is used again for every body, so that a function costs no
 * allocation. An operand is usually not yet in its slot but in a local, a constant, or a comparison
 * or sum about to be folded into its user; em_flush() puts all in their slots, as at each block
 * start.
 */
#pragma once

#include "wasm/engine.h"
#include "wasm/iops.h"

enum opnd_kind {
    OPND_SLOT,
    OPND_LOCAL, /* the same as slot a */
    OPND_CONST, /* k */
    OPND_CMP,   /* not yet computed: op a b, or op a k */
    OPND_SUM,   /* not yet computed: i32 slots a + b */
};

struct opnd {
    uint32_t slot; /* where it belongs */
    uint8_t kind;
    bool has_k;
    uint16_t a, b, op;
    uint64_t k;
};

enum { NO_LINK = UINT32_MAX };

struct ctrl {
    uint8_t op; /* OP_BLOCK, OP_LOOP, OP_IF, OP_ELSE, OP_TRY_TABLE; OP_CALL for the function */
    bool unreachable;
    bool is_single; /* at most one result, no params, in single */
    uint32_t height;
    uint32_t single;
    const struct type *type;
    uint32_t init_height;
    /* Code. */
    uint32_t base;  /* slot of its first param and result */
    uint32_t pos;   /* loop: target */
    uint32_t node;  /* loop: block of that target */
    uint32_t sites; /* branches to its end */
    uint32_t else_site;
    uint32_t catches, n_catches;
    const uint8_t *checked; /* the br_table that was found to fit this label */
};

/* A block of the fuel sense: its cost is known when it ends; then the sites that pay it are
 * patched. */
struct node {
    uint32_t start; /* running cost at its beginning */
    uint32_t cost;
    uint32_t sites;
};

enum site_field { SITE_TAKEN, SITE_FALL, SITE_WIDE, SITE_ENTRY };

struct site {
    uint32_t word; /* to patch */
    uint32_t next;
    uint32_t addend;
    uint8_t field;
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
    const uint8_t *ins; /* the instruction at hand */
    uint32_t op;        /* its row */

    uint32_t *types;
    uint32_t n, cap, floor, n_before;
    struct ctrl *ctrls;
    uint32_t n_ctrls, cap_ctrls;
    struct ctrl *top;
    uint32_t *locals;
    uint32_t n_locals, cap_locals, n_params;
    bool has_unset; /* there are locals without a default */
    uint8_t *set;
    uint32_t cap_set;
    uint32_t *set_list;
    uint32_t n_set_list, cap_set_list;

    /* Code. */
    bool stepping, dead, recording, no_memory;
    void (*visit)(void *ctx, uint32_t mark, const struct mark_types *t); /* while recording */
    void *visit_ctx;
    struct opnd *vals;
    uint32_t cap_vals;
    uint32_t *slots; /* of locals */
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
    uint32_t cum; /* running cost */
    uint32_t entry_cost;
    uint32_t start_end;  /* end of the code when the last block started; NO_LINK: no block yet */
    uint32_t start_cum;  /* running cost then */
    uint32_t lazy_from;  /* operands below are in their slots */
    uint32_t pair_first; /* number + 1 of the instruction at pair_at, if it may begin a pair */
    uint32_t pair_at;
    uint32_t pending_site; /* of the call at hand: what is paid on return */
    uint32_t pending_kind;
    struct opnd out; /* what the instruction at hand leaves */
};

/* ---- Used by the walk when it makes code (emit.c). All run before the operands are popped. ----
 */

void em_begin(struct scratch *w);
void em_end(struct scratch *w);
void em_pay(struct scratch *w, uint32_t cost); /* the instruction at hand costs this */
void em_flush(struct scratch *w, uint32_t except_top);
bool em_push(struct scratch *w, uint32_t type); /* false: no memory */

void em_local_get(struct scratch *w, uint32_t i);
void em_local_set(struct scratch *w, uint32_t i);
void em_local_tee(struct scratch *w, uint32_t i);
void em_const(struct scratch *w, uint64_t k);
void em_const128(struct scratch *w, const uint8_t *bytes);
void em_numeric(struct scratch *w, uint8_t byte, unsigned n_in);
void em_load(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset);
void em_store(struct scratch *w, uint32_t row, uint32_t mem, uint64_t offset);
void em_select(struct scratch *w, uint32_t type);
void em_global(struct scratch *w, uint32_t i, uint32_t type, bool is_set);
/* op dst operands… for instructions without forms; result of `out` slots (0: none). */
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

/* A label's operand types: a loop's params, else the results. */
const uint32_t *ctrl_label(const struct ctrl *c, uint32_t *ret_n);
