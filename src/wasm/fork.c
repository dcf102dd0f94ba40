/*
 * Forks a stopped store: small parts are copied, memory is shared until it is written. Numbers of
 * objects stay the same in the copy, so references and saved positions need no translation.
 */
#include "wasm/interp.h"

/* Copies host functions and names in the order of their creation, so that numbers match. */
static bool copy_hosts(struct wasm_store *to, const struct wasm_store *from) {
    for (uint32_t i = 0; i < from->n_host_fns; i++) {
        const struct fn *fn = &from->host_fns[i];
        if (!store_add_host(to, fn->canon, fn->host))
            return false;
    }
    for (uint32_t i = 0; i < from->n_defs; i++) {
        const struct definition *d = &from->defs[i];
        if (!store_define(to, d->module, d->module_size, d->name, d->name_size, d->what))
            return false;
    }
    for (uint32_t i = 0; i < from->n_log; i++)
        if (!store_log_creation(to, (enum creation_kind)from->log[i].kind, from->log[i].index))
            return false;
    for (uint32_t i = 0; i < from->n_handles; i++) {
        struct wasm_value v = wasm_host_ref(from->handles[i]);
        if (!store_note_handle(to, &v))
            return false;
    }
    return true;
}

static bool copy_memory(struct wasm_store *to, const struct wasm_store *from, struct memory *m) {
    struct memory *copy;
    if (!engine_grow(to->engine, &to->mems, &to->cap_mems, to->n_mems + 1, sizeof *to->mems) ||
        !memory_fork(to->engine, m, from->ran_since_seal, &copy))
        return false;
    to->mems[to->n_mems++] = copy;
    return true;
}

static bool copy_objects(struct wasm_store *to, struct wasm_store *from) {
    uint32_t id;
    for (uint32_t i = 0; i < from->n_mems; i++)
        if (!copy_memory(to, from, from->mems[i]))
            return false;
    for (uint32_t i = 0; i < from->n_tables; i++) {
        const struct table *t = from->tables[i];
        struct wasm_limits l = t->type_limits;
        l.min = t->size;
        if (!store_add_table(to, &l, t->type, 0, &id))
            return false;
        to->tables[id]->type_limits = t->type_limits;
        if (t->size)
            memcpy(to->tables[id]->elems, t->elems, t->size * sizeof *t->elems);
    }
    for (uint32_t i = 0; i < from->n_globals; i++) {
        if (!store_add_global(to, from->globals[i]->type, from->globals[i]->is_mutable, &id))
            return false;
        *to->globals[id] = *from->globals[i];
    }
    for (uint32_t i = 0; i < from->n_tags; i++)
        if (!store_add_tag(to, from->tags[i].canon, &id))
            return false;
    return true;
}

static bool copy_exns(struct wasm_store *to, const struct wasm_store *from) {
    if (!engine_grow(to->engine, &to->exns, &to->cap_exns, from->n_exns, sizeof *to->exns))
        return false;
    for (uint32_t i = 0; i < from->n_exns; i++) {
        struct exn x = from->exns[i];
        if (x.tag != NO_TYPE) {
            x.slots = engine_alloc(to->engine, x.n_slots * sizeof *x.slots);
            if (!x.slots)
                return false;
            memcpy(x.slots, from->exns[i].slots, x.n_slots * sizeof *x.slots);
            to->exn_slots += x.n_slots;
            to->live_exns++;
        }
        to->exns[to->n_exns++] = x;
    }
    return true;
}

static bool copy_slots(struct wasm_store *to, const uint64_t *slots, uint64_t n, uint64_t **ret) {
    *ret = engine_alloc(to->engine, n * sizeof *slots);
    if (*ret && n)
        memcpy(*ret, slots, n * sizeof *slots);
    return *ret != NULL;
}

static bool copy_heap(struct wasm_store *to, const struct wasm_store *from) {
    if (!engine_grow(to->engine, &to->objs, &to->cap_objs, from->n_objs, sizeof *to->objs))
        return false;
    to->heap_slots = from->heap_slots;
    to->since_collect = from->since_collect;
    to->free_obj = from->free_obj;
    for (uint32_t i = 0; i < from->n_objs; i++) {
        struct object o = from->objs[i];
        if (o.type != NO_TYPE && !copy_slots(to, from->objs[i].slots, o.n_slots, &o.slots))
            return false;
        to->objs[to->n_objs++] = o;
    }
    return true;
}

