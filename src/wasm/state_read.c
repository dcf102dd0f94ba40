/* Reads a saved state. The bytes are untrusted: every count is checked before its use. */

#include "wasm/budget.h"
#include "wasm/interp.h"
#include "wasm/iops.h"
#include "wasm/state.h"
#include "wasm/state_inner.h"

struct loader {
    struct reader r;
    struct wasm_diag diag;
    struct wasm_engine *e;
    struct wasm_store *s;
    const struct wasm_modules *modules;
    struct err *err;
    uint64_t *sizes; /* saved sizes of the memories, then of the tables */
    uint32_t n_mems, n_tables;
};

/* Reports the invalid part of a saved state. An earlier error is more precise and stays. */
static int state_read_bad(struct loader *l, const char *what) {
    if (l->err && l->err->code)
        return -1;
    return err_set(l->err, ERR_INVALID, "saved state refused: %s", what);
}

static uint64_t get(struct loader *l) {
    return reader_u64(&l->r);
}

/* Reads a count of items that take at least one byte each. */
static uint32_t get_count(struct loader *l) {
    uint64_t n = get(l);
    if (n > (size_t)(l->r.end - l->r.p)) {
        reader_fail(&l->r, WASM_MALFORMED, "count");
        return 0;
    }
    return (uint32_t)n;
}

static const char *get_text(struct loader *l, uint32_t *ret_n) {
    *ret_n = get_count(l);
    return (const char *)reader_bytes(&l->r, *ret_n);
}

static bool get_slots(struct loader *l, uint64_t *p, uint64_t n) {
    for (uint64_t i = 0; i < n && !l->r.failed; i++)
        p[i] = get(l);
    return !l->r.failed;
}

/* Reads a type. Only types that no module defines are valid: numbers, v128, abstract references. */
static uint32_t get_type(struct loader *l) {
    uint64_t t = get(l);
    bool number = t >= WASM_V128 && t <= WASM_I32;
    uint64_t flags = WASM_REF | WASM_ABSTRACT;
    bool ref = (t & flags) == flags && (t & ~(flags | WASM_NULLABLE)) >= 0x69 &&
               (t & ~(flags | WASM_NULLABLE)) <= 0x74 && t <= UINT32_MAX;
    if (!number && !ref)
        reader_fail(&l->r, WASM_MALFORMED, "type");
    return (uint32_t)t;
}

static struct wasm_limits get_limits(struct loader *l) {
    uint64_t flags = get(l);
    struct wasm_limits lim = {.has_max = flags & 1, .is64 = flags & 2};
    lim.min = get(l);
    lim.max = get(l);
    if (!lim.has_max)
        lim.max = UINT64_MAX;
    if (flags > 3)
        reader_fail(&l->r, WASM_MALFORMED, "limits");
    return lim;
}

/* Modules are not part of the state: the embedder finds them by hash. */
static struct wasm_module *get_module(struct loader *l) {
    const uint8_t *hash = reader_bytes(&l->r, HASH);
    struct wasm_module *m = hash ? l->modules->find(l->modules->ctx, hash) : NULL;
    if (hash && !m)
        err_set(l->err, ERR_NOT_FOUND,
                "saved state refused: its module is missing, with hash %02x%02x%02x%02x…", hash[0],
                hash[1], hash[2], hash[3]);
    return m;
}

/* Reads the sizes of memories and tables twice: the first pass counts them for one array. */
static int get_sizes(struct loader *l) {
    struct reader at = l->r;
    l->n_mems = get_count(l);
    for (uint32_t i = 0; i < l->n_mems && !l->r.failed; i++)
        get(l);
    l->n_tables = get_count(l);
    if (l->r.failed)
        return state_read_bad(l, "invalid sizes");
    l->sizes = engine_alloc(l->e, ((size_t)l->n_mems + l->n_tables) * sizeof *l->sizes);
    if (!l->sizes)
        return err_set(l->err, ERR_LIMIT, "out of memory while the saved state is read");
    l->r = at;
    get_count(l);
    get_slots(l, l->sizes, l->n_mems);
    get_count(l);
    get_slots(l, l->sizes + l->n_mems, l->n_tables);
    return l->r.failed ? state_read_bad(l, "invalid sizes") : 0;
}

