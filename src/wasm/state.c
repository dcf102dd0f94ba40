/*
 * Writes a stopped store as bytes; state_read.c reads them. Format: docs/internals/cell-state.md.
 *
 * The bytes say how the store was created, and what has changed since. Reading creates the store
 * again by the same steps, so that all checks of linking apply, and then sets the values. Positions
 * of a call are module offsets. Each must be one of the points where this engine can stop, with the
 * stack height at that point, so that bytes from elsewhere cannot name any other position.
 */
#include "wasm/state.h"
#include "wasm/interp.h"
#include "wasm/iops.h"
#include "wasm/state_inner.h"

#include <sys/mman.h>

const char state_magic[8] = "CRLSTATE";

/* ---- Writing ---- */

/* With a sink, `out` is emptied into it whenever it has PIECE bytes. */
struct writer {
    struct buf *out;
    struct wasm_store *s;
    struct err *err;
    wasm_sink_fn *sink;
    void *arg;
    struct sha256 hash; /* of all bytes up to out[hashed] */
    size_t hashed;
    bool failed;
};

enum { PIECE = 1 << 20 };

static bool write_fail(struct writer *w, enum err_code code, const char *text) {
    if (!w->failed)
        err_set(w->err, code, "cannot capture the store: %s", text);
    w->failed = true;
    return false;
}

static void write_hash(struct writer *w) {
    sha256_add(&w->hash, w->out->data + w->hashed, w->out->len - w->hashed);
    w->hashed = w->out->len;
}

static void write_flush(struct writer *w) {
    if (!w->failed && !w->sink(w->arg, w->out->data, w->out->len))
        write_fail(w, ERR_LIMIT, "its saved state cannot be written");
    w->out->len = w->hashed = 0;
}

static void state_put(struct writer *w, const void *p, size_t n) {
    if (!w->failed && n && !buf_add(w->out, p, n))
        write_fail(w, ERR_LIMIT, "its saved state is too big");
    if (w->sink && w->out->len >= PIECE && !w->failed) {
        write_hash(w);
        write_flush(w);
    }
}

static void put_n(struct writer *w, uint64_t v) {
    uint8_t bytes[10];
    size_t n = 0;
    do {
        bytes[n] = (uint8_t)((v & 0x7f) | (v > 0x7f ? 0x80 : 0));
        n++;
        v >>= 7;
    } while (v);
    state_put(w, bytes, n);
}

static void state_put_text(struct writer *w, const char *p, size_t n) {
    put_n(w, n);
    state_put(w, p, n);
}

static void put_slots(struct writer *w, const uint64_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n; i++)
        put_n(w, p[i]);
}

/* Host objects may have abstract types only: numbers of defined types are valid in one engine. */
static void put_type(struct writer *w, uint32_t type) {
    if (is_ref(type) && !(type & WASM_ABSTRACT))
        write_fail(w, ERR_UNSUPPORTED, "a host object has a reference type that a module defines");
    put_n(w, type);
}

static void put_limits(struct writer *w, const struct wasm_limits *l) {
    put_n(w, (l->has_max ? 1u : 0u) | (l->is64 ? 2u : 0u));
    put_n(w, l->min);
    put_n(w, l->has_max ? l->max : 0);
}

static void put_host(struct writer *w, const struct fn *fn) {
    state_put_text(w, fn->host->module, strlen(fn->host->module));
    state_put_text(w, fn->host->name, strlen(fn->host->name));
    put_n(w, fn->host->cost);
    put_n(w, fn->host->sized);
    put_n(w, fn->type->n_params);
    put_n(w, fn->type->n_results);
    for (uint32_t i = 0; i < fn->type->n_params + fn->type->n_results; i++)
        put_type(w, fn->type->vals[i]);
}

static void put_instance(struct writer *w, const struct wasm_instance *i) {
    uint8_t hash[HASH];
    wasm_module_hash(i->mod, hash);
    state_put(w, hash, HASH);
    for (uint32_t k = 0; k < i->mod->n_imports; k++) {
        struct wasm_extern x = instance_import(i, k);
        put_n(w, x.kind);
        put_n(w, x.id);
    }
}

