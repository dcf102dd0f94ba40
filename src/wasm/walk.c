/*
 * The walk over a function body, compiled twice: once to validate, once to make code as well.
 *
 * Each instruction first lets emit.c look at its operands, then pops and pushes their types. In
 * code that cannot be reached only the types go on.
 */
#include "wasm/walk.h"

#include <assert.h>

#include "wasm/simd.h"

#define INLINE static inline __attribute__((always_inline))
#define COLD __attribute__((noinline, cold))

/* ---- The operand stack ---- */

COLD static bool fail_type(struct scratch *w, const char *fmt, ...) {
    if (w->r.failed)
        return false;
    (void)fmt;
    return reader_fail(&w->r, WASM_INVALID, "%s", fmt);
}

static uint32_t letter_type(struct scratch *w, char c) {
    switch (c) {
    case 'i':
        return WASM_I32;
    case 'I':
        return WASM_I64;
    case 'f':
        return WASM_F32;
    case 'F':
        return WASM_F64;
    case 'v':
        return WASM_V128;
    default:
        return w->m->n_mems && w->m->mems[0].l.is64 ? WASM_I64 : WASM_I32;
    }
}

/* What the instruction wants, whole if its row says so, and what it would find. */
COLD static bool mismatch(struct scratch *w, uint32_t expected) {
    struct wasm_diag *d = w->r.diag;
    if (w->r.failed)
        return false;
    const char *sig = w->op < OP_COUNT ? wasm_ops[w->op].sig : "*";
    if (sig[0] == '*')
        d->expected[d->n_expected++] = expected;
    else
        for (; *sig != ':' && d->n_expected < 8; sig++)
            d->expected[d->n_expected++] = letter_type(w, *sig);
    uint32_t have = w->n_before - w->floor;
    uint32_t show = have < d->n_expected ? have : d->n_expected;
    for (uint32_t i = 0; i < show; i++)
        d->found[d->n_found++] = w->types[w->n_before - show + i];
    char want[32], got[32] = "nothing";
    wasm_type_name(expected, want, sizeof want);
    if (w->n > w->floor)
        wasm_type_name(w->types[w->n - 1], got, sizeof got);
    return reader_fail(&w->r, WASM_INVALID, "type mismatch: %s expects %s, the stack has %s",
                       w->op < OP_COUNT ? wasm_ops[w->op].text : "the block", want, got);
}

COLD static bool pop_slow(struct scratch *w, uint32_t expected) {
    if (w->n == w->floor)
        return w->top->unreachable || mismatch(w, expected);
    uint32_t found = w->types[w->n - 1];
    if (found != 0 && !types_sub(w->e, found, expected))
        return mismatch(w, expected);
    w->n--;
    return true;
}

INLINE bool pop(struct scratch *w, uint32_t expected) {
    if (LIKELY(w->n > w->floor && w->types[w->n - 1] == expected)) {
        w->n--;
        return true;
    }
    return pop_slow(w, expected);
}

/* Any type; 0 is the bottom type. */
static bool pop_any(struct scratch *w, uint32_t *ret) {
    *ret = 0;
    if (w->n > w->floor) {
        *ret = w->types[--w->n];
        return true;
    }
    return w->top->unreachable || fail_type(w, "type mismatch: the stack is empty");
}

static bool pop_ref(struct scratch *w, uint32_t *ret) {
    return pop_any(w, ret) &&
           (*ret == 0 || is_ref(*ret) || fail_type(w, "type mismatch: a reference is needed"));
}

COLD static bool push_grow(struct scratch *w) {
    uint32_t limit = (MAX_FRAME_SLOTS - w->local_slots) / 2;
    if (w->n >= limit)
        return reader_fail(&w->r, WASM_TOO_BIG, "operand stack too deep");
    return engine_grow(w->e, &w->types, &w->cap, w->n + 1, sizeof *w->types) ||
           reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

INLINE bool push(struct scratch *w, const bool emit, uint32_t type) {
    if (UNLIKELY(w->n == w->cap) && !push_grow(w))
        return false;
    w->types[w->n] = type;
    if (emit && !em_push(w, type))
        return false;
    w->n++;
    return true;
}

/* The result of an em_ function, which may not be in its slot. */
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

static bool pop_types(struct scratch *w, const uint32_t *types, uint32_t n) {
    for (uint32_t i = n; i-- > 0;)
        if (!pop(w, types[i]))
            return false;
    return true;
}

INLINE bool push_types(struct scratch *w, const bool emit, const uint32_t *types, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!push(w, emit, types[i]))
            return false;
    return true;
}

/* ---- Control ---- */

const uint32_t *ctrl_label(const struct ctrl *c, uint32_t *ret_n) {
    if (c->is_single) {
        *ret_n = c->op != OP_LOOP && c->single ? 1 : 0;
        return &c->single;
    }
    *ret_n = c->op == OP_LOOP ? c->type->n_params : c->type->n_results;
    return c->op == OP_LOOP ? c->type->vals : c->type->vals + c->type->n_params;
}

static const uint32_t *ctrl_params(const struct ctrl *c, uint32_t *ret_n) {
    *ret_n = c->is_single ? 0 : c->type->n_params;
    return c->is_single ? NULL : c->type->vals;
}

static const uint32_t *ctrl_results(const struct ctrl *c, uint32_t *ret_n) {
    *ret_n = c->is_single ? c->single != 0 : c->type->n_results;
    return c->is_single ? &c->single : c->type->vals + c->type->n_params;
}

static bool block_type(struct scratch *w, struct ctrl *c) {
    struct reader *r = &w->r;
    if (r->p < r->end && *r->p == 0x40) {
        r->p++;
        c->is_single = true;
        return true;
    }
    if (r->p < r->end && (*r->p & 0xc0) == 0x40) {
        c->is_single = true;
        c->single = module_valtype(w->m, r);
        return !r->failed;
    }
    int64_t index = reader_s33(r);
    if (r->failed)
        return false;
    if (w->m->level < WASM_2_0)
        return reader_fail(r, WASM_MALFORMED, "malformed block type");
    if (index < 0 || index >= w->m->n_types)
        return reader_fail(r, WASM_INVALID, "unknown type %lld", (long long)index);
    c->type = module_type(w->m, (uint32_t)index);
    return c->type->kind == TYPE_FUNC || fail_type(w, "block type is not a function type");
}