/* Gives new memories and tables their saved sizes at once, because later imports check them. */
static int resize_new(struct loader *l, uint32_t mems_before, uint32_t tables_before) {
    struct wasm_store *s = l->s;
    uint64_t old;
    for (uint32_t i = mems_before; i < s->n_mems; i++) {
        uint64_t have = s->mems[i]->size / PAGE_SIZE;
        if (i >= l->n_mems || l->sizes[i] < have ||
            !memory_grow(s, s->mems[i], l->sizes[i] - have, &old))
            return state_read_bad(l, "invalid memory size");
    }
    for (uint32_t i = tables_before; i < s->n_tables; i++) {
        const uint64_t *sizes = l->sizes + l->n_mems;
        if (i >= l->n_tables || sizes[i] < s->tables[i]->size ||
            !table_grow(s, s->tables[i], sizes[i] - s->tables[i]->size, 0, &old))
            return state_read_bad(l, "invalid table size");
    }
    return 0;
}

static int get_host(struct loader *l) {
    uint32_t nm, nn, types[2 * MAX_PARAMS], canon;
    const char *module = get_text(l, &nm), *name = get_text(l, &nn);
    uint64_t cost = get(l), sized = get(l), np = get(l), nr = get(l);
    if (l->r.failed || np > MAX_PARAMS || nr > MAX_PARAMS || cost > INT64_MAX / 4 || sized > np)
        return state_read_bad(l, "invalid host function");
    for (uint64_t i = 0; i < np + nr; i++)
        types[i] = get_type(l);
    if (sized && types[sized - 1] != WASM_I32)
        return state_read_bad(l, "invalid host function");
    char *m = store_text(l->s, module, nm), *n = store_text(l->s, name, nn);
    struct wasm_func_type t = {types, types + np, (uint32_t)np, (uint32_t)nr};
    const struct host_func what = {m, n, cost, (uint32_t)sized};
    bool ok = m && n && !l->r.failed && strlen(m) == nm && strlen(n) == nn &&
              store_intern_func(l->e, &t, &canon) && store_add_host(l->s, canon, &what) &&
              store_log_creation(l->s, MADE_FUNC, l->s->n_host_fns - 1);
    engine_release(l->e, m, (size_t)nm + 1);
    engine_release(l->e, n, (size_t)nn + 1);
    return ok ? 0 : state_read_bad(l, "invalid host function");
}

static int get_object(struct loader *l, uint64_t kind) {
    struct wasm_store *s = l->s;
    uint32_t id, mems = s->n_mems, tables = s->n_tables;
    bool ok;
    if (kind == MADE_GLOBAL) {
        uint32_t type = get_type(l);
        uint64_t mut = get(l);
        ok = !l->r.failed && store_add_global(s, type, mut & 1, &id) &&
             store_log_creation(s, MADE_GLOBAL, id);
    } else if (kind == MADE_MEMORY) {
        struct wasm_limits lim = get_limits(l);
        ok = !l->r.failed && store_add_memory(s, &lim, &id) &&
             store_log_creation(s, MADE_MEMORY, id);
    } else {
        struct wasm_limits lim = get_limits(l);
        uint32_t type = get_type(l);
        ok = !l->r.failed && is_ref(type) && store_add_table(s, &lim, type, 0, &id) &&
             store_log_creation(s, MADE_TABLE, id);
    }
    return ok ? resize_new(l, mems, tables) : state_read_bad(l, "invalid host object");
}

/* store_instantiate() checks the imports as for a new instance, so false ones are refused. */
static int get_instance(struct loader *l) {
    struct wasm_store *s = l->s;
    uint32_t mems = s->n_mems, tables = s->n_tables;
    struct wasm_module *m = get_module(l);
    if (!m)
        return state_read_bad(l, "invalid module");
    struct wasm_extern *imports = engine_alloc(l->e, m->n_imports * sizeof *imports);
    struct wasm_instance *i;
    if (!imports)
        return err_set(l->err, ERR_LIMIT, "out of memory while the saved state is read");
    for (uint32_t k = 0; k < m->n_imports; k++) {
        uint64_t kind = get(l);
        imports[k] =
            (struct wasm_extern){kind <= WASM_TAG ? (enum wasm_extern_kind)kind : WASM_TAG, get(l)};
    }
    struct err why = {0};
    int rc = l->r.failed ? -1 : store_instantiate(s, m, imports, &i, &why);
    engine_release(l->e, imports, m->n_imports * sizeof *imports);
    return rc < 0 ? state_read_bad(l, why.code ? why.text : "invalid instance")
                  : resize_new(l, mems, tables);
}

