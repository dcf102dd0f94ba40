/* Creates the objects of a store, finds them by name, and links instances to them. */
#include "base/sort.h"
#include "wasm/budget.h"
#include "wasm/interp.h"
#include "wasm/store_inner.h"

const struct memory store_empty_memory;

/* ---- The store ---- */

/* Instance 0 holds the host functions, so that a reference to one looks like any other. */
static bool host_instance(struct wasm_store *s) {
    struct wasm_instance *i = engine_alloc(s->engine, sizeof *i);
    if (!i || !engine_grow(s->engine, &s->insts, &s->cap_insts, 1, sizeof *s->insts)) {
        engine_release(s->engine, i, sizeof *i);
        return false;
    }
    i->store = s;
    i->mem0 = &store_empty_memory;
    i->block_size = sizeof *i;
    s->insts[s->n_insts++] = i;
    return true;
}

struct wasm_store *wasm_store_new(struct wasm_engine *e) {
    struct wasm_store *s = engine_alloc(e, sizeof *s);
    if (!s)
        return NULL;
    s->engine = e;
    if (!host_instance(s)) {
        engine_release(e, s, sizeof *s);
        return NULL;
    }
    return s;
}

void store_instance_free(struct wasm_store *s, struct wasm_instance *i) {
    struct wasm_engine *e = s->engine;
    for (uint32_t k = 0; i->mod && i->elem_refs && k < i->mod->n_elems; k++)
        if (i->elem_refs[k])
            engine_release(e, i->elem_refs[k], i->mod->elems[k].n * sizeof(uint64_t));
    wasm_module_unref(i->mod);
    engine_release(e, i, i->block_size);
}

static void text_free(struct wasm_engine *e, char *text, size_t n) {
    engine_release(e, text, n + 1);
}

static void defs_free(struct wasm_store *s) {
    for (uint32_t i = 0; i < s->n_defs; i++) {
        text_free(s->engine, s->defs[i].module, s->defs[i].module_size);
        text_free(s->engine, s->defs[i].name, s->defs[i].name_size);
    }
    for (uint32_t i = 0; i < s->n_host_fns; i++) {
        struct host_func *h = s->host_fns[i].host;
        text_free(s->engine, h->module, strlen(h->module));
        text_free(s->engine, h->name, strlen(h->name));
        engine_release(s->engine, h, sizeof *h);
    }
}

void wasm_store_free(struct wasm_store *s) {
    if (!s)
        return;
    struct wasm_engine *e = s->engine;
    for (uint32_t i = 0; i < s->n_exns; i++)
        engine_release(e, s->exns[i].slots, s->exns[i].n_slots * sizeof(uint64_t));
    for (uint32_t i = 0; i < s->n_objs; i++)
        engine_release(e, s->objs[i].slots, s->objs[i].n_slots * sizeof(uint64_t));
    engine_release(e, s->objs, s->cap_objs * sizeof *s->objs);
    for (uint32_t i = 0; i < s->n_insts; i++)
        store_instance_free(s, s->insts[i]);
    for (uint32_t i = 0; i < s->n_mems; i++)
        memory_free(s, s->mems[i]);
    for (uint32_t i = 0; i < s->n_tables; i++)
        table_free(s, s->tables[i]);
    for (uint32_t i = 0; i < s->n_globals; i++)
        engine_release(e, s->globals[i], sizeof *s->globals[i]);
    defs_free(s);
    stack_free(s);
    engine_release(e, s->insts, s->cap_insts * sizeof *s->insts);
    engine_release(e, s->mems, s->cap_mems * sizeof *s->mems);
    engine_release(e, s->tables, s->cap_tables * sizeof *s->tables);
    engine_release(e, s->globals, s->cap_globals * sizeof *s->globals);
    engine_release(e, s->tags, s->cap_tags * sizeof *s->tags);
    engine_release(e, s->host_fns, s->cap_host_fns * sizeof *s->host_fns);
    engine_release(e, s->defs, s->cap_defs * sizeof *s->defs);
    engine_release(e, s->log, s->cap_log * sizeof *s->log);
    engine_release(e, s->handles, s->cap_handles * sizeof *s->handles);
    engine_release(e, s->exns, s->cap_exns * sizeof *s->exns);
    engine_release(e, s->values, s->cap_values * sizeof *s->values);
    engine_release(e, s, sizeof *s);
}