static bool copy_instance(struct wasm_store *to, const struct wasm_instance *i) {
    struct wasm_module *m = i->mod;
    if (!engine_grow(to->engine, &to->insts, &to->cap_insts, to->n_insts + 1, sizeof *to->insts))
        return false;
    struct wasm_instance *c = store_instance_shell(to, m);
    if (!c)
        return false;
    to->insts[to->n_insts++] = c;
    memcpy(c->func_refs, i->func_refs, m->imported_funcs * sizeof *c->func_refs);
    for (uint32_t k = 0; k < m->n_globals; k++)
        c->globals[k] = to->globals[c->global_ids[k] = i->global_ids[k]];
    for (uint32_t k = 0; k < m->n_mems; k++)
        c->mems[k] = to->mems[c->mem_ids[k] = i->mem_ids[k]];
    for (uint32_t k = 0; k < m->n_tables; k++)
        c->tables[k] = to->tables[c->table_ids[k] = i->table_ids[k]];
    memcpy(c->tags, i->tags, m->n_tags * sizeof *c->tags);
    memcpy(c->dropped_elems, i->dropped_elems, m->n_elems);
    memcpy(c->dropped_datas, i->dropped_datas, m->n_datas);
    for (uint32_t k = 0; k < m->n_elems; k++)
        if (i->elem_refs[k] && !copy_slots(to, i->elem_refs[k], m->elems[k].n, &c->elem_refs[k]))
            return false;
    c->mem0 = m->n_mems ? c->mems[0] : &store_empty_memory;
    return true;
}

/* Returns the instance of store `to` that has the same number as `i`. */
static struct wasm_instance *same(const struct wasm_store *to, const struct wasm_instance *i) {
    return i ? to->insts[i->number] : NULL;
}

/* Copies slots and frames of the call. Code positions point into the module, which both share. */
static bool copy_call(struct wasm_store *to, const struct wasm_store *from) {
    if (!from->stack)
        return true;
    if (!stack_make(to))
        return false;
    uint64_t *end = from->fp;
    if (from->pc && from->top > from->frames)
        end += from->top->fn->frame_slots;
    else if (from->start_fn || from->host_slots)
        end = from->stack + MAX_PARAMS * 2;
    if (end > from->stack_end)
        end = from->stack_end;
    memcpy(to->stack, from->stack, (size_t)(end - from->stack) * sizeof *end);
    size_t frames = (size_t)(from->top - from->frames) + 1;
    for (size_t i = 1; i < frames; i++) {
        to->frames[i] = from->frames[i];
        to->frames[i].fp = to->stack + (from->frames[i].fp - from->stack);
        to->frames[i].inst = same(to, from->frames[i].inst);
    }
    to->top = to->frames + (frames - 1);
    to->fp = to->stack + (from->fp - from->stack);
    if (from->host_slots)
        to->host_slots = to->stack + (from->host_slots - from->stack);
    return true;
}

/* Guest functions belong to the shared module; host functions belong to the store. */
static struct fn *same_fn(const struct wasm_store *to, const struct fn *fn) {
    return fn && fn->host ? &to->host_fns[fn->index] : (struct fn *)fn;
}

int wasm_fork(struct wasm_store *s, struct wasm_store **ret, struct err *err) {
    struct wasm_store *c = wasm_store_new(s->engine);
    bool ok = c && copy_hosts(c, s) && copy_objects(c, s) && copy_exns(c, s) && copy_heap(c, s);
    for (uint32_t i = 1; ok && i < s->n_insts; i++)
        ok = copy_instance(c, s->insts[i]);
    if (!ok || !copy_call(c, s)) {
        wasm_store_free(c);
        return err_set(err, ERR_LIMIT, "cannot fork the store: out of memory");
    }
    s->ran_since_seal = false;
    c->bytes = s->bytes;
    c->state = s->state;
    c->pc = s->pc;
    c->inst = same(c, s->inst);
    c->call_type = s->call_type;
    c->init = (struct init_job){same(c, s->init.inst), s->init.next, s->init.active};
    c->budget = s->budget, c->used = s->used, c->needed = s->needed, c->sequence = s->sequence;
    c->start_fn = same_fn(c, s->start_fn);
    c->answered = s->answered;
    c->host_fn = s->host_fn;
    if (c->state == RUN_HOST)
        call_event_host(c);
    *ret = c;
    return 0;
}