static bool ctrl_room(struct scratch *w) {
    if (w->n_ctrls >= MAX_NEST)
        return reader_fail(&w->r, WASM_TOO_BIG, "blocks nested too deep");
    return engine_grow(w->e, &w->ctrls, &w->cap_ctrls, w->n_ctrls + 1, sizeof *w->ctrls) ||
           reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

/* Params were popped; the block begins with them. */
INLINE bool ctrl_enter(struct scratch *w, const bool emit, const struct ctrl *c) {
    if (!ctrl_room(w))
        return false;
    struct ctrl *top = w->top = &w->ctrls[w->n_ctrls++];
    *top = *c;
    top->height = w->floor = w->n;
    top->init_height = w->n_set_list;
    uint32_t n;
    const uint32_t *params = ctrl_params(top, &n);
    return push_types(w, emit, params, n);
}

static void unset_locals(struct scratch *w, uint32_t height) {
    while (w->n_set_list > height)
        w->set[w->set_list[--w->n_set_list]] = 0;
}

/* The end of a block's code: its results are on the stack and nothing else. */
static bool ctrl_results_ok(struct scratch *w) {
    uint32_t n;
    const uint32_t *results = ctrl_results(w->top, &n);
    if (!pop_types(w, results, n))
        return false;
    if (w->n != w->floor)
        return fail_type(w, "type mismatch: values remain on the stack at the end of the block");
    unset_locals(w, w->top->init_height);
    return true;
}

INLINE void set_unreachable(struct scratch *w, const bool emit) {
    w->n = w->floor;
    w->top->unreachable = true;
    if (emit)
        w->dead = true;
}

INLINE bool do_block(struct scratch *w, const bool emit, uint8_t op) {
    struct ctrl c = {.op = op, .sites = NO_LINK, .else_site = NO_LINK, .node = NO_LINK};
    if (!block_type(w, &c))
        return false;
    if (emit && !w->dead && op != OP_IF) {
        if (op == OP_LOOP)
            em_flush(w, 0);
        else
            em_block(w, &c);
    }
    if (emit && !w->dead && op == OP_IF)
        em_if(w, &c);
    if (op == OP_IF && !pop(w, WASM_I32))
        return false;
    uint32_t n;
    const uint32_t *params = ctrl_params(&c, &n);
    if (!pop_types(w, params, n))
        return false;
    if (emit)
        c.base = w->n ? w->vals[w->n - 1].slot + slots_of(w->types[w->n - 1]) : w->local_slots;
    if (!ctrl_enter(w, emit, &c))
        return false;
    if (emit && !w->dead && op == OP_LOOP)
        em_loop(w, w->top);
    return true;
}

INLINE bool do_else(struct scratch *w, const bool emit) {
    struct ctrl *c = w->top;
    if (c->op != OP_IF)
        return reader_fail(&w->r, WASM_MALFORMED, "else without if");
    if (emit && !w->dead)
        em_flush(w, 0);
    if (!ctrl_results_ok(w))
        return false;
    c->op = OP_ELSE;
    c->unreachable = false;
    uint32_t n;
    const uint32_t *params = ctrl_params(c, &n);
    if (!push_types(w, emit, params, n))
        return false;
    if (emit)
        em_else(w, c);
    return true;
}

/* An if without else passes its params through. */
static bool if_fits(struct scratch *w, const struct ctrl *c) {
    uint32_t np, nr;
    const uint32_t *params = ctrl_params(c, &np), *results = ctrl_results(c, &nr);
    bool ok = np == nr;
    for (uint32_t i = 0; ok && i < np; i++)
        ok = types_sub(w->e, params[i], results[i]);
    return ok || fail_type(w, "type mismatch: if without else must leave what it takes");
}

INLINE bool do_end(struct scratch *w, const bool emit) {
    struct ctrl *c = w->top;
    if (emit && !w->dead && w->n_ctrls > 1)
        em_flush(w, 0);
    if (emit && w->n_ctrls == 1)
        em_return(w, false);
    if (!ctrl_results_ok(w) || (c->op == OP_IF && !if_fits(w, c)))
        return false;
    if (--w->n_ctrls == 0)
        return true;
    w->top = c - 1;
    w->floor = w->top->height;
    uint32_t n;
    const uint32_t *results = ctrl_results(c, &n);
    if (!push_types(w, emit, results, n))
        return false;
    if (emit)
        em_end_block(w, c);
    return true;
}

static struct ctrl *label(struct scratch *w, uint32_t depth) {
    if (LIKELY(depth < w->n_ctrls))
        return &w->ctrls[w->n_ctrls - 1 - depth];
    reader_fail(&w->r, WASM_INVALID, "unknown label %u", depth);
    return NULL;
}

INLINE bool do_br(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), n;
    struct ctrl *c = label(w, depth);
    if (!c)
        return false;
    if (emit && !w->dead)
        em_br(w, depth);
    const uint32_t *types = ctrl_label(c, &n);
    if (!pop_types(w, types, n))
        return false;
    set_unreachable(w, emit);
    return true;
}

INLINE bool do_br_if(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), n;
    struct ctrl *c = label(w, depth);
    if (!c)
        return false;
    if (emit && !w->dead)
        em_br_if(w, depth);
    const uint32_t *types = ctrl_label(c, &n);
    if (!pop(w, WASM_I32))
        return false;
    return n == 0 || (pop_types(w, types, n) && push_types(w, emit, types, n));
}

/* Do the operands fit a label, without popping them? */
static bool label_fits(struct scratch *w, const struct ctrl *c) {
    uint32_t n, before = w->n;
    const uint32_t *types = ctrl_label(c, &n);
    if (!pop_types(w, types, n))
        return false;
    w->n = before;
    return true;
}

INLINE bool do_br_table(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    uint32_t n = reader_u32(r), arity, first = 0, first_type = 0;
    if (n >= (size_t)(r->end - r->p))
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    if (emit && !w->dead)
        em_br_table(w, r->p, n);
    if (!pop(w, WASM_I32))
        return false;
    for (uint32_t i = 0; i <= n; i++) {
        struct ctrl *c = label(w, reader_u32(r));
        if (!c)
            return false;
        uint32_t type = *ctrl_label(c, &arity);
        if (i == 0)
            first = arity, first_type = type;
        if (arity != first || (w->m->level < WASM_2_0 && arity && type != first_type))
            return fail_type(w, "type mismatch: labels of br_table differ in arity");
        if (c->checked == w->ins)
            continue; /* many entries, few labels */
        if (!label_fits(w, c))
            return false;
        c->checked = w->ins;
    }
    set_unreachable(w, emit);
    return true;
}

INLINE bool do_return(struct scratch *w, const bool emit) {
    if (emit && !w->dead)
        em_return(w, true);
    const struct type *t = w->fn->type;
    if (!pop_types(w, t->vals + t->n_params, t->n_results))
        return false;
    set_unreachable(w, emit);
    return true;
}

/* ---- Calls ---- */