void wasm_store_freep(struct wasm_store **s) {
    wasm_store_free(*s);
}

/* ---- Objects ---- */

bool store_add_memory(struct wasm_store *s, const struct wasm_limits *l, uint32_t *ret) {
    struct memory *m;
    if (!engine_grow(s->engine, &s->mems, &s->cap_mems, s->n_mems + 1, sizeof *s->mems) ||
        !memory_new(s, l, &m))
        return false;
    s->mems[ *ret = s->n_mems++] = m;
    return true;
}

bool store_add_table(struct wasm_store *s, const struct wasm_limits *l, uint32_t type,
                     uint64_t init, uint32_t *ret) {
    struct table *t;
    if (!engine_grow(s->engine, &s->tables, &s->cap_tables, s->n_tables + 1, sizeof *s->tables) ||
        !table_new(s, l, type, init, &t))
        return false;
    s->tables[ *ret = s->n_tables++] = t;
    return true;
}

bool store_add_global(struct wasm_store *s, uint32_t type, bool is_mutable, uint32_t *ret) {
    if (!store_take(s, BUDGET_ITEM))
        return false;
    struct global *g = engine_alloc(s->engine, sizeof *g);
    if (!g || !engine_grow(s->engine, &s->globals, &s->cap_globals, s->n_globals + 1,
                           sizeof *s->globals)) {
        store_give(s, BUDGET_ITEM);
        engine_release(s->engine, g, sizeof *g);
        return false;
    }
    g->type = type;
    g->is_mutable = is_mutable;
    s->globals[ *ret = s->n_globals++] = g;
    return true;
}

bool store_add_tag(struct wasm_store *s, uint32_t canon, uint32_t *ret) {
    if (!engine_grow(s->engine, &s->tags, &s->cap_tags, s->n_tags + 1, sizeof *s->tags))
        return false;
    s->tags[ *ret = s->n_tags++].canon = canon;
    return true;
}

/* Logs the creation: wasm_resume() repeats it in this order, so that objects get the same numbers.
 */
bool store_log_creation(struct wasm_store *s, enum creation_kind kind, uint32_t index) {
    if (!engine_grow(s->engine, &s->log, &s->cap_log, s->n_log + 1, sizeof *s->log))
        return false;
    s->log[s->n_log++] = (struct creation){(uint8_t)kind, index};
    return true;
}