static int get_defs(struct loader *l) {
    uint32_t n = get_count(l);
    for (uint32_t i = 0; i < n && !l->r.failed; i++) {
        uint32_t nm, nn;
        const char *module = get_text(l, &nm), *name = get_text(l, &nn);
        uint64_t kind = get(l), id = get(l);
        struct wasm_extern x = {kind <= WASM_TAG ? (enum wasm_extern_kind)kind : WASM_TAG, id};
        if (l->r.failed || !store_extern_exists(l->s, x) ||
            !store_define(l->s, module, nm, name, nn, x))
            return state_read_bad(l, "invalid definition");
    }
    return l->r.failed ? state_read_bad(l, "invalid definitions") : 0;
}

/*
 * Creates all objects again in the order of their creation, so that they get the same numbers. The
 * rest of the state refers to them by number.
 */
static int get_origin(struct loader *l) {
    if (get_sizes(l) < 0)
        return -1;
    uint32_t n = get_count(l);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t kind = get(l);
        int rc = l->r.failed || kind > MADE_INSTANCE ? state_read_bad(l, "invalid list of objects")
                 : kind == MADE_FUNC                 ? get_host(l)
                 : kind == MADE_INSTANCE             ? get_instance(l)
                                                     : get_object(l, kind);
        if (rc < 0)
            return -1;
    }
    if (l->s->n_mems != l->n_mems || l->s->n_tables != l->n_tables)
        return state_read_bad(l, "invalid number of memories or tables");
    return get_defs(l);
}

/*
 * Reads a memory: runs of unchanged units, each followed by the bytes of one unit. Unchanged units
 * are as the data segments made them.
 */
static int get_memory(struct loader *l, uint32_t mem) {
    struct memory *m = l->s->mems[mem];
    if (!memory_reach(l->e, m, m->size))
        return err_set(l->err, ERR_LIMIT, "out of memory while the saved state is read");
    state_image_apply(l->s, mem, m->base, m->size, NULL);
    uint64_t at = 0;
    for (uint64_t skip; (skip = get(l)) != 0 && !l->r.failed; at += UNIT) {
        if (skip - 1 > (m->size - at) / UNIT)
            return state_read_bad(l, "invalid memory page");
        at += (skip - 1) * UNIT;
        const uint8_t *bytes = at < m->size ? reader_bytes(&l->r, UNIT) : NULL;
        if (!bytes)
            return state_read_bad(l, "invalid memory page");
        memcpy(m->base + at, bytes, UNIT);
    }
    return l->r.failed ? state_read_bad(l, "invalid memory") : 0;
}

static int get_table(struct loader *l, struct table *t) {
    for (uint64_t i = 0; i < t->size;) {
        uint64_t run = get(l), value = get(l);
        if (l->r.failed || run == 0 || run > t->size - i)
            return state_read_bad(l, "invalid table");
        for (; run > 0; run--, i++)
            if (t->elems[i] != value) /* pages of a mapped table that stay zero are not written, so
                                         they take no memory */
                t->elems[i] = value;
    }
    return 0;
}

static int get_dropped(struct loader *l, uint8_t *flags, uint32_t n) {
    const uint8_t *p = reader_bytes(&l->r, n);
    if (!p)
        return state_read_bad(l, "invalid segments");
    for (uint32_t i = 0; i < n; i++)
        flags[i] = p[i] != 0;
    return 0;
}

