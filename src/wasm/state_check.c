/*
 * Checks that every value of a store that was read from bytes has the type of its place.
 *
 * The interpreter trusts validation: it does not check again whether a reference has the type that
 * an instruction expects. So a saved state must not put a value where the module could not have put
 * it. The types of a frame's slots are those of the walk at the mark (the stop point) of the frame.
 */
#include "base/sort.h"
#include "wasm/interp.h"
#include "wasm/iops.h"
#include "wasm/state.h"

#define I31_TAG 10u

/* ---- Values ---- */

static int compare_numbers(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* True for a host handle that the host accepted when the saved state was read. */
static bool is_handle(const struct wasm_store *s, uint64_t ref) {
    uint64_t handle = ref - 1;
    return s->n_handles &&
           bsearch(&handle, s->handles, s->n_handles, sizeof handle, compare_numbers);
}

static bool ref_fits(const struct wasm_store *s, uint64_t ref, uint32_t type) {
    const struct wasm_engine *e = s->engine;
    if (ref == 0)
        return type & WASM_NULLABLE;
    if (types_sub(e, type, WASM_FUNCREF))
        return object_is(s, ref, type);
    if (types_sub(e, type, WASM_EXNREF))
        return WASM_HEAP(type) == WASM_HEAP(WASM_EXNREF) && store_exn(s, ref);
    bool own = store_object(s, ref) || ref >> 60 == I31_TAG;
    if (types_sub(e, type, WASM_EXTERNREF))
        return WASM_HEAP(type) == WASM_HEAP(WASM_EXTERNREF) && (own || is_handle(s, ref));
    return object_is(s, ref, type) && (own || is_handle(s, ref));
}

static bool value_is(const struct wasm_store *s, const uint64_t *slot, uint32_t type) {
    switch (type) {
    case WASM_I32:
    case WASM_F32:
        return slot[0] <= UINT32_MAX;
    case TYPE_I8:
        return slot[0] <= UINT8_MAX;
    case TYPE_I16:
        return slot[0] <= UINT16_MAX;
    default:
        return !is_ref(type) || ref_fits(s, slot[0], type);
    }
}

static bool values_are(const struct wasm_store *s, const uint64_t *slots, const uint32_t *types,
                       uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        uint32_t type = types[i] & ~FIELD_MUTABLE;
        if (!value_is(s, slots, type))
            return false;
        slots += slots_of(type);
    }
    return true;
}

static bool refs_are(const struct wasm_store *s, const uint64_t *refs, uint64_t n, uint32_t type) {
    for (uint64_t i = 0; i < n; i++)
        if ((i == 0 || refs[i] != refs[i - 1]) && !ref_fits(s, refs[i], type))
            return false;
    return true;
}

static bool results_fit(const struct wasm_engine *e, const struct type *from, const uint32_t *to,
                        uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        if (!types_sub(e, from->vals[from->n_params + i], to[i]))
            return false;
    return true;
}

/* ---- Objects ---- */

static bool object_fits(const struct wasm_store *s, const struct object *o) {
    if (o->type == NO_TYPE)
        return true;
    const struct type *t = s->engine->types[o->type];
    if (t->kind == TYPE_STRUCT)
        return values_are(s, o->slots, t->vals, t->n_params);
    uint32_t type = t->vals[0] & ~FIELD_MUTABLE;
    for (uint32_t i = 0; i < o->n; i++)
        if (!value_is(s, o->slots + (size_t)i * t->param_slots, type))
            return false;
    return true;
}