static int compare_handles(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Sorts the host handles, so that a captured state does not depend on the order of calls. */
void store_handles_sort(struct wasm_store *s) {
    uint32_t n = 0;
    heap_sort(s->handles, s->n_handles, sizeof *s->handles, compare_handles);
    for (uint32_t i = 0; i < s->n_handles; i++)
        if (n == 0 || s->handles[n - 1] != s->handles[i])
            s->handles[n++] = s->handles[i];
    s->n_handles = n;
}

/* True for a host handle, which is a small number; objects and i31 have a tag in the upper bits. */
static bool is_handle_value(const struct wasm_value *v) {
    uint32_t heap = WASM_HEAP(v->type);
    return is_ref(v->type) && v->ref != 0 && v->ref >> 60 < 10 &&
           (heap == WASM_HEAP(WASM_EXTERNREF) || heap == WASM_HEAP(WASM_ANYREF));
}

bool store_note_handle(struct wasm_store *s, const struct wasm_value *v) {
    if (!is_handle_value(v) || (s->n_handles && s->handles[s->n_handles - 1] == v->ref - 1))
        return true;
    /* Remove duplicate handles before the list grows: hosts pass the same ones again and again. */
    if (s->n_handles == s->cap_handles)
        store_handles_sort(s);
    if (!engine_grow(s->engine, &s->handles, &s->cap_handles, s->n_handles + 1, sizeof *s->handles))
        return false;
    s->handles[s->n_handles++] = v->ref - 1;
    return true;
}

/* ---- Exceptions ---- */

#define EXN_REF UINT64_C(0xe000000000000000)
enum { MAX_EXNS = 10000 };

const struct exn *store_exn(const struct wasm_store *s, uint64_t ref) {
    uint64_t i = ref - EXN_REF;
    return ref >= EXN_REF && i < s->n_exns && s->exns[i].tag != NO_TYPE ? &s->exns[i] : NULL;
}

static void exn_drop(struct wasm_store *s, struct exn *x) {
    engine_release(s->engine, x->slots, x->n_slots * sizeof *x->slots);
    s->exn_slots -= x->n_slots;
    store_give(s, budget_slots(x->n_slots));
    *x = (struct exn){.tag = NO_TYPE};
    s->live_exns--;
    if (x - s->exns < s->free_exn)
        s->free_exn = (uint32_t)(x - s->exns);
}

void store_exn_free(struct wasm_store *s, uint64_t ref) {
    exn_drop(s, &s->exns[ref - EXN_REF]);
}

/* Returns the lowest free index for an exception, so that references survive a capture. */
static uint32_t exn_slot(struct wasm_store *s) {
    for (; s->free_exn < s->n_exns; s->free_exn++)
        if (s->exns[s->free_exn].tag == NO_TYPE)
            return s->free_exn;
    if (!engine_grow(s->engine, &s->exns, &s->cap_exns, s->n_exns + 1, sizeof *s->exns))
        return NO_TYPE;
    s->exns[s->n_exns] = (struct exn){.tag = NO_TYPE};
    return s->n_exns++;
}

uint64_t store_exn_cost(const struct wasm_store *s, const uint64_t *slots, uint32_t n) {
    return n / 8 + (s->live_exns >= MAX_EXNS ? store_collect_cost(s, slots + n) : 0);
}

uint64_t store_exn_new(struct wasm_store *s, uint32_t tag, const uint64_t *slots, uint32_t n) {
    bool collected = s->live_exns >= MAX_EXNS;
    if (collected)
        store_collect(s, slots + n); /* the arguments are on top of the stack */
    /* Fails unless half of the exceptions were garbage, else every later throw would collect. */
    bool full = collected && s->live_exns > MAX_EXNS / 2;
    if (full || !store_take(s, budget_slots(n)))
        return 0;
    uint64_t *copy = engine_alloc(s->engine, n * sizeof *copy);
    uint32_t i = copy ? exn_slot(s) : NO_TYPE;
    if (i == NO_TYPE) {
        store_give(s, budget_slots(n));
        engine_release(s->engine, copy, n * sizeof *copy);
        return 0;
    }
    if (n)
        memcpy(copy, slots, n * sizeof *copy);
    s->exns[i] = (struct exn){.tag = tag, .n_slots = n, .slots = copy};
    s->exn_slots += n;
    s->live_exns++;
    return EXN_REF + i;
}

/* ---- Names ---- */

char *store_text(struct wasm_store *s, const char *p, size_t n) {
    char *copy = engine_alloc(s->engine, n + 1);
    if (copy && n)
        memcpy(copy, p, n);
    return copy;
}

bool store_define(struct wasm_store *s, const char *module, size_t module_size, const char *name,
                  size_t name_size, struct wasm_extern what) {
    if (!engine_grow(s->engine, &s->defs, &s->cap_defs, s->n_defs + 1, sizeof *s->defs))
        return false;
    struct definition d = {store_text(s, module, module_size), store_text(s, name, name_size),
                           (uint32_t)module_size, (uint32_t)name_size, what};
    if (!d.module || !d.name) {
        text_free(s->engine, d.module, module_size);
        text_free(s->engine, d.name, name_size);
        return false;
    }
    s->defs[s->n_defs++] = d;
    return true;
}

/* Searches from the end, because a later definition of a name hides an earlier one. */
bool wasm_lookup(struct wasm_store *s, const char *module, size_t module_size, const char *name,
                 size_t name_size, struct wasm_extern *ret) {
    for (uint32_t i = s->n_defs; i-- > 0;) {
        const struct definition *d = &s->defs[i];
        if (d->module_size == module_size && d->name_size == name_size &&
            memcmp(d->module, module, module_size) == 0 && memcmp(d->name, name, name_size) == 0) {
            *ret = d->what;
            return true;
        }
    }
    return false;
}

int store_no_memory(struct err *err) {
    return err_set(err, ERR_LIMIT, "out of memory for the objects of the store");
}

uint64_t wasm_store_bytes(const struct wasm_store *s) {
    return s->bytes;
}

bool wasm_store_over_budget(const struct wasm_store *s) {
    return s->is_over_budget;
}

static int define(struct wasm_store *s, const char *module, const char *name,
                  enum wasm_extern_kind kind, uint64_t id, struct err *err) {
    struct wasm_extern x = {kind, id};
    return store_define(s, module, strlen(module), name, strlen(name), x) ? 0
                                                                          : store_no_memory(err);
}

static uint64_t func_ref(uint32_t instance, uint32_t index) {
    return (uint64_t)(instance + 1) << 32 | index;
}

bool store_add_host(struct wasm_store *s, uint32_t canon, const struct host_func *what) {
    const char *module = what->module, *name = what->name;
    struct host_func *h = engine_alloc(s->engine, sizeof *h);
    if (!h || !engine_grow(s->engine, &s->host_fns, &s->cap_host_fns, s->n_host_fns + 1,
                           sizeof *s->host_fns)) {
        engine_release(s->engine, h, sizeof *h);
        return false;
    }
    *h = (struct host_func){store_text(s, module, strlen(module)),
                            store_text(s, name, strlen(name)), what->cost, what->sized};
    if (!h->module || !h->name) {
        text_free(s->engine, h->module, strlen(module));
        text_free(s->engine, h->name, strlen(name));
        engine_release(s->engine, h, sizeof *h);
        return false;
    }
    const struct type *t = s->engine->types[canon];
    s->host_fns[s->n_host_fns] = (struct fn){.canon = canon,
                                             .index = s->n_host_fns,
                                             .type = t,
                                             .host = h,
                                             .param_slots = t->param_slots,
                                             .result_slots = t->result_slots};
    s->n_host_fns++;
    s->insts[0]->fns = s->host_fns;
    s->insts[0]->n_fns = s->n_host_fns;
    return true;
}

bool store_intern_func(struct wasm_engine *e, const struct wasm_func_type *type, uint32_t *ret) {
    if (type->n_params > MAX_PARAMS || type->n_results > MAX_PARAMS)
        return false;
    uint32_t n = type->n_params + type->n_results;
    uint32_t *vals = engine_alloc(e, n * sizeof *vals);
    if (!vals)
        return false;
    for (uint32_t i = 0; i < n; i++)
        vals[i] = i < type->n_params ? type->params[i] : type->results[i - type->n_params];
    struct type t = {.kind = TYPE_FUNC,
                     .final = true,
                     .super = NO_TYPE,
                     .n_params = type->n_params,
                     .n_results = type->n_results,
                     .vals = vals};
    bool ok = types_intern(e, &t, 1, ret);
    engine_release(e, vals, n * sizeof *vals);
    return ok;
}

int wasm_host_func(struct wasm_store *s, const char *module, const char *name,
                   const struct wasm_func_type *type, uint64_t cost, struct err *err) {
    return wasm_host_func_sized(s, module, name, type, cost, WASM_NOT_SIZED, err);
}

int wasm_host_func_sized(struct wasm_store *s, const char *module, const char *name,
                         const struct wasm_func_type *type, uint64_t cost, uint32_t size_param,
                         struct err *err) {
    uint32_t canon;
    if (cost > INT64_MAX / 4)
        return err_set(err, ERR_INVALID, "the fuel cost of host function '%s' is too large", name);
    if (size_param != WASM_NOT_SIZED &&
        (size_param >= type->n_params || type->params[size_param] != WASM_I32))
        return err_set(err, ERR_INVALID, "host function '%s' has no i32 parameter %u", name,
                       size_param);
    const struct host_func what = {(char *)module, (char *)name, cost, size_param + 1};
    if (!store_intern_func(s->engine, type, &canon) || !store_add_host(s, canon, &what) ||
        !store_log_creation(s, MADE_FUNC, s->n_host_fns - 1))
        return store_no_memory(err);
    return define(s, module, name, WASM_FUNC, func_ref(0, s->n_host_fns - 1), err);
}

bool wasm_host_func_at(const struct wasm_store *s, uint32_t i, struct wasm_host_info *ret) {
    if (i >= s->n_host_fns)
        return false;
    const struct fn *fn = &s->host_fns[i];
    *ret = (struct wasm_host_info){fn->host->module, fn->host->name, type_view(fn->type),
                                   fn->host->cost, fn->host->sized - 1};
    return true;
}

int wasm_host_global(struct wasm_store *s, const char *module, const char *name, bool is_mutable,
                     struct wasm_value value, struct err *err) {
    uint32_t id;
    if (!store_add_global(s, value.type, is_mutable, &id) ||
        !store_log_creation(s, MADE_GLOBAL, id) || !store_note_handle(s, &value))
        return store_no_memory(err);
    value_to_slots(&value, s->globals[id]->value);
    return define(s, module, name, WASM_GLOBAL, id, err);
}

int wasm_host_memory(struct wasm_store *s, const char *module, const char *name,
                     const struct wasm_limits *limits, struct err *err) {
    uint32_t id;
    if (!store_add_memory(s, limits, &id) || !store_log_creation(s, MADE_MEMORY, id))
        return store_no_memory(err);
    return define(s, module, name, WASM_MEMORY, id, err);
}

int wasm_host_table(struct wasm_store *s, const char *module, const char *name,
                    const struct wasm_limits *limits, uint32_t type, struct err *err) {
    uint32_t id;
    if (!store_add_table(s, limits, type, 0, &id) || !store_log_creation(s, MADE_TABLE, id))
        return store_no_memory(err);
    return define(s, module, name, WASM_TABLE, id, err);
}

/* ---- Instances ---- */

uint64_t instance_func_ref(const struct wasm_instance *i, uint32_t func) {
    return func < i->mod->imported_funcs ? i->func_refs[func] : func_ref(i->number, func);
}

struct fn *store_fn(const struct wasm_store *s, uint64_t ref, struct wasm_instance **ret_inst) {
    uint32_t number = (uint32_t)(ref >> 32) - 1, index = (uint32_t)ref;
    if (UNLIKELY(number >= s->n_insts))
        return NULL;
    struct wasm_instance *i = *ret_inst = s->insts[number];
    return LIKELY(index < i->n_fns) ? &i->fns[index] : NULL;
}

static struct wasm_extern extern_of(const struct wasm_instance *i, uint8_t kind, uint32_t index) {
    switch (kind) {
    case WASM_FUNC:
        return (struct wasm_extern){WASM_FUNC, instance_func_ref(i, index)};
    case WASM_TABLE:
        return (struct wasm_extern){WASM_TABLE, i->table_ids[index]};
    case WASM_MEMORY:
        return (struct wasm_extern){WASM_MEMORY, i->mem_ids[index]};
    case WASM_GLOBAL:
        return (struct wasm_extern){WASM_GLOBAL, i->global_ids[index]};
    default:
        return (struct wasm_extern){WASM_TAG, i->tags[index]};
    }
}

bool wasm_export(const struct wasm_instance *i, const char *name, size_t name_size,
                 struct wasm_extern *ret) {
    for (uint32_t k = 0; i->mod && k < i->mod->n_exports; k++) {
        const struct export_decl *d = &i->mod->exports[k];
        if (d->name_size == name_size && memcmp(d->name, name, name_size) == 0) {
            *ret = extern_of(i, d->kind, d->index);
            return true;
        }
    }
    return false;
}

int wasm_register(struct wasm_store *s, const char *module, size_t module_size,
                  struct wasm_instance *i, struct err *err) {
    for (uint32_t k = 0; k < i->mod->n_exports; k++) {
        const struct export_decl *d = &i->mod->exports[k];
        if (!store_define(s, module, module_size, d->name, d->name_size,
                          extern_of(i, d->kind, d->index)))
            return store_no_memory(err);
    }
    return 0;
}

struct wasm_module *wasm_instance_module(const struct wasm_instance *i) {
    return i->mod;
}

uint32_t wasm_instances(const struct wasm_store *s) {
    return s->n_insts - 1;
}

struct wasm_instance *wasm_instance_at(const struct wasm_store *s, uint32_t i) {
    return s->insts[i + 1];
}

static const struct type *tag_type(const struct wasm_store *s, uint64_t id) {
    return s->engine->types[s->tags[id].canon];
}

void wasm_extern_type(const struct wasm_store *s, struct wasm_extern x,
                      struct wasm_extern_type *ret) {
    struct wasm_instance *i;
    *ret = (struct wasm_extern_type){.kind = x.kind};
    switch (x.kind) {
    case WASM_FUNC:
        ret->func = type_view(store_fn(s, x.id, &i)->type);
        break;
    case WASM_TABLE:
        ret->limits = s->tables[x.id]->type_limits;
        ret->limits.min = s->tables[x.id]->size;
        ret->type = s->tables[x.id]->type;
        break;
    case WASM_MEMORY:
        ret->limits = s->mems[x.id]->type;
        ret->limits.min = s->mems[x.id]->size / PAGE_SIZE;
        break;
    case WASM_GLOBAL:
        ret->type = s->globals[x.id]->type;
        ret->is_mutable = s->globals[x.id]->is_mutable;
        break;
    default:
        ret->func = type_view(tag_type(s, x.id));
    }
}

void value_to_slots(const struct wasm_value *v, uint64_t *slots) {
    slots[0] = 0;
    if (v->type == WASM_I32 || v->type == WASM_F32)
        slots[0] = v->f32;
    else if (v->type == WASM_V128)
        memcpy(slots, v->v128, 16);
    else
        slots[0] = v->f64;
}

/* Returns the topmost supertype of a reference type, which stands for its hierarchy. */
static uint32_t top_of(const struct wasm_store *s, uint32_t type) {
    static const uint32_t tops[] = {WASM_FUNCREF, WASM_EXTERNREF, WASM_EXNREF, WASM_ANYREF};
    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++)
        if (types_sub(s->engine, type, tops[i]))
            return tops[i];
    return 0;
}