static void put_creation(struct writer *w, const struct creation *c) {
    struct wasm_store *s = w->s;
    put_n(w, c->kind);
    switch (c->kind) {
    case MADE_FUNC:
        put_host(w, &s->host_fns[c->index]);
        break;
    case MADE_GLOBAL:
        put_type(w, s->globals[c->index]->type);
        put_n(w, s->globals[c->index]->is_mutable);
        break;
    case MADE_MEMORY:
        put_limits(w, &s->mems[c->index]->type);
        break;
    case MADE_TABLE:
        put_limits(w, &s->tables[c->index]->type_limits);
        put_type(w, s->tables[c->index]->type);
        break;
    default:
        put_instance(w, s->insts[c->index]);
    }
}

static void put_origin(struct writer *w) {
    struct wasm_store *s = w->s;
    put_n(w, s->n_mems);
    for (uint32_t i = 0; i < s->n_mems; i++)
        put_n(w, s->mems[i]->size / PAGE_SIZE);
    put_n(w, s->n_tables);
    for (uint32_t i = 0; i < s->n_tables; i++)
        put_n(w, s->tables[i]->size);
    put_n(w, s->n_log);
    for (uint32_t i = 0; i < s->n_log; i++)
        put_creation(w, &s->log[i]);
    put_n(w, s->n_defs);
    for (uint32_t i = 0; i < s->n_defs; i++) {
        state_put_text(w, s->defs[i].module, s->defs[i].module_size);
        state_put_text(w, s->defs[i].name, s->defs[i].name_size);
        put_n(w, s->defs[i].what.kind);
        put_n(w, s->defs[i].what.id);
    }
}

/* ---- The initial image of a memory: zeros and the data segments of its own instance ---- */

static const struct wasm_instance *memory_owner(const struct wasm_store *s, uint32_t mem,
                                                uint32_t *ret_index) {
    for (uint32_t i = 1; i < s->n_insts; i++)
        for (uint32_t k = s->insts[i]->mod->imported_mems; k < s->insts[i]->mod->n_mems; k++)
            if (s->insts[i]->mem_ids[k] == mem) {
                *ret_index = k;
                return s->insts[i];
            }
    return NULL;
}

/*
 * Writes the active data segments of the instance that created memory `mem` to `base`, in order. If
 * `units` is not NULL, sets a byte for each unit that they write to.
 */
void state_image_apply(const struct wasm_store *s, uint32_t mem, uint8_t *base, uint64_t size,
                       uint8_t *units) {
    uint32_t index = 0;
    const struct wasm_instance *owner = memory_owner(s, mem, &index);
    for (uint32_t k = 0; owner && k < owner->mod->n_datas; k++) {
        const struct data_decl *d = &owner->mod->datas[k];
        uint64_t at[2] = {0, 0};
        if (d->mode != SEG_ACTIVE || d->mem != index)
            continue;
        instance_eval((struct wasm_instance *)owner, d->offset, at);
        if (at[0] >= size || !d->size)
            continue;
        uint64_t n = d->size < size - at[0] ? d->size : size - at[0];
        memcpy(base + at[0], owner->mod->bytes + d->bytes, n);
        if (units)
            memset(units + at[0] / UNIT, 1, (at[0] + n - 1) / UNIT - at[0] / UNIT + 1);
    }
}

/* ---- Contents ---- */

/* Writes the units that differ from `image`, the initial content. Reads only units set in `units`.
 */
static void put_units(struct writer *w, const struct memory *m, const uint8_t *image,
                      const uint8_t *units) {
    uint8_t copy[UNIT];
    uint64_t next = 0;
    for (uint64_t u = 0; u < m->size / UNIT && !w->failed; u++) {
        if (!units[u])
            continue;
        const uint8_t *bytes = memory_unit(m, u, copy);
        w->s->engine->work++;
        if (memcmp(image + u * UNIT, bytes, UNIT) == 0)
            continue;
        put_n(w, u - next + 1); /* + 1, because 0 ends the list */
        state_put(w, bytes, UNIT);
        next = u + 1;
    }
    put_n(w, 0);
}