static const char *contents_check(const struct wasm_store *s) {
    for (uint32_t i = 0; i < s->n_globals; i++)
        if (!value_is(s, s->globals[i]->value, s->globals[i]->type))
            return "a global has a value of another type";
    for (uint32_t i = 0; i < s->n_tables; i++)
        if (!refs_are(s, s->tables[i]->elems, s->tables[i]->size, s->tables[i]->type))
            return "a table has an element of another type";
    for (uint32_t i = 1; i < s->n_insts; i++)
        for (uint32_t k = 0; k < s->insts[i]->mod->n_elems; k++)
            if (s->insts[i]->elem_refs[k] &&
                !refs_are(s, s->insts[i]->elem_refs[k], s->insts[i]->mod->elems[k].n,
                          s->insts[i]->mod->elems[k].type))
                return "a segment has an element of another type";
    for (uint32_t i = 0; i < s->n_objs; i++)
        if (!object_fits(s, &s->objs[i]))
            return "an object has a field of another type";
    for (uint32_t i = 0; i < s->n_exns; i++) {
        const struct exn *x = &s->exns[i];
        if (x->tag == NO_TYPE)
            continue;
        const struct type *t = s->engine->types[s->tags[x->tag].canon];
        if (!values_are(s, x->slots, t->vals, t->n_params))
            return "an exception has a value of another type";
    }
    return NULL;
}

/* ---- Frames ---- */

/* One frame, and what is needed to check its slots. */
struct place {
    struct fn *fn;
    struct code *code;
    uint32_t mark; /* number of the mark where the frame stopped */
    const uint64_t *fp;
    uint32_t limit;           /* number of slots to check; those above belong to the callee */
    const struct type *gives; /* type of the called function; NULL: the frame waits for none */
    uint32_t at;              /* slot for the results of the callee; NO_TYPE: top of the stack */
};

struct check {
    const struct wasm_store *s;
    struct place *places;
    uint32_t n, next;
    bool failed;
};

static bool locals_fit(const struct wasm_store *s, const struct place *p,
                       const struct mark_types *t) {
    const uint64_t *slot = p->fp;
    for (uint32_t i = 0; i < t->n_locals; i++) {
        uint32_t type = t->locals[i];
        if (t->set && !t->set[i])
            type |= WASM_NULLABLE;
        if (!value_is(s, slot, type))
            return false;
        slot += slots_of(type);
    }
    return true;
}

static bool stack_fits(const struct wasm_store *s, const struct place *p,
                       const struct mark_types *t) {
    uint32_t at = t->local_slots, results = p->gives ? p->gives->n_results : 0;
    if (results > t->n_stack)
        return false;
    for (uint32_t i = 0; i < t->n_stack; i++) {
        uint32_t end = at + slots_of(t->stack[i]);
        if (i == t->n_stack - results && p->at != NO_TYPE && p->at != at)
            return false;
        if (end <= p->limit && !value_is(s, p->fp + at, t->stack[i]))
            return false;
        at = end;
    }
    if (!results && p->at != NO_TYPE && p->at != at)
        return false;
    return !p->gives || results_fit(s->engine, p->gives, t->stack + t->n_stack - results, results);
}

/* Checks the frames that stopped at this mark. c->places is sorted by mark. */
static void visit(void *ctx, uint32_t mark, const struct mark_types *t) {
    struct check *c = ctx;
    for (; c->next < c->n && c->places[c->next].mark == mark && !c->failed; c->next++) {
        const struct place *p = &c->places[c->next];
        c->failed = !locals_fit(c->s, p, t) || !stack_fits(c->s, p, t);
    }
}

static int compare_places(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->code != y->code)
        return x->code < y->code ? -1 : 1;
    return x->mark < y->mark ? -1 : x->mark > y->mark;
}

/* Checks all frames. Walks each function only once, even if it has many frames. */
static const char *places_check(const struct wasm_store *s, struct place *places, uint32_t n) {
    heap_sort(places, n, sizeof *places, compare_places);
    for (uint32_t from = 0, to; from < n; from = to) {
        for (to = from; to < n && places[to].code == places[from].code; to++)
            ;
        struct check c = {.s = s, .places = places + from, .n = to - from};
        if (!walk_types(places[from].fn, places[from].code, visit, &c))
            return "out of memory";
        if (c.failed || c.next != c.n)
            return "a frame has a value of another type";
    }
    return NULL;
}

static bool is_tail(const uint64_t *pc) {
    uint16_t op = (uint16_t)*pc;
    return op == I_TAIL_FN || op == I_TAIL_TABLE || op == I_TAIL_REF;
}