bool value_fits(const struct wasm_store *s, const struct wasm_value *v, uint32_t type) {
    struct wasm_instance *i;
    if (!is_ref(v->type) || !is_ref(type))
        return v->type == type;
    uint32_t top = top_of(s, type);
    if (top_of(s, v->type) != top)
        return false;
    if (v->ref == 0)
        return type & WASM_NULLABLE;
    if (top == WASM_FUNCREF) {
        const struct fn *fn = store_fn(s, v->ref, &i);
        return fn && types_sub(s->engine, WASM_REF | fn->canon, type);
    }
    if (top == WASM_EXNREF)
        return store_exn(s, v->ref) != NULL;
    return top == WASM_ANYREF ? object_is(s, v->ref, type) : WASM_HEAP(type) == WASM_HEAP(top);
}

struct wasm_value value_from_slots(const uint64_t *slots, uint32_t type) {
    struct wasm_value v = {.type = type};
    memset(v.v128, 0, 16);
    memcpy(v.v128, slots, type == WASM_V128 ? 16 : 8);
    return v;
}

struct wasm_value wasm_global_get(const struct wasm_store *s, struct wasm_extern x) {
    return value_from_slots(s->globals[x.id]->value, s->globals[x.id]->type);
}

int wasm_global_set(struct wasm_store *s, struct wasm_extern x, struct wasm_value v,
                    struct err *err) {
    struct global *g = s->globals[x.id];
    if (!g->is_mutable || !value_fits(s, &v, g->type))
        return err_set(err, ERR_INVALID,
                       "cannot set the global: it is immutable or has another type");
    if (!store_note_handle(s, &v))
        return store_no_memory(err);
    value_to_slots(&v, g->value);
    return 0;
}

struct wasm_extern instance_import(const struct wasm_instance *i, uint32_t import) {
    const struct import_decl *d = &i->mod->imports[import];
    return extern_of(i, d->kind, d->index);
}

uint8_t *wasm_memory_bytes(const struct wasm_store *s, struct wasm_extern x, size_t *ret_size) {
    struct memory *m = s->mems[x.id];
    bool ready = memory_reach(s->engine, m, m->size);
    *ret_size = ready ? m->size : 0;
    return ready ? m->base : NULL;
}

uint64_t wasm_table_size(const struct wasm_store *s, struct wasm_extern x) {
    return s->tables[x.id]->size;
}

int wasm_table_get(const struct wasm_store *s, struct wasm_extern x, uint64_t i,
                   struct wasm_value *ret, struct err *err) {
    const struct table *t = s->tables[x.id];
    if (i >= t->size)
        return err_set(err, ERR_INVALID, "table index %llu is out of bounds",
                       (unsigned long long)i);
    *ret = value_from_slots(&t->elems[i], t->type);
    return 0;
}