static bool results_fit(struct scratch *w, const struct type *t) {
    const struct type *own = w->fn->type;
    bool ok = t->n_results == own->n_results;
    for (uint32_t i = 0; ok && i < t->n_results; i++)
        ok = types_sub(w->e, t->vals[t->n_params + i], own->vals[own->n_params + i]);
    return ok || fail_type(w, "type mismatch: results of the tail call differ from the function's");
}

/* extra operands lie above the arguments: an index or a reference. */
INLINE bool call_types(struct scratch *w, const bool emit, const struct type *t, uint32_t extra,
                       bool is_tail) {
    if (extra && !pop(w, extra))
        return false;
    if (!pop_types(w, t->vals, t->n_params))
        return false;
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

INLINE bool do_call(struct scratch *w, const bool emit, bool is_tail) {
    uint32_t f = reader_u32(&w->r);
    if (UNLIKELY(f >= w->m->n_funcs))
        return reader_fail(&w->r, WASM_INVALID, "unknown function %u", f);
    const struct type *t = w->m->fns[f].type;
    if (emit && !w->dead)
        (is_tail ? em_tail : em_call)(w, t, is_tail ? I_TAIL_FN : I_CALL_FN, f, 0);
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
    fail_type(w, "type mismatch: not a function type");
    return NULL;
}

static bool table_ok(struct scratch *w, uint32_t i) {
    return i < w->m->n_tables || reader_fail(&w->r, WASM_INVALID, "unknown table %u", i);
}

static uint32_t table_index_type(struct scratch *w, uint32_t i) {
    return w->m->tables[i].l.is64 ? WASM_I64 : WASM_I32;
}

INLINE bool do_call_indirect(struct scratch *w, const bool emit, bool is_tail) {
    struct reader *r = &w->r;
    uint32_t type = reader_u32(r), table;
    if (w->m->level < WASM_2_0) {
        table = reader_byte(r);
        if (table != 0)
            return reader_fail(r, WASM_MALFORMED, "zero byte expected");
    } else {
        table = reader_u32(r);
    }
    if (r->failed || !table_ok(w, table))
        return false;
    const struct type *t = func_type_at(w, type);
    if (!t)
        return false;
    if (!types_sub(w->e, w->m->tables[table].type, WASM_FUNCREF))
        return fail_type(w, "type mismatch: the table does not hold functions");
    if (emit && !w->dead)
        (is_tail ? em_tail : em_call)(w, t, is_tail ? I_TAIL_TABLE : I_CALL_TABLE,
                                      PAIR(t->id, table), 1);
    return call_types(w, emit, t, table_index_type(w, table), is_tail);
}

INLINE bool do_call_ref(struct scratch *w, const bool emit, bool is_tail) {
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

INLINE bool do_throw(struct scratch *w, const bool emit) {
    uint32_t tag = reader_u32(&w->r);
    const struct type *t = tag_type(w, tag);
    if (!t)
        return false;
    if (emit && !w->dead)
        em_throw(w, tag, t->n_params);
    if (!pop_types(w, t->vals, t->n_params))
        return false;
    set_unreachable(w, emit);
    return true;
}

INLINE bool do_throw_ref(struct scratch *w, const bool emit) {
    if (emit && !w->dead)
        em_throw_ref(w);
    if (!pop(w, WASM_EXNREF))
        return false;
    set_unreachable(w, emit);
    return true;
}

/* Kinds: 0 catch, 1 catch_ref, 2 catch_all, 3 catch_all_ref. The label takes the tag's values and
   perhaps the exception. */
static bool catch_fits(struct scratch *w, uint8_t kind, const struct type *t,
                       const struct ctrl *c) {
    uint32_t n, want = (t ? t->n_params : 0) + (kind & 1);
    const uint32_t *types = ctrl_label(c, &n);
    bool ok = n == want;
    for (uint32_t i = 0; ok && t && i < t->n_params; i++)
        ok = types_sub(w->e, t->vals[i], types[i]);
    if (ok && (kind & 1))
        ok = types_sub(w->e, WASM_EXNREF & ~WASM_NULLABLE, types[n - 1]);
    return ok || fail_type(w, "type mismatch: the catch clause does not fit its label");
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
    struct ctrl *c = label(w, depth);
    if (!c || r->failed || !catch_fits(w, kind, t, c))
        return false;
    if (!engine_grow(w->e, &w->catches, &w->cap_catches, w->n_catches + 1, sizeof *w->catches))
        return reader_fail(r, WASM_TOO_BIG, "out of memory");
    w->catches[w->n_catches++] = (struct catch_clause){tag, depth, kind & 1};
    return true;
}

INLINE bool do_try_table(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    struct ctrl c = {.op = OP_TRY_TABLE, .sites = NO_LINK, .else_site = NO_LINK, .node = NO_LINK};
    if (!block_type(w, &c))
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
    const uint32_t *params = ctrl_params(&c, &np);
    if (emit && !w->dead)
        em_flush(w, 0);
    if (!pop_types(w, params, np))
        return false;
    if (emit)
        c.base = w->n ? w->vals[w->n - 1].slot + slots_of(w->types[w->n - 1]) : w->local_slots;
    if (!ctrl_enter(w, emit, &c))
        return false;
    if (emit && !w->dead)
        em_try(w, w->top);
    return true;
}

/* ---- Variables ---- */

INLINE bool local_ok(struct scratch *w, uint32_t i) {
    return LIKELY(i < w->n_locals) || reader_fail(&w->r, WASM_INVALID, "unknown local %u", i);
}

COLD static void local_was_set(struct scratch *w, uint32_t i) {
    if (w->set[i])
        return;
    w->set[i] = 1;
    if (engine_grow(w->e, &w->set_list, &w->cap_set_list, w->n_set_list + 1, sizeof *w->set_list))
        w->set_list[w->n_set_list++] = i;
    else
        reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

INLINE bool do_local_get(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!local_ok(w, i))
        return false;
    if (UNLIKELY(w->has_unset) && !w->set[i])
        return reader_fail(&w->r, WASM_INVALID, "uninitialized local %u", i);
    if (emit && !w->dead)
        em_local_get(w, i);
    return push_out(w, emit, w->locals[i]);
}

INLINE bool do_local_set(struct scratch *w, const bool emit, bool is_tee) {
    uint32_t i = reader_u32(&w->r);
    if (!local_ok(w, i))
        return false;
    if (emit && !w->dead)
        (is_tee ? em_local_tee : em_local_set)(w, i);
    if (!pop(w, w->locals[i]))
        return false;
    if (UNLIKELY(w->has_unset))
        local_was_set(w, i);
    return !is_tee || push_out(w, emit, w->locals[i]);
}

INLINE bool do_global(struct scratch *w, const bool emit, bool is_set) {
    uint32_t i = reader_u32(&w->r);
    if (i >= w->m->n_globals)
        return reader_fail(&w->r, WASM_INVALID, "unknown global %u", i);
    const struct global_decl *g = &w->m->globals[i];
    if (is_set && !g->is_mutable)
        return reader_fail(&w->r, WASM_INVALID, "immutable global: global %u cannot be set", i);
    if (emit && !w->dead)
        em_global(w, i, g->type, is_set);
    return is_set ? pop(w, g->type) : push_out(w, emit, g->type);
}

/* ---- Memory ---- */

struct memarg {
    uint32_t mem;
    uint64_t offset;
};

static bool mem_ok(struct scratch *w, uint32_t i) {
    return i < w->m->n_mems || reader_fail(&w->r, WASM_INVALID, "unknown memory %u", i);
}

static uint32_t mem_type(struct scratch *w, uint32_t i) {
    return w->m->mems[i].l.is64 ? WASM_I64 : WASM_I32;
}

COLD static bool memarg_slow(struct scratch *w, unsigned natural, struct memarg *ret) {
    struct reader *r = &w->r;
    uint32_t align = reader_u32(r);
    ret->mem = 0;
    if (w->m->level >= WASM_3_0) {
        if (align >= 0x80)
            return reader_fail(r, WASM_MALFORMED, "malformed memop flags");
        if (align & 0x40)
            ret->mem = reader_u32(r);
        align &= 0x3f;
        ret->offset = reader_u64(r);
    } else {
        if (align >= 32)
            return reader_fail(r, WASM_MALFORMED, "malformed memop alignment");
        ret->offset = reader_u32(r);
    }
    if (r->failed || !mem_ok(w, ret->mem))
        return false;
    if (align > natural)
        return reader_fail(r, WASM_INVALID, "alignment must not be larger than natural");
    if (!w->m->mems[ret->mem].l.is64 && ret->offset > UINT32_MAX)
        return reader_fail(r, WASM_INVALID, "offset out of range");
    return true;
}

INLINE bool memarg(struct scratch *w, unsigned natural, struct memarg *ret) {
    struct reader *r = &w->r;
    if (LIKELY(r->end - r->p >= 2 && r->p[0] <= natural && r->p[1] < 0x80 && w->m->n_mems)) {
        ret->mem = 0;
        ret->offset = r->p[1];
        r->p += 2;
        return true;
    }
    return memarg_slow(w, natural, ret);
}

INLINE bool do_load(struct scratch *w, const bool emit, uint32_t row, uint32_t result) {
    struct memarg a;
    if (!memarg(w, wasm_ops[row].align, &a))
        return false;
    if (emit && !w->dead)
        em_load(w, row, a.mem, a.offset);
    return pop(w, mem_type(w, a.mem)) && push_out(w, emit, result);
}

INLINE bool do_store(struct scratch *w, const bool emit, uint32_t row, uint32_t value) {
    struct memarg a;
    if (!memarg(w, wasm_ops[row].align, &a))
        return false;
    if (emit && !w->dead)
        em_store(w, row, a.mem, a.offset);
    return pop(w, value) && pop(w, mem_type(w, a.mem));
}

static bool mem_index(struct scratch *w, uint32_t *ret) {
    if (w->m->level < WASM_3_0) {
        *ret = reader_byte(&w->r);
        if (*ret != 0)
            return reader_fail(&w->r, WASM_MALFORMED, "zero byte expected");
    } else {
        *ret = reader_u32(&w->r);
    }
    return !w->r.failed && mem_ok(w, *ret);
}

INLINE bool do_memory_size(struct scratch *w, const bool emit) {
    uint32_t i;
    if (!mem_index(w, &i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_MEMORY_SIZE, 0, true, &extra, 1);
    return push_out(w, emit, mem_type(w, i));
}

INLINE bool do_memory_grow(struct scratch *w, const bool emit) {
    uint32_t i;
    if (!mem_index(w, &i))
        return false;
    if (emit && !w->dead)
        em_bulk(w, OP_MEMORY_GROW, 1, i, 0);
    if (!pop(w, mem_type(w, i)) || !push(w, emit, mem_type(w, i)))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

/* ---- References and tables ---- */

INLINE bool do_ref_null(struct scratch *w, const bool emit) {
    uint32_t heap = module_heaptype(w->m, &w->r);
    if (w->r.failed)
        return false;
    if (emit && !w->dead)
        em_const(w, 0);
    return push_out(w, emit, WASM_REF | WASM_NULLABLE | heap);
}

INLINE bool do_ref_func(struct scratch *w, const bool emit) {
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

INLINE bool do_ref_is_null(struct scratch *w, const bool emit) {
    uint32_t t;
    if (emit && !w->dead)
        em_plain(w, OP_REF_IS_NULL, 1, true, NULL, 0);
    return pop_ref(w, &t) && push_out(w, emit, WASM_I32);
}

INLINE bool do_ref_as_non_null(struct scratch *w, const bool emit) {
    uint32_t t;
    if (emit && !w->dead)
        em_plain(w, I_NULL_CHECK, 1, false, NULL, 0);
    if (!pop_ref(w, &t))
        return false;
    /* The check left the operand in its slot. */
    return push(w, emit, t & ~WASM_NULLABLE);
}

INLINE bool do_br_on_null(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), t, n;
    struct ctrl *c = label(w, depth);
    if (!c)
        return false;
    if (emit && !w->dead)
        em_br_null(w, depth, true);
    const uint32_t *types = ctrl_label(c, &n);
    return pop_ref(w, &t) && pop_types(w, types, n) && push_types(w, emit, types, n) &&
           push(w, emit, t & ~WASM_NULLABLE);
}

INLINE bool do_br_on_non_null(struct scratch *w, const bool emit) {
    uint32_t depth = reader_u32(&w->r), t, n;
    struct ctrl *c = label(w, depth);
    if (!c)
        return false;
    const uint32_t *types = ctrl_label(c, &n);
    if (n == 0 || !is_ref(types[n - 1]))
        return fail_type(w, "type mismatch: the label takes no reference");
    if (emit && !w->dead)
        em_br_null(w, depth, false);
    if (!pop_ref(w, &t))
        return false;
    if (t != 0 && !types_sub(w->e, t & ~WASM_NULLABLE, types[n - 1]))
        return mismatch(w, types[n - 1]);
    return pop_types(w, types, n - 1) && push_types(w, emit, types, n - 1);
}

INLINE bool do_table_get(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!table_ok(w, i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_TABLE_GET, 1, true, &extra, 1);
    return pop(w, table_index_type(w, i)) && push_out(w, emit, w->m->tables[i].type);
}

INLINE bool do_table_set(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!table_ok(w, i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_TABLE_SET, 2, false, &extra, 1);
    return pop(w, w->m->tables[i].type) && pop(w, table_index_type(w, i));
}

INLINE bool do_select(struct scratch *w, const bool emit) {
    uint32_t a, b;
    if (!pop(w, WASM_I32) || !pop_any(w, &b) || !pop_any(w, &a))
        return false;
    if (is_ref(a) || is_ref(b))
        return fail_type(w, "type mismatch: select of references needs its type");
    if (a != b && a != 0 && b != 0)
        return fail_type(w, "type mismatch: select needs two operands of one type");
    uint32_t t = a ? a : b;
    w->n = w->n_before; /* the emitter looks at the operands */
    if (emit && !w->dead)
        em_select(w, t);
    w->n = w->n_before - w->floor < 3 ? w->floor : w->n_before - 3;
    return push_out(w, emit, t);
}

INLINE bool do_select_t(struct scratch *w, const bool emit) {
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

/* ---- The 0xfc instructions ---- */

static bool data_ok(struct scratch *w, uint32_t i) {
    if (!w->m->has_data_count)
        return reader_fail(&w->r, WASM_MALFORMED, "data count section required");
    return i < w->m->n_data_count || reader_fail(&w->r, WASM_INVALID, "unknown data segment %u", i);
}

static bool elem_ok(struct scratch *w, uint32_t i) {
    return i < w->m->n_elems || reader_fail(&w->r, WASM_INVALID, "unknown elem segment %u", i);
}

static uint32_t narrower(uint32_t a, uint32_t b) {
    return a == WASM_I64 && b == WASM_I64 ? WASM_I64 : WASM_I32;
}

/* Operand types of a bulk instruction, after checking its indices x and y. */
static bool bulk_types(struct scratch *w, uint32_t row, uint32_t x, uint32_t y, uint32_t in[3]) {
    struct wasm_module *m = w->m;
    switch (row) {
    case OP_MEMORY_INIT:
        if (!mem_ok(w, y) || !data_ok(w, x))
            return false;
        in[0] = mem_type(w, y), in[1] = in[2] = WASM_I32;
        return true;
    case OP_MEMORY_COPY:
        if (!mem_ok(w, x) || !mem_ok(w, y))
            return false;
        in[0] = mem_type(w, x), in[1] = mem_type(w, y), in[2] = narrower(in[0], in[1]);
        return true;
    case OP_MEMORY_FILL:
        if (!mem_ok(w, x))
            return false;
        in[0] = in[2] = mem_type(w, x), in[1] = WASM_I32;
        return true;
    case OP_TABLE_INIT:
        if (!table_ok(w, y) || !elem_ok(w, x))
            return false;
        if (!types_sub(w->e, m->elems[x].type, m->tables[y].type))
            return fail_type(w, "type mismatch between segment and table");
        in[0] = table_index_type(w, y), in[1] = in[2] = WASM_I32;
        return true;
    case OP_TABLE_COPY:
        if (!table_ok(w, x) || !table_ok(w, y))
            return false;
        if (!types_sub(w->e, m->tables[y].type, m->tables[x].type))
            return fail_type(w, "type mismatch between tables");
        in[0] = table_index_type(w, x), in[1] = table_index_type(w, y),
        in[2] = narrower(in[0], in[1]);
        return true;
    default: /* OP_TABLE_FILL */
        if (!table_ok(w, x))
            return false;
        in[0] = in[2] = table_index_type(w, x), in[1] = m->tables[x].type;
        return true;
    }
}

INLINE bool do_bulk(struct scratch *w, const bool emit, uint32_t row, uint32_t x, uint32_t y) {
    uint32_t in[3];
    if (w->r.failed || !bulk_types(w, row, x, y, in))
        return false;
    if (emit && !w->dead)
        em_bulk(w, row, 3, x, y);
    if (!pop(w, in[2]) || !pop(w, in[1]) || !pop(w, in[0]))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

INLINE bool do_table_grow(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!table_ok(w, i))
        return false;
    if (emit && !w->dead)
        em_bulk(w, OP_TABLE_GROW, 2, i, 0);
    uint32_t at = table_index_type(w, i);
    if (!pop(w, at) || !pop(w, w->m->tables[i].type) || !push(w, emit, at))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

INLINE bool do_table_size(struct scratch *w, const bool emit) {
    uint32_t i = reader_u32(&w->r);
    if (!table_ok(w, i))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, OP_TABLE_SIZE, 0, true, &extra, 1);
    return push_out(w, emit, table_index_type(w, i));
}

INLINE bool do_drop_segment(struct scratch *w, const bool emit, uint32_t row) {
    uint32_t i = reader_u32(&w->r);
    if (!(row == OP_DATA_DROP ? data_ok(w, i) : elem_ok(w, i)))
        return false;
    uint64_t extra = i;
    if (emit && !w->dead)
        em_plain(w, (uint16_t)row, 0, false, &extra, 1);
    return true;
}

INLINE bool do_trunc_sat(struct scratch *w, const bool emit, uint32_t row) {
    const char *sig = wasm_ops[row].sig;
    if (emit && !w->dead)
        em_plain(w, (uint16_t)row, 1, true, NULL, 0);
    return pop(w, letter_type(w, sig[0])) && push_out(w, emit, letter_type(w, sig[2]));
}

INLINE bool do_fc(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    uint32_t row = w->op = wasm_op_find(0xfc, reader_u32(r)), x, y;
    if (r->failed)
        return false;
    if (row == OP_COUNT || wasm_ops[row].level > w->m->level)
        return reader_fail(r, WASM_MALFORMED, "illegal opcode fc");
    bool bulk = wasm_ops[row].fuel == FUEL_BYTES || wasm_ops[row].fuel == FUEL_ELEMS;
    if (emit && !w->dead && !bulk)
        em_pay(w, 1);
    switch (wasm_ops[row].imm) {
    case IMM_NONE:
        return do_trunc_sat(w, emit, row);
    case IMM_DATA:
    case IMM_ELEM:
        return do_drop_segment(w, emit, row);
    case IMM_DATA_MEM:
        x = reader_u32(r);
        return (w->m->level < WASM_3_0 ? mem_index(w, &y) : (y = reader_u32(r), !r->failed)) &&
               do_bulk(w, emit, row, x, y);
    case IMM_MEM2:
        if (w->m->level < WASM_3_0)
            return mem_index(w, &x) && mem_index(w, &y) && do_bulk(w, emit, row, x, y);
        x = reader_u32(r), y = reader_u32(r);
        return do_bulk(w, emit, row, x, y);
    case IMM_MEM:
        return mem_index(w, &x) && do_bulk(w, emit, row, x, 0);
    case IMM_ELEM_TABLE:
    case IMM_TABLE2:
        x = reader_u32(r), y = reader_u32(r);
        return do_bulk(w, emit, row, x, y);
    default:
        if (row == OP_TABLE_GROW)
            return do_table_grow(w, emit);
        if (row == OP_TABLE_SIZE)
            return do_table_size(w, emit);
        x = reader_u32(r);
        return do_bulk(w, emit, row, x, 0);
    }
}

/* ---- Vectors ---- */

static const uint16_t simd_iops[] = {
    [SIMD_UNARY] = I_V_UNARY,     [SIMD_BINARY] = I_V_BINARY,   [SIMD_TERNARY] = I_V_TERNARY,
    [SIMD_SHIFT] = I_V_SHIFT,     [SIMD_TEST] = I_V_TEST,       [SIMD_SPLAT] = I_V_SPLAT,
    [SIMD_EXTRACT] = I_V_EXTRACT, [SIMD_REPLACE] = I_V_REPLACE,
};

static bool simd_lane(struct scratch *w, const struct simd_op *op, uint64_t *ret) {
    *ret = reader_byte(&w->r);
    return *ret < op->lanes || reader_fail(&w->r, WASM_INVALID, "invalid lane index");
}

/* Words for a memory access of the slow kind: any memory, any width of address. */
static void access_words(uint64_t words[2], uint32_t row, const struct memarg *a, uint64_t lane) {
    words[0] = (uint64_t)row | lane << 16 | (uint64_t)a->mem << 32;
    words[1] = a->offset;
}

INLINE bool do_simd_memory(struct scratch *w, const bool emit, uint32_t row,
                           const struct simd_op *op) {
    struct memarg a;
    uint64_t lane = 0, words[2];
    if (!memarg(w, wasm_ops[row].align, &a))
        return false;
    bool is_lane = op->shape == SIMD_LOAD_LANE || op->shape == SIMD_STORE_LANE;
    bool is_load = op->shape == SIMD_LOAD || op->shape == SIMD_LOAD_LANE;
    if (is_lane && !simd_lane(w, op, &lane))
        return false;
    access_words(words, wasm_ops[row].code, &a, lane);
    static const uint16_t iops[] = {I_V_LOAD, I_V_STORE, I_V_LOAD_LANE, I_V_STORE_LANE};
    if (emit && !w->dead)
        em_plain(w, iops[op->shape - SIMD_LOAD], op->shape == SIMD_LOAD ? 1 : 2, is_load, words, 2);
    if (op->shape != SIMD_LOAD && !pop(w, WASM_V128))
        return false;
    return pop(w, mem_type(w, a.mem)) && (!is_load || push_out(w, emit, WASM_V128));
}

INLINE bool do_shuffle(struct scratch *w, const bool emit) {
    const uint8_t *lanes = reader_bytes(&w->r, 16);
    if (!lanes)
        return false;
    for (int i = 0; i < 16; i++)
        if (lanes[i] >= 32)
            return reader_fail(&w->r, WASM_INVALID, "invalid lane index");
    uint64_t words[2];
    memcpy(words, lanes, 16);
    if (emit && !w->dead)
        em_plain(w, I_V_SHUFFLE, 2, true, words, 2);
    return pop(w, WASM_V128) && pop(w, WASM_V128) && push_out(w, emit, WASM_V128);
}

INLINE bool do_simd_value(struct scratch *w, const bool emit, uint32_t row,
                          const struct simd_op *op) {
    uint64_t words[2];
    memcpy(words, &op->unary, sizeof(void *));
    words[1] = 0;
    bool has_lane = wasm_ops[row].imm == IMM_LANE;
    if (has_lane && !simd_lane(w, op, &words[1]))
        return false;
    const char *sig = wasm_ops[row].sig, *colon = strchr(sig, ':');
    unsigned n_in = (unsigned)(colon - sig);
    if (emit && !w->dead)
        em_plain(w, simd_iops[op->shape], n_in, true, words, 2);
    for (unsigned i = n_in; i-- > 0;)
        if (!pop(w, letter_type(w, sig[i])))
            return false;
    return push_out(w, emit, letter_type(w, colon[1]));
}

INLINE bool do_fd(struct scratch *w, const bool emit) {
    struct reader *r = &w->r;
    uint32_t row = w->op = wasm_op_find(0xfd, reader_u32(r));
    if (r->failed)
        return false;
    if (row == OP_COUNT || wasm_ops[row].level > w->m->level)
        return reader_fail(r, WASM_MALFORMED, "illegal opcode fd");
    const struct simd_op *op = simd_op(wasm_ops[row].code);
    if (emit && !w->dead)
        em_pay(w, 1);
    switch (wasm_ops[row].imm) {
    case IMM_V128: {
        const uint8_t *bytes = reader_bytes(r, 16);
        if (!bytes)
            return false;
        if (emit && !w->dead)
            em_const128(w, bytes);
        return push_out(w, emit, WASM_V128);
    }
    case IMM_SHUFFLE:
        return do_shuffle(w, emit);
    case IMM_MEMARG:
    case IMM_MEMARG_LANE:
        return do_simd_memory(w, emit, row, op);
    default:
        return do_simd_value(w, emit, row, op);
    }
}

/* ---- The walk ---- */

INLINE bool do_numeric(struct scratch *w, const bool emit, uint8_t byte,
                       const struct plain_op *op) {
    if (emit && !w->dead)
        em_numeric(w, byte, op->n_in);
    if (op->n_in == 2 && !pop(w, op->in[1]))
        return false;
    return pop(w, op->in[0]) && push_out(w, emit, op->out);
}

INLINE bool do_const(struct scratch *w, const bool emit, uint8_t byte) {
    struct reader *r = &w->r;
    uint64_t k = 0;
    const uint8_t *p;
    switch (byte) {
    case 0x41:
        if (LIKELY(r->p < r->end && *r->p < 0x80)) {
            k = (uint32_t)((int32_t)((uint32_t)*r->p++ << 25) >> 25);
            break;
        }
        k = (uint32_t)reader_s32(r);
        break;
    case 0x42:
        k = (uint64_t)reader_s64(r);
        break;
    default: {
        unsigned n = byte == 0x43 ? 4 : 8;
        if ((p = reader_bytes(r, n)))
            memcpy(&k, p, n);
    }
    }
    if (r->failed)
        return false;
    if (emit && !w->dead)
        em_const(w, k);
    return push_out(w, emit, 0x7fu - (byte - 0x41u));
}

#include "wasm/walk_objects.h"

INLINE bool instruction(struct scratch *w, const bool emit) {
    uint8_t byte = reader_byte(&w->r);
    const struct plain_op *op = &w->e->plain[byte];
    w->op = op->row;
    w->n_before = w->n;
    if (UNLIKELY(op->level > w->m->level))
        return reader_fail(&w->r, WASM_MALFORMED, "illegal opcode %02x", byte);
    if (emit && !w->dead)
        em_pay(w, op->cost);
    switch (byte) {
    case 0x00:
        if (emit && !w->dead)
            em_unreachable(w);
        set_unreachable(w, emit);
        return true;
    case 0x01:
        return true;
    case 0x02:
        return do_block(w, emit, OP_BLOCK);
    case 0x03:
        return do_block(w, emit, OP_LOOP);
    case 0x04:
        return do_block(w, emit, OP_IF);
    case 0x05:
        return do_else(w, emit);
    case 0x08:
        return do_throw(w, emit);
    case 0x0a:
        return do_throw_ref(w, emit);
    case 0x0b:
        return do_end(w, emit);
    case 0x0c:
        return do_br(w, emit);
    case 0x0d:
        return do_br_if(w, emit);
    case 0x0e:
        return do_br_table(w, emit);
    case 0x0f:
        return do_return(w, emit);
    case 0x10:
    case 0x12:
        return do_call(w, emit, byte == 0x12);
    case 0x11:
    case 0x13:
        return do_call_indirect(w, emit, byte == 0x13);
    case 0x14:
    case 0x15:
        return do_call_ref(w, emit, byte == 0x15);
    case 0x1a: {
        uint32_t t;
        return pop_any(w, &t);
    }
    case 0x1b:
        return do_select(w, emit);
    case 0x1c:
        return do_select_t(w, emit);
    case 0x1f:
        return do_try_table(w, emit);
    case 0x20:
        return do_local_get(w, emit);
    case 0x21:
        return do_local_set(w, emit, false);
    case 0x22:
        return do_local_set(w, emit, true);
    case 0x23:
        return do_global(w, emit, false);
    case 0x24:
        return do_global(w, emit, true);
    case 0x25:
        return do_table_get(w, emit);
    case 0x26:
        return do_table_set(w, emit);
    case 0x28 ... 0x35:
        return do_load(w, emit, op->row, op->out);
    case 0x36 ... 0x3e:
        return do_store(w, emit, op->row, op->in[1]);
    case 0x3f:
        return do_memory_size(w, emit);
    case 0x40:
        return do_memory_grow(w, emit);
    case 0x41 ... 0x44:
        return do_const(w, emit, byte);
    case 0x45 ... 0xc4:
        return do_numeric(w, emit, byte, op);
    case 0xd0:
        return do_ref_null(w, emit);
    case 0xd1:
        return do_ref_is_null(w, emit);
    case 0xd2:
        return do_ref_func(w, emit);
    case 0xd4:
        return do_ref_as_non_null(w, emit);
    case 0xd5:
        return do_br_on_null(w, emit);
    case 0xd6:
        return do_br_on_non_null(w, emit);
    case 0xfc:
        return do_fc(w, emit);
    case 0xfd:
        return do_fd(w, emit);
    case 0xd3:
        return do_ref_eq(w, emit);
    default:
        return do_fb(w, emit);
    }
}

/* The sum of all groups first: too many for the format is another failure than too many for us. */
static bool locals_count(struct scratch *w, uint32_t groups) {
    struct reader at = w->r;
    uint64_t total = w->fn->type->n_params;
    for (uint32_t g = 0; g < groups && !w->r.failed; g++) {
        total += reader_u32(&w->r);
        module_valtype(w->m, &w->r);
        if (!w->r.failed && total > UINT32_MAX)
            return reader_fail(&w->r, WASM_MALFORMED, "too many locals");
    }
    if (w->r.failed)
        return false;
    if (total > MAX_LOCALS)
        return reader_fail(&w->r, WASM_TOO_BIG, "too many locals: limit %d", MAX_LOCALS);
    w->m->n_locals += total;
    if (w->m->n_locals > MAX_ALL_LOCALS && !w->fn->mod->is_loaded)
        return reader_fail(&w->r, WASM_TOO_BIG, "too many locals in all functions");
    w->r = at;
    return engine_grow(w->e, &w->locals, &w->cap_locals, (uint32_t)total, sizeof *w->locals) ||
           reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
}

static void local_add(struct scratch *w, uint32_t type) {
    w->locals[w->n_locals++] = type;
    w->local_slots += slots_of(type);
}

static bool locals(struct scratch *w) {
    struct reader *r = &w->r;
    const struct type *t = w->fn->type;
    uint32_t groups = reader_u32(r);
    if (groups > (size_t)(r->end - r->p))
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    w->n_params = t->n_params;
    w->n_locals = 0;
    w->local_slots = 0;
    w->has_unset = false;
    if (r->failed || !locals_count(w, groups))
        return false;
    for (uint32_t i = 0; i < t->n_params; i++)
        local_add(w, t->vals[i]);
    for (uint32_t g = 0; g < groups; g++) {
        uint32_t n = reader_u32(r), type = module_valtype(w->m, r);
        w->has_unset |= n && !is_defaultable(type);
        while (n-- > 0)
            local_add(w, type);
    }
    return w->local_slots < MAX_FRAME_SLOTS - 64 ||
           reader_fail(r, WASM_TOO_BIG, "too many locals: the frame is too big");
}

static bool unset_init(struct scratch *w) {
    if (!w->has_unset)
        return true;
    if (!engine_grow(w->e, &w->set, &w->cap_set, w->n_locals, 1))
        return reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
    for (uint32_t i = 0; i < w->n_locals; i++)
        w->set[i] = i < w->n_params || is_defaultable(w->locals[i]);
    return true;
}

static struct scratch *begin(struct fn *fn, struct wasm_diag *diag) {
    struct wasm_module *m = fn->mod;
    struct wasm_engine *e = m->engine;
    if (!e->scratch && !(e->scratch = engine_alloc(e, sizeof *e->scratch)))
        return NULL;
    struct scratch *w = e->scratch;
    const uint8_t *at = m->bytes + fn->body;
    w->r = (struct reader){.p = at, .end = at + fn->body_size, .base = m->bytes, .diag = diag};
    w->m = m;
    w->e = e;
    w->fn = fn;
    w->ins = at;
    w->op = OP_COUNT;
    w->n = w->floor = w->n_before = 0;
    w->n_ctrls = w->n_set_list = w->n_catches = 0;
    w->out.kind = OPND_SLOT;
    w->visit = NULL;
    return w;
}

static bool enter(struct scratch *w) {
    struct ctrl c = {.op = OP_CALL, .type = w->fn->type, .sites = NO_LINK, .else_site = NO_LINK};
    if (!ctrl_room(w))
        return false;
    w->top = &w->ctrls[w->n_ctrls++];
    *w->top = c;
    w->top->base = w->local_slots;
    return true;
}

INLINE bool body(struct scratch *w, const bool emit) {
    do {
        w->ins = w->r.p;
        if (!instruction(w, emit) || UNLIKELY(w->r.failed))
            return false;
    } while (w->n_ctrls);
    return w->r.p == w->r.end ||
           reader_fail(&w->r, WASM_MALFORMED, "section size mismatch: code after the end");
}

static bool body_validate(struct scratch *w) {
    return body(w, false);
}

static bool body_emit(struct scratch *w) {
    return body(w, true);
}

bool walk_validate(struct wasm_module *m, struct fn *fn, struct wasm_diag *diag) {
    struct scratch *w = begin(fn, diag);
    if (!w) {
        diag->fault = WASM_TOO_BIG;
        snprintf(diag->message, sizeof diag->message, "out of memory");
        return false;
    }
    if (locals(w) && unset_init(w) && enter(w) && body_validate(w))
        return true;
    struct wasm_diag form = {0};
    if (diag->fault == WASM_INVALID && !skip_body(fn, &form))
        *diag = form; /* not well-formed either: that comes first */
    diag->func = fn->index;
    diag->op = (uint16_t)w->op;
    diag->offset = (size_t)(w->ins - m->bytes);
    if (!w->r.failed) { /* every failure says why; this is for the reader's sake */
        diag->fault = WASM_INVALID;
        snprintf(diag->message, sizeof diag->message, "type mismatch");
    }
    return false;
}

/* ---- Making code ---- */

static struct code *code_take(struct scratch *w) {
    struct wasm_engine *e = w->e;
    struct code *c = engine_alloc(e, sizeof *c);
    uint64_t *words = engine_alloc(e, w->n_words * sizeof *words);
    struct handler *handlers = engine_alloc(e, w->n_handlers * sizeof *handlers);
    if (!c || !words || !handlers || w->no_memory) {
        engine_release(e, c, sizeof *c);
        engine_release(e, words, w->n_words * sizeof *words);
        engine_release(e, handlers, w->n_handlers * sizeof *handlers);
        return NULL;
    }
    memcpy(words, w->words, w->n_words * sizeof *words);
    if (w->n_handlers)
        memcpy(handlers, w->handlers, w->n_handlers * sizeof *handlers);
    *c = (struct code){.words = words,
                       .n_words = w->n_words,
                       .handlers = handlers,
                       .n_handlers = w->n_handlers,
                       .stepping = w->stepping};
    return c;
}

static struct scratch *translate_with(struct scratch *w, bool stepping, bool recording) {
    w->stepping = stepping;
    w->recording = recording;
    if (!locals(w) || !unset_init(w) || !enter(w))
        return NULL;
    em_begin(w);
    if (w->no_memory || !body_emit(w))
        return NULL;
    em_end(w);
    return w->no_memory ? NULL : w;
}

static struct scratch *translate(struct fn *fn, bool stepping, bool recording) {
    struct wasm_diag diag; /* the body is valid: only memory can be missing */
    struct scratch *w = begin(fn, &diag);
    return w ? translate_with(w, stepping, recording) : NULL;
}

struct code *walk_emit(struct fn *fn, bool stepping) {
    struct scratch *w = translate(fn, stepping, false);
    if (!w)
        return NULL;
    struct code *c = code_take(w);
    if (c) {
        fn->frame_slots = w->max_slots;
        fn->zero_slots = w->local_slots - fn->param_slots;
        if (!stepping)
            fn->entry_cost = w->entry_cost;
    }
    return c;
}

bool walk_marks(struct fn *fn, struct code *c) {
    if (c->marks)
        return true;
    struct scratch *w = translate(fn, c->stepping, true);
    if (!w)
        return false;
    struct mark *marks = engine_alloc(w->e, w->n_marks * sizeof *marks);
    if (!marks)
        return false;
    memcpy(marks, w->marks, w->n_marks * sizeof *marks);
    for (uint32_t i = 1; i < w->n_marks; i++) /* they are searched by either */
        assert(marks[i - 1].pos <= marks[i].pos && marks[i - 1].offset <= marks[i].offset);
    c->n_marks = w->n_marks;
    c->marks = marks;
    return true;
}

bool walk_types(struct fn *fn, struct code *c,
                void (*visit)(void *ctx, uint32_t mark, const struct mark_types *t), void *ctx) {
    struct wasm_diag diag;
    struct scratch *w = begin(fn, &diag);
    if (!w)
        return false;
    w->visit = visit;
    w->visit_ctx = ctx;
    return translate_with(w, c->stepping, true) != NULL;
}

void scratch_free(struct wasm_engine *e) {
    struct scratch *w = e->scratch;
    if (!w)
        return;
    engine_release(e, w->types, w->cap * sizeof *w->types);
    engine_release(e, w->ctrls, w->cap_ctrls * sizeof *w->ctrls);
    engine_release(e, w->locals, w->cap_locals * sizeof *w->locals);
    engine_release(e, w->set, w->cap_set);
    engine_release(e, w->set_list, w->cap_set_list * sizeof *w->set_list);
    engine_release(e, w->vals, w->cap_vals * sizeof *w->vals);
    engine_release(e, w->slots, w->cap_slots * sizeof *w->slots);
    engine_release(e, w->words, w->cap_words * sizeof *w->words);
    engine_release(e, w->nodes, w->cap_nodes * sizeof *w->nodes);
    engine_release(e, w->sites, w->cap_sites * sizeof *w->sites);
    engine_release(e, w->marks, w->cap_marks * sizeof *w->marks);
    engine_release(e, w->handlers, w->cap_handlers * sizeof *w->handlers);
    engine_release(e, w->catches, w->cap_catches * sizeof *w->catches);
    engine_release(e, w, sizeof *w);
}

void plain_ops_init(struct plain_op ops[256]) {
    static const uint8_t letters[128] = {
        ['i'] = WASM_I32, ['I'] = WASM_I64, ['f'] = WASM_F32, ['F'] = WASM_F64, ['v'] = WASM_V128};
    for (uint32_t b = 0; b < 256; b++) {
        struct plain_op *p = &ops[b];
        *p = (struct plain_op){.row = (uint16_t)wasm_op_find(0, b), .level = 255};
        if (p->row == OP_COUNT) {
            if (b == 0xfb || b == 0xfc || b == 0xfd)
                p->level = 0;
            continue;
        }
        const struct wasm_op_info *info = &wasm_ops[p->row];
        p->level = info->level;
        /* The others pay in emit.c, or for themselves. */
        p->cost = info->fuel == FUEL_ONE && p->row != OP_REF_EQ;
        const char *s = info->sig;
        if (s[0] == '*')
            continue;
        for (; *s != ':'; s++)
            p->in[p->n_in++] = letters[(uint8_t)*s];
        p->out = letters[(uint8_t)s[1]];
    }
}