static bool place_at(struct place *p, const struct frame *f, const uint64_t *pc, uint32_t kinds) {
    p->fn = f->fn;
    p->code = fn_code_at(f->fn, pc);
    p->at = NO_TYPE;
    const struct mark *m = code_mark_at(f->fn, p->code, pc, kinds);
    if (m)
        p->mark = (uint32_t)(m - p->code->marks);
    return m != NULL;
}

/*
 * Fills one or two places to check for a top frame that waits for a host function: its slots below
 * the arguments and, unless the call is a tail call, the results after the call.
 */
static const char *pending_places(const struct wasm_store *s, struct place *p, uint32_t *n) {
    const struct type *host = s->host_fns[s->host_fn].type, *own = s->top->fn->type;
    uint32_t at = (uint32_t)(s->host_slots - s->fp);
    if (!place_at(p, s->top, s->pc, MARK_OP))
        return "out of memory";
    p->fp = s->fp;
    p->limit = at;
    *n = 1;
    if (is_tail(s->pc))
        return host->n_results == own->n_results &&
                       results_fit(s->engine, host, own->vals + own->n_params, own->n_results)
                   ? NULL
                   : "the pending host call has another type";
    const uint64_t *ret = s->pc + ((uint16_t)*s->pc == I_CALL_REF_ ? 2 : 3);
    if (!place_at(p + 1, s->top, ret, MARK_RETURN))
        return "out of memory";
    p[1].fp = s->fp;
    p[1].limit = at;
    p[1].gives = host;
    p[1].at = at;
    *n = 2;
    return NULL;
}

static const char *frames_check(const struct wasm_store *s, bool is_host, struct place *places) {
    uint32_t frames = s->pc ? (uint32_t)(s->top - s->frames) : 0, n = 0;
    for (uint32_t i = 1; i < frames; i++, n++) {
        const struct frame *f = &s->frames[i];
        if (!place_at(&places[n], f, f[1].ret, MARK_RETURN))
            return "out of memory";
        const uint64_t *next = i + 1 < frames ? f[2].fp : s->fp;
        places[n].fp = f[1].fp;
        places[n].limit = (uint32_t)(next - f[1].fp);
        places[n].gives = f[1].fn->type;
    }
    uint32_t more = 0;
    if (frames && is_host) {
        const char *why = pending_places(s, &places[n], &more);
        if (why)
            return why;
    } else if (frames) {
        more = 1;
        if (!place_at(&places[n], s->top, s->pc, MARK_STEP))
            return "out of memory";
        places[n].fp = s->fp;
        places[n].limit = UINT32_MAX;
    }
    return places_check(s, places, n + more);
}

/* Checks the arguments of the pending host call, or its results if it was answered. */
static bool host_values_fit(const struct wasm_store *s) {
    const struct type *t = s->host_fns[s->host_fn].type;
    return s->answered ? values_are(s, s->host_slots, t->vals + t->n_params, t->n_results)
                       : values_are(s, s->host_slots, t->vals, t->n_params);
}

static const char *call_check(const struct wasm_store *s) {
    if (s->state == RUN_IDLE || s->init.active)
        return NULL;
    if (s->start_fn)
        return values_are(s, s->stack, s->start_fn->type->vals, s->start_fn->type->n_params)
                   ? NULL
                   : "an argument has another type";
    bool is_host = s->state == RUN_HOST || s->answered;
    if (is_host && !host_values_fit(s))
        return "a value of the pending host call has another type";
    size_t room = ((size_t)(s->top - s->frames) + 2) * sizeof(struct place);
    struct place *places = engine_alloc(s->engine, room);
    if (!places)
        return "out of memory";
    const char *why = frames_check(s, is_host, places);
    engine_release(s->engine, places, room);
    return why;
}

const char *state_check(struct wasm_store *s) {
    store_handles_sort(s);
    const char *why = contents_check(s);
    return why ? why : call_check(s);
}
