/* Walks instructions on references and tables, and select. */

#include "wasm/simd.h"
#include "wasm/walk.h"
#include "wasm/walk_inner.h"

bool walk_ref_null(struct scratch *w, const bool emit) {
    uint32_t heap = module_heaptype(w->m, &w->r);
    if (w->r.failed)
        return false;
    if (emit && !w->dead)
        em_const(w, WASM_REF, 0);
    return push_out(w, emit, WASM_REF | WASM_NULLABLE | heap);
}

bool walk_ref_func(struct scratch *w, const bool emit) {
    uint32_t f = reader_u32(&w->r);
    if (f >= w->m->n_funcs)
        return reader_fail(&w->r, WASM_INVALID, "unknown function %u", f);
    if (!w->m->declared || !w->m->declared[f])
        return reader_fail(&w->r, WASM_INVALID, "undeclared function reference %u", f);
    uint64_t extra = f;
    if (emit && !w->dead)
        em_plain(w, OP_REF_FUNC, 0, true, &extra, 1);
    return push_out(w, emit,
                    w->m->level >= WASM_3_0 ? WASM_REF | w->m->fns[f].canon : WASM_FUNCREF);
}

bool walk_ref_is_null(struct scratch *w, const bool emit) {
    uint32_t t;
    if (emit && !w->dead)
        em_plain(w, OP_REF_IS_NULL, 1, true, NULL, 0);
    return walk_pop_ref(w, &t) && push_out(w, emit, WASM_I32);
}

bool walk_ref_as_non_null(struct scratch *w, const bool emit) {
    uint32_t t;
    if (emit && !w->dead)
        em_plain(w, I_NULL_CHECK, 1, false, NULL, 0);
    if (!walk_pop_ref(w, &t))
        return false;
    /* The null check leaves the operand in its slot, so nothing is moved. */
    return push(w, emit, t & ~WASM_NULLABLE);
}

bool walk_br_on_null(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), t, n;
    struct ctrl *c = walk_label(w, depth);
    if (!c)
        return false;
    if (emit && !w->dead)
        em_br_null(w, depth, true);
    const uint32_t *types = ctrl_label(c, &n);
    return walk_pop_ref(w, &t) && walk_pop_types(w, types, n) && push_types(w, emit, types, n) &&
           push(w, emit, t & ~WASM_NULLABLE);
}

bool walk_br_on_non_null(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), t, n;
    struct ctrl *c = walk_label(w, depth);
    if (!c)
        return false;
    const uint32_t *types = ctrl_label(c, &n);
    if (n == 0 || !is_ref(types[n - 1]))
        return walk_fail_type(w, "type mismatch: the label takes no reference");
    if (emit && !w->dead)
        em_br_null(w, depth, false);
    if (!walk_pop_ref(w, &t))
        return false;
    if (t != 0 && !types_sub(w->e, t & ~WASM_NULLABLE, types[n - 1]))
        return walk_mismatch(w, types[n - 1]);
    return walk_pop_types(w, types, n - 1) && push_types(w, emit, types, n - 1);
}

bool walk_table_get(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!walk_table_ok(w, i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_TABLE_GET, 1, true, &extra, 1);
    return pop(w, walk_table_index_type(w, i)) && push_out(w, emit, w->m->tables[i].type);
}

bool walk_table_set(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!walk_table_ok(w, i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_TABLE_SET, 2, false, &extra, 1);
    return pop(w, w->m->tables[i].type) && pop(w, walk_table_index_type(w, i));
}

bool walk_select(struct scratch *w, const bool emit) {
    uint32_t a, b;
    if (!pop(w, WASM_I32) || !walk_pop_any(w, &b) || !walk_pop_any(w, &a))
        return false;
    if (is_ref(a) || is_ref(b))
        return walk_fail_type(w, "type mismatch: select of references needs its type");
    if (a != b && a != 0 && b != 0)
        return walk_fail_type(w, "type mismatch: select needs two operands of one type");
    uint32_t t = a ? a : b;
    w->n = w->n_before; /* restore the operands for the emitter, which reads them */
    if (emit && !w->dead)
        em_select(w, t);
    w->n = w->n_before - w->floor < 3 ? w->floor : w->n_before - 3;
    return push_out(w, emit, t);
}

bool walk_select_t(struct scratch *w, const bool emit) {
    uint32_t n = reader_u32(&w->r);
    if (n != 1)
        return w->r.failed ? false : reader_fail(&w->r, WASM_INVALID, "invalid result arity");
    uint32_t t = module_valtype(w->m, &w->r);
    if (w->r.failed)
        return false;
    if (emit && !w->dead)
        em_select(w, t);
    return pop(w, WASM_I32) && pop(w, t) && pop(w, t) && push_out(w, emit, t);
}
