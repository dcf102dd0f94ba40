/* Walks calls and instructions on exceptions. */

#include "wasm/simd.h"
#include "wasm/walk.h"
#include "wasm/walk_inner.h"

/* ---- Calls ---- */

static bool results_fit(struct scratch *w, const struct type *t) {
    const struct type *own = w->fn->type;
    bool ok = t->n_results == own->n_results;
    for (uint32_t i = 0; ok && i < t->n_results; i++)
        ok = types_sub(w->e, t->vals[t->n_params + i], own->vals[own->n_params + i]);
    return ok ||
           walk_fail_type(w, "type mismatch: results of the tail call differ from the function's");
}

/* Checks a call. `extra` operands lie above the arguments: a table index or a reference. */
INLINE bool call_types(struct scratch *w, const bool emit, const struct type *t, uint32_t extra,
                       bool is_tail) {
    if (extra && !pop(w, extra))
        return walk_expect(w, t->vals, t->n_params, extra);
    if (!walk_pop_types(w, t->vals, t->n_params))
        return walk_expect(w, t->vals, t->n_params, extra);
    if (is_tail) {
        if (!results_fit(w, t))
            return false;
        set_unreachable(w, emit);
        return true;
    }
    if (!push_types(w, emit, t->vals + t->n_params, t->n_results))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

bool walk_call(struct scratch *w, const bool emit, bool is_tail) {
    uint32_t f = reader_u32(&w->r);
    if (UNLIKELY(f >= w->m->n_funcs))
        return reader_fail(&w->r, WASM_INVALID, "unknown function %u", f);
    const struct type *t = w->m->fns[f].type;
    if (emit && !w->dead && is_tail)
        em_tail(w, t, I_TAIL_FN, f, 0);
    else if (emit && !w->dead)
        em_call(w, t, I_CALL_FN, (uintptr_t)&w->m->fns[f], 0);
    return call_types(w, emit, t, 0, is_tail);
}

static const struct type *func_type_at(struct scratch *w, uint32_t index) {
    if (index >= w->m->n_types) {
        reader_fail(&w->r, WASM_INVALID, "unknown type %u", index);
        return NULL;
    }
    const struct type *t = module_type(w->m, index);
    if (t->kind == TYPE_FUNC)
        return t;
    walk_fail_type(w, "type mismatch: not a function type");
    return NULL;
}

bool walk_table_ok(struct scratch *w, uint32_t i) {
    return i < w->m->n_tables || reader_fail(&w->r, WASM_INVALID, "unknown table %u", i);
}

uint32_t walk_table_index_type(struct scratch *w, uint32_t i) {
    return w->m->tables[i].l.is64 ? WASM_I64 : WASM_I32;
}

bool walk_call_indirect(struct scratch *w, const bool emit, bool is_tail) {
    struct reader *r = &w->r;
    uint32_t type = reader_u32(r), table;
    if (w->m->level < WASM_2_0) {
        table = reader_byte(r);
        if (table != 0)
            return reader_fail(r, WASM_MALFORMED, "zero byte expected");
    } else {
        table = reader_u32(r);
    }
    if (r->failed || !walk_table_ok(w, table))
        return false;
    const struct type *t = func_type_at(w, type);
    if (!t)
        return false;
    if (!types_sub(w->e, w->m->tables[table].type, WASM_FUNCREF))
        return walk_fail_type(w, "type mismatch: the table does not hold functions");
    if (emit && !w->dead)
        (is_tail ? em_tail : em_call)(w, t, is_tail ? I_TAIL_TABLE : I_CALL_TABLE,
                                      PAIR(t->id, table), 1);
    return call_types(w, emit, t, walk_table_index_type(w, table), is_tail);
}

bool walk_call_ref(struct scratch *w, const bool emit, bool is_tail) {
    const struct type *t = func_type_at(w, reader_u32(&w->r));
    if (!t || w->r.failed)
        return false;
    if (emit && !w->dead)
        (is_tail ? em_tail : em_call)(w, t, is_tail ? I_TAIL_REF : I_CALL_REF_, 0, 1);
    return call_types(w, emit, t, WASM_REF | WASM_NULLABLE | t->id, is_tail);
}

/* ---- Exceptions ---- */

static const struct type *tag_type(struct scratch *w, uint32_t i) {
    if (i < w->m->n_tags)
        return w->e->types[w->m->tags[i]];
    reader_fail(&w->r, WASM_INVALID, "unknown tag %u", i);
    return NULL;
}

bool walk_throw(struct scratch *w, const bool emit) {
    uint32_t tag = reader_u32(&w->r);
    const struct type *t = tag_type(w, tag);
    if (!t)
        return false;
    if (emit && !w->dead)
        em_throw(w, tag, t->n_params);
    if (!walk_pop_types(w, t->vals, t->n_params))
        return false;
    set_unreachable(w, emit);
    return true;
}

bool walk_throw_ref(struct scratch *w, const bool emit) {
    if (emit && !w->dead)
        em_throw_ref(w);
    if (!pop(w, WASM_EXNREF))
        return false;
    set_unreachable(w, emit);
    return true;
}

/*
 * Kinds of catch clauses: 0 catch, 1 catch_ref, 2 catch_all, 3 catch_all_ref. The label receives
 * the values of the tag (catch, catch_ref) and the exception (catch_ref, catch_all_ref).
 */
static bool catch_fits(struct scratch *w, uint8_t kind, const struct type *t,
                       const struct ctrl *c) {
    uint32_t n, want = (t ? t->n_params : 0) + (kind & 1);
    const uint32_t *types = ctrl_label(c, &n);
    bool ok = n == want;
    for (uint32_t i = 0; ok && t && i < t->n_params; i++)
        ok = types_sub(w->e, t->vals[i], types[i]);
    if (ok && (kind & 1))
        ok = types_sub(w->e, WASM_EXNREF & ~WASM_NULLABLE, types[n - 1]);
    return ok || walk_fail_type(w, "type mismatch: the catch clause does not fit its label");
}

static bool catch_add(struct scratch *w) {
    struct reader *r = &w->r;
    uint8_t kind = reader_byte(r);
    if (kind > 3)
        return reader_fail(r, WASM_MALFORMED, "malformed catch clause");
    uint32_t tag = kind < 2 ? reader_u32(r) : NO_TYPE;
    const struct type *t = NULL;
    if (kind < 2 && !(t = tag_type(w, tag)))
        return false;
    uint32_t depth = reader_u32(r);
    struct ctrl *c = walk_label(w, depth);
    if (!c || r->failed || !catch_fits(w, kind, t, c))
        return false;
    if (!engine_grow(w->e, &w->catches, &w->cap_catches, w->n_catches + 1, sizeof *w->catches))
        return reader_fail(r, WASM_TOO_BIG, "out of memory");
    w->catches[w->n_catches++] = (struct catch_clause){tag, depth, kind & 1};
    return true;
}

bool walk_try_table(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    struct ctrl c = {.op = OP_TRY_TABLE, .sites = NO_LINK, .else_site = NO_LINK, .node = NO_LINK};
    if (!walk_block_type(w, &c))
        return false;
    uint32_t n = reader_u32(r);
    if (n > (size_t)(r->end - r->p))
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    c.catches = w->n_catches;
    c.n_catches = n;
    for (uint32_t i = 0; i < n; i++)
        if (!catch_add(w))
            return false;
    uint32_t np;
    const uint32_t *params = walk_ctrl_params(&c, &np);
    if (emit && !w->dead)
        em_flush(w, 0);
    if (!walk_pop_types(w, params, np))
        return false;
    if (emit)
        c.base = w->n ? w->vals[w->n - 1].slot + slots_of(w->types[w->n - 1]) : w->local_slots;
    if (!ctrl_enter(w, emit, &c))
        return false;
    if (emit && !w->dead)
        em_try(w, w->top);
    return true;
}