static int get_exns(struct loader *l) {
    struct wasm_store *s = l->s;
    uint32_t n = get_count(l);
    if (l->r.failed || !engine_grow(l->e, &s->exns, &s->cap_exns, n, sizeof *s->exns))
        return state_read_bad(l, "invalid exceptions");
    for (uint32_t i = 0; i < n; i++) {
        uint64_t tag = get(l);
        if (l->r.failed || tag > s->n_tags)
            return state_read_bad(l, "invalid exception");
        s->exns[s->n_exns++] = (struct exn){.tag = NO_TYPE};
        if (tag == 0)
            continue;
        uint32_t slots = l->e->types[s->tags[tag - 1].canon]->param_slots;
        struct exn x = {.tag = (uint32_t)tag - 1,
                        .n_slots = slots,
                        .slots = engine_alloc(l->e, slots * sizeof *x.slots)};
        if (!x.slots || !store_take(s, budget_slots(slots))) {
            engine_release(l->e, x.slots, slots * sizeof *x.slots);
            return err_set(l->err, ERR_LIMIT, "out of memory while the saved state is read");
        }
        get_slots(l, x.slots, slots);
        s->exns[i] = x;
        s->exn_slots += slots;
        s->live_exns++;
    }
    return l->r.failed ? state_read_bad(l, "invalid exceptions") : 0;
}

static int get_handles(struct loader *l) {
    const struct wasm_config *cfg = &l->e->cfg;
    uint32_t n = get_count(l);
    for (uint32_t i = 0; i < n && !l->r.failed; i++) {
        uint64_t handle = get(l);
        uint32_t size = get_count(l);
        const uint8_t *bytes = reader_bytes(&l->r, size);
        if (!bytes || size > cfg->handle_bytes)
            return state_read_bad(l, "invalid handle");
        if (cfg->handle_load && !cfg->handle_load(cfg->handle_ctx, handle, bytes, size))
            return err_set(l->err, ERR_DENIED,
                           "saved state refused: the host does not accept its handle %llu",
                           (unsigned long long)handle);
        struct wasm_value v = wasm_host_ref(handle);
        if (!store_note_handle(l->s, &v))
            return err_set(l->err, ERR_LIMIT, "out of memory while the saved state is read");
    }
    return l->r.failed ? state_read_bad(l, "invalid handles") : 0;
}

static int get_object_one(struct loader *l, struct object *ret) {
    struct wasm_store *s = l->s;
    uint64_t inst = get(l);
    *ret = (struct object){.type = NO_TYPE};
    if (inst == 0 && !l->r.failed)
        return 0;
    uint64_t type = get(l), n = get(l);
    if (l->r.failed || inst >= s->n_insts || type >= s->insts[inst]->mod->n_types)
        return state_read_bad(l, "invalid object");
    const struct type *t = module_type(s->insts[inst]->mod, (uint32_t)type);
    uint64_t left = (uint64_t)(l->r.end - l->r.p);
    bool is_array = t->kind == TYPE_ARRAY;
    if ((t->kind != TYPE_STRUCT && !is_array) || n > left || (!is_array && n != t->n_params))
        return state_read_bad(l, "invalid object");
    uint64_t slots = is_array ? n * t->param_slots : t->param_slots;
    if (slots > left || s->heap_slots + slots + 1 > l->e->cfg.heap_slots ||
        !store_take(s, budget_slots(slots)))
        return state_read_bad(l, "the objects are too big");
    uint64_t *p = engine_alloc(l->e, slots * sizeof *p);
    if (!p)
        return err_set(l->err, ERR_LIMIT, "out of memory while the saved state is read");
    *ret = (struct object){.type = t->id, .n = (uint32_t)n, .n_slots = (uint32_t)slots, .slots = p};
    s->heap_slots += slots + 1;
    return get_slots(l, p, slots) ? 0 : state_read_bad(l, "invalid object");
}

/* Reads the garbage collected objects, which replace those that get_origin() created. */
static int get_objects(struct loader *l) {
    struct wasm_store *s = l->s;
    for (uint32_t i = 0; i < s->n_objs; i++) {
        store_give(s, s->objs[i].type == NO_TYPE ? 0 : budget_slots(s->objs[i].n_slots));
        engine_release(l->e, s->objs[i].slots, s->objs[i].n_slots * sizeof(uint64_t));
    }
    s->n_objs = 0;
    s->heap_slots = 0;
    uint32_t n = get_count(l);
    s->free_obj = (uint32_t)get(l);
    s->since_collect = get(l);
    if (l->r.failed || !engine_grow(l->e, &s->objs, &s->cap_objs, n, sizeof *s->objs))
        return state_read_bad(l, "invalid objects");
    for (uint32_t i = 0; i < n; i++)
        if (get_object_one(l, &s->objs[s->n_objs++]) < 0)
            return -1;
    return 0;
}

