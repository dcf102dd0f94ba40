/*
 * The stack of operand types, and C functions for the walk (the pass over the instructions of a
 * WebAssembly function). Only for src/wasm/walk*.c.
 *
 * Each C function here validates; with `emit` it also appends code. An error ends the walk.
 */
#pragma once

#include "wasm/simd.h"
#include "wasm/walk.h"

#define INLINE static inline __attribute__((always_inline))
#define COLD __attribute__((noinline, cold))

struct memarg {
    uint32_t mem;
    uint64_t offset;
};

/* walk.c */
COLD bool walk_fail_type(struct scratch *w, const char *fmt, ...);
uint32_t walk_letter_type(struct scratch *w, char c);
/*
 * Notes the types that the instruction expects, `extra` (0: none) above the others, and those that
 * it has. Returns false, for a caller that has failed.
 */
COLD bool walk_expect(struct scratch *w, const uint32_t *types, uint32_t n, uint32_t extra);
COLD bool walk_mismatch(struct scratch *w, uint32_t expected);
COLD bool walk_pop_slow(struct scratch *w, uint32_t expected);
bool walk_pop_any(struct scratch *w, uint32_t *ret);
bool walk_pop_ref(struct scratch *w, uint32_t *ret);
COLD bool walk_push_grow(struct scratch *w);
bool walk_pop_types(struct scratch *w, const uint32_t *types, uint32_t n);
const uint32_t *walk_ctrl_params(const struct ctrl *c, uint32_t *ret_n);
bool walk_block_type(struct scratch *w, struct ctrl *c);
bool walk_ctrl_room(struct scratch *w);
struct ctrl *walk_label(struct scratch *w, uint32_t depth);
bool walk_mem_ok(struct scratch *w, uint32_t i);
uint32_t walk_mem_type(struct scratch *w, uint32_t i);
COLD bool walk_memarg_slow(struct scratch *w, unsigned natural, struct memarg *ret);
bool walk_mem_index(struct scratch *w, uint32_t *ret);
bool walk_body_validate(struct scratch *w);
bool walk_body_emit(struct scratch *w);

/* walk_calls.c */
bool walk_call(struct scratch *w, const bool emit, bool is_tail);
bool walk_table_ok(struct scratch *w, uint32_t i);
uint32_t walk_table_index_type(struct scratch *w, uint32_t i);
bool walk_call_indirect(struct scratch *w, const bool emit, bool is_tail);
bool walk_call_ref(struct scratch *w, const bool emit, bool is_tail);
bool walk_throw(struct scratch *w, const bool emit);
bool walk_throw_ref(struct scratch *w, const bool emit);
bool walk_try_table(struct scratch *w, const bool emit);

/* walk_refs.c */
bool walk_ref_null(struct scratch *w, const bool emit);
bool walk_ref_func(struct scratch *w, const bool emit);
bool walk_ref_is_null(struct scratch *w, const bool emit);
bool walk_ref_as_non_null(struct scratch *w, const bool emit);
bool walk_br_on_null(struct scratch *w, const bool emit);
bool walk_br_on_non_null(struct scratch *w, const bool emit);
bool walk_table_get(struct scratch *w, const bool emit);
bool walk_table_set(struct scratch *w, const bool emit);
bool walk_select(struct scratch *w, const bool emit);
bool walk_select_t(struct scratch *w, const bool emit);

/* walk_bulk.c */
bool walk_data_ok(struct scratch *w, uint32_t i);
bool walk_elem_ok(struct scratch *w, uint32_t i);
bool walk_fc(struct scratch *w, const bool emit);

/* walk_simd.c */
bool walk_fd(struct scratch *w, const bool emit);

/* walk_objects.c */
bool walk_ref_eq(struct scratch *w, bool emit);
bool walk_fb(struct scratch *w, bool emit);

/* walk_code.c */
bool walk_locals(struct scratch *w);
bool walk_unset_init(struct scratch *w);
struct scratch *walk_begin(struct fn *fn, struct wasm_diag *diag);
bool walk_enter(struct scratch *w);

INLINE bool pop(struct scratch *w, uint32_t expected) {
    if (LIKELY(w->n > w->floor && w->types[w->n - 1] == expected)) {
        w->n--;
        return true;
    }
    return walk_pop_slow(w, expected);
}

INLINE bool push(struct scratch *w, const bool emit, uint32_t type) {
    if (UNLIKELY(w->n == w->cap) && !walk_push_grow(w))
        return false;
    w->types[w->n] = type;
    if (emit && !em_push(w, type))
        return false;
    w->n++;
    return true;
}

/* Pushes w->out, the result of an em_ function, which may not be in its slot yet. */
INLINE bool push_out(struct scratch *w, const bool emit, uint32_t type) {
    if (!push(w, emit, type))
        return false;
    if (emit && !w->dead && w->out.kind != OPND_SLOT) {
        uint32_t slot = w->vals[w->n - 1].slot;
        w->vals[w->n - 1] = w->out;
        w->vals[w->n - 1].slot = slot;
    }
    w->out.kind = OPND_SLOT;
    return true;
}

INLINE bool push_types(struct scratch *w, const bool emit, const uint32_t *types, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!push(w, emit, types[i]))
            return false;
    return true;
}

/* Enters a block. Its params were popped and are pushed again as its first operands. */
INLINE bool ctrl_enter(struct scratch *w, const bool emit, const struct ctrl *c) {
    if (!walk_ctrl_room(w))
        return false;
    struct ctrl *top = w->top = &w->ctrls[w->n_ctrls++];
    *top = *c;
    top->height = w->floor = w->n;
    top->init_height = w->n_set_list;
    uint32_t n;
    const uint32_t *params = walk_ctrl_params(top, &n);
    return push_types(w, emit, params, n);
}

INLINE void set_unreachable(struct scratch *w, const bool emit) {
    w->n = w->floor;
    w->top->unreachable = true;
    if (emit)
        w->dead = true;
}

INLINE bool memarg(struct scratch *w, unsigned natural, struct memarg *ret) {
    struct reader *r = &w->r;
    if (LIKELY(r->end - r->p >= 2 && r->p[0] <= natural && r->p[1] < 0x80 && w->m->n_mems)) {
        ret->mem = 0;
        ret->offset = r->p[1];
        r->p += 2;
        return true;
    }
    return walk_memarg_slow(w, natural, ret);
}
