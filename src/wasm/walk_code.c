/* Starts a walk over a body: to write code, or later to find its marks and types. */
#include <assert.h>

#include "wasm/simd.h"
#include "wasm/walk.h"
#include "wasm/walk_inner.h"

/*
 * Counts the locals of all groups before memory is allocated. More than 2^32 locals are malformed
 * by the specification; MAX_LOCALS is a limit of this engine.
 */
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

bool walk_locals(struct scratch *w) {
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

/* A local of a non-nullable reference type has no default: it must be set before it is read. */
bool walk_unset_init(struct scratch *w) {
    if (!w->has_unset)
        return true;
    if (!engine_grow(w->e, &w->set, &w->cap_set, w->n_locals, 1))
        return reader_fail(&w->r, WASM_TOO_BIG, "out of memory");
    for (uint32_t i = 0; i < w->n_locals; i++)
        w->set[i] = i < w->n_params || is_defaultable(w->locals[i]);
    return true;
}

struct scratch *walk_begin(struct fn *fn, struct wasm_diag *diag) {
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

bool walk_enter(struct scratch *w) {
    struct ctrl c = {.op = OP_CALL, .type = w->fn->type, .sites = NO_LINK, .else_site = NO_LINK};
    if (!walk_ctrl_room(w))
        return false;
    w->top = &w->ctrls[w->n_ctrls++];
    *w->top = c;
    w->top->base = w->local_slots;
    return true;
}

/* The scratch buffers are used again for the next body, so the code is copied out of them. */
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
    if (!walk_locals(w) || !walk_unset_init(w) || !walk_enter(w))
        return NULL;
    em_begin(w);
    if (w->no_memory || !walk_body_emit(w))
        return NULL;
    em_end(w);
    return w->no_memory ? NULL : w;
}

static struct scratch *translate(struct fn *fn, bool stepping, bool recording) {
    struct wasm_diag diag; /* not read: the walk of a valid body fails only for lack of memory */
    struct scratch *w = walk_begin(fn, &diag);
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

/*
 * Makes the marks when they are first needed. Translating the body again gives the same words, so
 * the marks fit the existing code.
 */
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
    for (uint32_t i = 1; i < w->n_marks;
         i++) /* code_mark_at() and code_mark_of() search by bisection */
        assert(marks[i - 1].pos <= marks[i].pos && marks[i - 1].offset <= marks[i].offset);
    c->n_marks = w->n_marks;
    c->marks = marks;
    return true;
}

bool walk_types(struct fn *fn, struct code *c,
                void (*visit)(void *ctx, uint32_t mark, const struct mark_types *t), void *ctx) {
    struct wasm_diag diag;
    struct scratch *w = walk_begin(fn, &diag);
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

/* Decodes the signatures of opcodes.def ("ii:i") once, so that the walk needs no text. */
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
        /* The fuel of other instructions is counted in emit.c or while they run. */
        p->cost = info->fuel == FUEL_ONE && p->row != OP_REF_EQ;
        const char *s = info->sig;
        if (s[0] == '*')
            continue;
        for (; *s != ':'; s++)
            p->in[p->n_in++] = letters[(uint8_t)*s];
        p->out = letters[(uint8_t)s[1]];
    }
}