static int get_elem_refs(struct loader *l, struct wasm_instance *i) {
    for (uint32_t k = 0; k < i->mod->n_elems; k++) {
        uint32_t n = i->mod->elems[k].n;
        if (i->mod->elems[k].is_funcs || get(l) == 0)
            continue;
        if (l->r.failed || i->elem_refs[k] ||
            !(i->elem_refs[k] = engine_alloc(l->e, n * sizeof(uint64_t))))
            return state_read_bad(l, "invalid segment");
        get_slots(l, i->elem_refs[k], n);
    }
    return l->r.failed ? state_read_bad(l, "invalid segments") : 0;
}

static int get_contents(struct loader *l) {
    struct wasm_store *s = l->s;
    for (uint32_t i = 0; i < s->n_globals; i++)
        get_slots(l, s->globals[i]->value, slots_of(s->globals[i]->type));
    for (uint32_t i = 0; i < s->n_mems; i++)
        if (get_memory(l, i) < 0)
            return -1;
    for (uint32_t i = 0; i < s->n_tables; i++)
        if (get_table(l, s->tables[i]) < 0)
            return -1;
    for (uint32_t i = 1; i < s->n_insts; i++)
        if (get_dropped(l, s->insts[i]->dropped_elems, s->insts[i]->mod->n_elems) < 0 ||
            get_dropped(l, s->insts[i]->dropped_datas, s->insts[i]->mod->n_datas) < 0 ||
            get_elem_refs(l, s->insts[i]) < 0)
            return -1;
    return get_objects(l) < 0 || get_exns(l) < 0 ? -1 : get_handles(l);
}

static struct fn *get_fn(struct loader *l, struct wasm_instance **ret_inst) {
    uint64_t inst = get(l), func = get(l);
    if (l->r.failed || inst >= l->s->n_insts || func >= l->s->insts[inst]->n_fns)
        return NULL;
    *ret_inst = l->s->insts[inst];
    return &(*ret_inst)->fns[func];
}

/* Finds the mark of the call instruction at a module offset, for a pending host call. */
static const struct mark *call_mark(struct fn *fn, uint32_t offset) {
    struct code *c = fn->fast;
    const struct mark *found = NULL, *m = code_mark_of(fn, c, offset, MARK_OP);
    for (; m && m < c->marks + c->n_marks && m->offset == offset; m++) {
        uint16_t op = (uint16_t)c->words[m->pos < c->n_words ? m->pos : 0];
        if (m->kind == MARK_OP && op >= I_CALL_FN && op <= I_TAIL_REF)
            found = m;
    }
    return found;
}

struct found_mark {
    struct fn *fn;
    uint32_t offset, kinds;
    const struct mark *mark;
};

/* Finds the mark at a module offset, with a cache: frames of a recursion stop at few points. */
static const struct mark *mark_cached(struct found_mark *cache, struct fn *fn, uint32_t offset,
                                      uint32_t kinds) {
    struct found_mark *c = &cache[(offset ^ fn->index) % 64];
    if (c->fn != fn || c->offset != offset || c->kinds != kinds) {
        struct code *code = kinds == MARK_STEP ? fn_step_code(fn) : fn->fast;
        const struct mark *m =
            kinds == MARK_OP ? call_mark(fn, offset) : code_mark_of(fn, code, offset, kinds);
        *c = (struct found_mark){fn, offset, kinds, m};
    }
    return c->mark;
}

/* Position of the frame that was read last. The next frame begins at the arguments of its call. */
struct position {
    const uint64_t *pc;
    uint64_t *fp;
    struct wasm_instance *inst;
    uint32_t height;
};