static void put_memory(struct writer *w, uint32_t mem) {
    struct memory *m = w->s->mems[mem];
    if (!m->size) {
        put_n(w, 0);
        return;
    }
    void *image = mmap(NULL, m->size, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    uint8_t *units = engine_alloc(w->s->engine, m->size / UNIT);
    if (image != MAP_FAILED && units) {
        memory_touched(m, units);
        state_image_apply(w->s, mem, image, m->size, units);
        put_units(w, m, image, units);
    } else {
        write_fail(w, ERR_LIMIT, "out of memory");
    }
    engine_release(w->s->engine, units, m->size / UNIT);
    if (image != MAP_FAILED)
        munmap(image, m->size);
}

static void put_table(struct writer *w, const struct table *t) {
    for (uint64_t i = 0; i < t->size;) {
        uint64_t run = 1;
        while (i + run < t->size && t->elems[i + run] == t->elems[i])
            run++;
        put_n(w, run);
        put_n(w, t->elems[i]);
        i += run;
    }
}

static void put_handles(struct writer *w) {
    struct wasm_store *s = w->s;
    const struct wasm_config *cfg = &s->engine->cfg;
    uint8_t *bytes = engine_alloc(s->engine, cfg->handle_bytes);
    if (!bytes) {
        write_fail(w, ERR_LIMIT, "out of memory");
        return;
    }
    store_handles_sort(s);
    put_n(w, s->n_handles);
    for (uint32_t i = 0; i < s->n_handles && !w->failed; i++) {
        size_t n = cfg->handle_save ? cfg->handle_save(cfg->handle_ctx, s->handles[i], bytes) : 0;
        put_n(w, s->handles[i]);
        put_n(w, n < cfg->handle_bytes ? n : cfg->handle_bytes);
        state_put(w, bytes, n < cfg->handle_bytes ? n : cfg->handle_bytes);
    }
    engine_release(s->engine, bytes, cfg->handle_bytes);
}

/* Names each type by an instance and a type index of its module: ids depend on the engine. */
static uint64_t *type_names(const struct wasm_store *s) {
    uint64_t *names = engine_alloc(s->engine, s->engine->n_types * sizeof *names);
    for (uint32_t i = 1; names && i < s->n_insts; i++)
        for (uint32_t k = 0; k < s->insts[i]->mod->n_types; k++)
            if (!names[s->insts[i]->mod->types[k]])
                names[s->insts[i]->mod->types[k]] = PAIR(k, i);
    return names;
}

static void put_objects(struct writer *w) {
    struct wasm_store *s = w->s;
    put_n(w, s->n_objs);
    put_n(w, s->free_obj);
    put_n(w, s->since_collect);
    uint64_t *names = s->n_objs ? type_names(s) : NULL;
    if (s->n_objs && !names)
        write_fail(w, ERR_LIMIT, "out of memory");
    for (uint32_t i = 0; i < s->n_objs && !w->failed; i++) {
        const struct object *o = &s->objs[i];
        put_n(w, o->type == NO_TYPE ? 0 : names[o->type] >> 32);
        if (o->type == NO_TYPE)
            continue;
        put_n(w, (uint32_t)names[o->type]);
        put_n(w, o->n);
        put_slots(w, o->slots, o->n_slots);
    }
    engine_release(s->engine, names, s->engine->n_types * sizeof *names);
}

/* Writes the computed values of element segments with expressions: they may refer to objects. */
static void put_elem_refs(struct writer *w, const struct wasm_instance *i) {
    for (uint32_t k = 0; k < i->mod->n_elems; k++) {
        if (i->mod->elems[k].is_funcs)
            continue;
        put_n(w, i->elem_refs[k] != NULL);
        if (i->elem_refs[k])
            put_slots(w, i->elem_refs[k], i->mod->elems[k].n);
    }
}

static void put_contents(struct writer *w) {
    struct wasm_store *s = w->s;
    for (uint32_t i = 0; i < s->n_globals; i++)
        put_slots(w, s->globals[i]->value, slots_of(s->globals[i]->type));
    for (uint32_t i = 0; i < s->n_mems; i++)
        put_memory(w, i);
    for (uint32_t i = 0; i < s->n_tables; i++)
        put_table(w, s->tables[i]);
    for (uint32_t i = 1; i < s->n_insts; i++) {
        state_put(w, s->insts[i]->dropped_elems, s->insts[i]->mod->n_elems);
        state_put(w, s->insts[i]->dropped_datas, s->insts[i]->mod->n_datas);
        put_elem_refs(w, s->insts[i]);
    }
    put_objects(w);
    put_n(w, s->n_exns);
    for (uint32_t i = 0; i < s->n_exns; i++) {
        put_n(w, s->exns[i].tag == NO_TYPE ? 0 : s->exns[i].tag + 1u);
        if (s->exns[i].tag != NO_TYPE)
            put_slots(w, s->exns[i].slots, s->exns[i].n_slots);
    }
    put_handles(w);
}

/* ---- The call ---- */

static enum call_state call_state(const struct wasm_store *s) {
    if (s->state == RUN_HOST)
        return CALL_HOST;
    if (s->state == RUN_IDLE || s->init.active)
        return CALL_NONE;
    if (s->answered)
        return CALL_ANSWERED;
    return s->start_fn ? CALL_START : CALL_STOPPED;
}

static uint32_t host_height(const struct wasm_store *s, const struct fn *host) {
    uint32_t most = host->param_slots > host->result_slots ? host->param_slots : host->result_slots;
    return (uint32_t)(s->host_slots - s->fp) + most;
}

static void put_frames(struct writer *w, enum call_state state) {
    struct wasm_store *s = w->s;
    uint32_t n = s->pc ? (uint32_t)(s->top - s->frames) : 0;
    put_n(w, n);
    for (uint32_t i = 1; i <= n; i++) {
        struct frame *f = &s->frames[i];
        bool is_top = i == n;
        const uint64_t *pc = is_top ? s->pc : f[1].ret;
        uint32_t kinds = !is_top ? MARK_RETURN : state == CALL_STOPPED ? MARK_STEP : MARK_OP;
        const struct mark *m = code_mark_at(f->fn, fn_code_at(f->fn, pc), pc, kinds);
        if (!m) {
            write_fail(w, ERR_LIMIT, "out of memory");
            return;
        }
        put_n(w, is_top ? s->inst->number : f[1].inst->number);
        put_n(w, f->fn->index);
        put_n(w, m->offset - f->fn->body);
    }
}

uint32_t state_live_slots(const struct wasm_store *s, enum call_state state) {
    uint32_t below = (uint32_t)(s->fp - s->stack);
    if (state == CALL_HOST || state == CALL_ANSWERED)
        return below + host_height(s, &s->host_fns[s->host_fn]);
    const struct mark *m = code_mark_at(s->top->fn, s->top->fn->step, s->pc, MARK_STEP);
    return m ? below + m->height : 0;
}

static void state_put_call(struct writer *w) {
    struct wasm_store *s = w->s;
    enum call_state state = call_state(s);
    put_n(w, s->init.active);
    if (s->init.active) {
        put_n(w, s->init.inst->number);
        put_n(w, s->init.next);
    }
    put_n(w, state);
    if (state == CALL_NONE)
        return;
    if (state == CALL_START) {
        put_n(w, s->inst->number);
        put_n(w, s->start_fn->index);
        put_slots(w, s->stack, s->start_fn->param_slots);
        return;
    }
    if (state != CALL_STOPPED)
        put_n(w, s->host_fn);
    put_frames(w, state);
    uint32_t n = state_live_slots(s, state);
    put_n(w, n);
    put_slots(w, s->stack, n);
}

static void write_state(struct writer *w) {
    struct wasm_store *s = w->s;
    uint8_t head[HEADER] = {0}, hash[HASH];
    memcpy(head, state_magic, 8);
    head[8] = WASM_STATE_VERSION;
    head[12] = WASM_FUEL_VERSION;
    sha256_init(&w->hash);
    state_put(w, head, sizeof head);
    put_n(w, s->budget);
    put_n(w, s->used);
    put_n(w, s->sequence);
    put_origin(w);
    put_contents(w);
    state_put_call(w);
    if (w->failed)
        return;
    write_hash(w);
    sha256_end(&w->hash, hash);
    state_put(w, hash, HASH);
}

int wasm_capture(struct wasm_store *s, struct buf *ret, struct err *err) {
    struct writer w = {.out = ret, .s = s, .err = err, .hashed = ret->len};
    size_t start = ret->len;
    write_state(&w);
    if (w.failed)
        ret->len = start;
    return w.failed ? -1 : 0;
}

int wasm_capture_to(struct wasm_store *s, wasm_sink_fn *sink, void *arg, struct err *err) {
    struct buf piece = BUF(2 * PIECE);
    struct writer w = {.out = &piece, .s = s, .err = err, .sink = sink, .arg = arg};
    write_state(&w);
    write_flush(&w);
    buf_done(&piece);
    return w.failed ? -1 : 0;
}