static int get_frame(struct loader *l, struct found_mark *cache, uint32_t kinds,
                     struct position *at) {
    struct wasm_store *s = l->s;
    struct wasm_instance *inst = NULL;
    struct fn *fn = get_fn(l, &inst);
    uint64_t offset = get(l);
    if (!fn || !fn->body || l->r.failed || offset > fn->body_size || !fn_compile(fn))
        return state_read_bad(l, "invalid frame");
    const struct mark *m = mark_cached(cache, fn, fn->body + (uint32_t)offset, kinds);
    if (!m || (at->pc && fn->result_slots > at->height))
        return state_read_bad(l, "invalid frame position");
    uint64_t *fp = at->pc ? at->fp + (at->height - fn->result_slots) : s->stack;
    if (s->top + 1 >= s->frames_end || fp > s->stack_end ||
        fn->frame_slots > (size_t)(s->stack_end - fp))
        return state_read_bad(l, "invalid stack depth");
    if (!at->pc) {
        *at = (struct position){&interp_exit_word[1], s->stack, inst, 0};
        s->call_type = fn->type;
    }
    *++s->top = (struct frame){at->pc, at->fp, at->inst, fn};
    struct code *c = kinds == MARK_STEP ? fn->step : fn->fast;
    *at = (struct position){c->words + m->pos, fp, inst, m->height};
    return 0;
}

static int get_frames(struct loader *l, enum call_state state) {
    struct wasm_store *s = l->s;
    struct found_mark *cache = engine_alloc(l->e, 64 * sizeof *cache);
    uint32_t n = get_count(l);
    struct position at = {.fp = s->stack};
    int rc = cache && !l->r.failed ? 0 : state_read_bad(l, "invalid frames");
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        uint32_t kinds = i + 1 < n ? MARK_RETURN : state == CALL_STOPPED ? MARK_STEP : MARK_OP;
        rc = get_frame(l, cache, kinds, &at);
    }
    s->pc = at.pc;
    s->fp = at.fp;
    s->inst = at.inst;
    engine_release(l->e, cache, 64 * sizeof *cache);
    return rc;
}

/* Restores the host call that is pending at s->pc, and checks that its slots are in the frame. */
static int get_pending(struct loader *l, uint64_t host, bool answered) {
    struct wasm_store *s = l->s;
    if (host >= s->n_host_fns)
        return state_read_bad(l, "invalid pending host call");
    const struct fn *fn = &s->host_fns[host];
    s->host_fn = (uint32_t)host;
    s->host_slots = s->pc ? s->fp + (uint16_t)(*s->pc >> 16) : s->stack;
    uint32_t most = fn->param_slots > fn->result_slots ? fn->param_slots : fn->result_slots;
    if (s->pc && s->top->fn->result_slots > most)
        most = s->top->fn->result_slots; /* the results of a tail call are those of its caller */
    uint64_t *end = s->pc ? s->fp + s->top->fn->frame_slots : s->stack_end;
    if (s->host_slots > end || most > (size_t)(end - s->host_slots))
        return state_read_bad(l, "invalid pending host call");
    if (!s->pc)
        s->call_type = fn->type;
    s->answered = answered;
    return 0;
}

static int get_started(struct loader *l) {
    struct wasm_store *s = l->s;
    struct wasm_instance *inst = NULL;
    struct fn *fn = get_fn(l, &inst);
    if (!fn || fn->param_slots > s->engine->cfg.stack_slots)
        return state_read_bad(l, "invalid call that was started");
    s->start_fn = fn;
    s->inst = inst;
    s->call_type = fn->type;
    return get_slots(l, s->stack, fn->param_slots) ? 0 : state_read_bad(l, "invalid arguments");
}

static int get_stack(struct loader *l, enum call_state state, uint64_t host) {
    struct wasm_store *s = l->s;
    if (get_frames(l, state) < 0)
        return -1;
    if (state == CALL_STOPPED && !s->pc)
        return state_read_bad(l, "the stopped call has no frame");
    if (state != CALL_STOPPED && get_pending(l, host, state == CALL_ANSWERED) < 0)
        return -1;
    uint64_t n = get(l);
    if (l->r.failed || n != state_live_slots(s, state) || n > (size_t)(s->stack_end - s->stack))
        return state_read_bad(l, "invalid stack height");
    return get_slots(l, s->stack, n) ? 0 : state_read_bad(l, "invalid stack");
}

static int get_init(struct loader *l) {
    struct wasm_store *s = l->s;
    uint64_t number = get(l), next = get(l);
    if (l->r.failed || number == 0 || number >= s->n_insts)
        return state_read_bad(l, "invalid initialisation");
    struct wasm_instance *i = s->insts[number];
    if (next > (uint64_t)i->mod->n_elems + i->mod->n_datas + 1)
        return state_read_bad(l, "invalid initialisation");
    s->init = (struct init_job){i, (uint32_t)next, true};
    s->state = RUN_READY;
    return 0;
}

static int get_call(struct loader *l) {
    struct wasm_store *s = l->s;
    uint64_t init = get(l);
    if (init && get_init(l) < 0)
        return -1;
    uint64_t state = get(l);
    if (l->r.failed || state > CALL_ANSWERED || (init && state != CALL_NONE))
        return state_read_bad(l, "invalid call");
    if (state == CALL_NONE)
        return 0;
    if (!stack_make(s))
        return err_set(l->err, ERR_LIMIT, "out of memory for the stack of the program");
    s->state = state == CALL_HOST ? RUN_HOST : RUN_READY;
    s->fp = s->stack;
    s->top = s->frames;
    if (state == CALL_START)
        return get_started(l);
    uint64_t host = state == CALL_STOPPED ? 0 : get(l);
    if (get_stack(l, (enum call_state)state, host) < 0)
        return -1;
    if (state == CALL_HOST)
        call_event_host(s);
    return 0;
}

static int check_header(const uint8_t *bytes, size_t size, struct err *err) {
    if (size < HEADER + HASH || memcmp(bytes, state_magic, 8) != 0)
        return err_set(err, ERR_INVALID, "saved state refused: the bytes have another format");
    const uint8_t state[4] = {WASM_STATE_VERSION}, fuel[4] = {WASM_FUEL_VERSION};
    if (memcmp(bytes + 8, state, 4) != 0 || memcmp(bytes + 12, fuel, 4) != 0)
        return err_set(err, ERR_UNSUPPORTED,
                       "saved state of a cell refused: it has format version %u and fuel cost "
                       "version %u; this Carrel reads %d and %d",
                       bytes[8], bytes[12], WASM_STATE_VERSION, WASM_FUEL_VERSION);
    struct sha256 h;
    uint8_t hash[HASH];
    sha256_init(&h);
    sha256_add(&h, bytes, size - HASH);
    sha256_end(&h, hash);
    if (memcmp(hash, bytes + size - HASH, HASH) != 0)
        return err_set(err, ERR_INVALID,
                       "saved state refused: damaged, its checksum does not match");
    return 0;
}

/* Reads all parts, then calls state_check(), which needs them all: values refer to each other. */
static int state_read_load(struct loader *l) {
    struct wasm_store *s = l->s;
    s->budget = get(l);
    s->used = get(l);
    s->sequence = get(l);
    if (l->r.failed || s->budget > INT64_MAX / 2)
        return state_read_bad(l, "invalid fuel");
    if (get_origin(l) < 0 || get_contents(l) < 0 || get_call(l) < 0)
        return -1;
    if (l->r.failed || l->r.p != l->r.end)
        return state_read_bad(l, "the length is wrong");
    const char *why = state_check(s);
    return why ? state_read_bad(l, why) : 0;
}

int wasm_resume(struct wasm_engine *e, const void *bytes, size_t size,
                const struct wasm_modules *modules, struct wasm_store **ret, struct err *err) {
    struct err local = {0};
    struct loader l = {.e = e, .modules = modules, .err = err ? err : &local};
    *l.err = (struct err){0};
    if (check_header(bytes, size, l.err) < 0)
        return -1;
    const uint8_t *p = bytes;
    l.r = (struct reader){.p = p + HEADER, .end = p + size - HASH, .base = p, .diag = &l.diag};
    if (!(l.s = wasm_store_new(e)))
        return err_set(err, ERR_LIMIT, "out of memory while the saved state is read");
    int rc = state_read_load(&l);
    if (l.sizes)
        engine_release(e, l.sizes, ((size_t)l.n_mems + l.n_tables) * sizeof *l.sizes);
    if (rc < 0)
        wasm_store_free(l.s);
    else
        *ret = l.s;
    return rc;
}
