/* Creates instances: evaluates constant expressions, binds imports and checks segments. */
#include "wasm/budget.h"
#include "wasm/interp.h"
#include "wasm/store_inner.h"

static int over_budget(const struct wasm_store *s, struct err *err) {
    return err_set(err, ERR_LIMIT,
                   "the program's memories, tables and code need more than the limit of %llu bytes",
                   (unsigned long long)s->engine->cfg.store_bytes);
}

/* ---- Constant expressions ---- */

struct eval {
    struct wasm_instance *i;
    struct reader r;
    uint64_t v[2 * MAX_CONST_DEPTH + 4]; /* slots of the operands */
    uint32_t n;
};

static void eval_binary(struct eval *e, uint8_t op) {
    bool is64 = op >= 0x7c;
    uint64_t b = e->v[--e->n], a = e->v[e->n - 1], r;
    switch (is64 ? op - 0x12 : op) {
    case 0x6a:
        r = a + b;
        break;
    case 0x6b:
        r = a - b;
        break;
    default:
        r = a * b;
    }
    e->v[e->n - 1] = is64 ? r : (uint32_t)r;
}

static void eval_bytes(struct eval *e, uint32_t bytes) {
    uint32_t slots = bytes == 16 ? 2 : 1;
    e->v[e->n] = 0;
    memcpy(&e->v[e->n], reader_bytes(&e->r, bytes), bytes);
    e->n += slots;
}

/* Reads the immediates of an object instruction. Returns the number of its operand slots. */
static uint32_t eval_operands(struct eval *e, uint32_t row, struct bulk *b) {
    if (wasm_ops[row].imm == IMM_NONE)
        return 1;
    b->x = e->i->mod->types[reader_u32(&e->r)];
    const struct type *t = e->i->mod->engine->types[b->x];
    switch (row) {
    case OP_STRUCT_NEW:
        return t->param_slots;
    case OP_STRUCT_NEW_DEFAULT:
        return 0;
    case OP_ARRAY_NEW:
        return t->param_slots + 1;
    case OP_ARRAY_NEW_FIXED:
        b->y = reader_u32(&e->r);
        return b->y * t->param_slots;
    default:
        return 1;
    }
}

static bool eval_object(struct eval *e) {
    struct bulk b = {.row = wasm_op_find(0xfb, reader_u32(&e->r))};
    e->n -= eval_operands(e, b.row, &b);
    b.slots = &e->v[e->n++];
    struct wasm_store *s = e->i->store;
    s->no_collect = true; /* the garbage collector does not see the operands in e->v */
    bool ok = !object_check(e->i, &b) && object_do(e->i, &b);
    s->no_collect = false;
    return ok;
}

static bool eval_step(struct eval *e, uint8_t op) {
    struct reader *r = &e->r;
    switch (op) {
    case 0x41:
        e->v[e->n++] = (uint32_t)reader_s32(r);
        return true;
    case 0x42:
        e->v[e->n++] = (uint64_t)reader_s64(r);
        return true;
    case 0x43:
    case 0x44:
        eval_bytes(e, op == 0x43 ? 4 : 8);
        return true;
    case 0x23: {
        const struct global *g = e->i->globals[reader_u32(r)];
        memcpy(&e->v[e->n], g->value, slots_of(g->type) * sizeof *e->v);
        e->n += slots_of(g->type);
        return true;
    }
    case 0xd0:
        module_heaptype(e->i->mod, r);
        e->v[e->n++] = 0;
        return true;
    case 0xd2:
        e->v[e->n++] = instance_func_ref(e->i, reader_u32(r));
        return true;
    case 0xfb:
        return eval_object(e);
    case 0xfd:
        reader_u32(r);
        eval_bytes(e, 16);
        return true;
    default:
        eval_binary(e, op);
        return true;
    }
}

/* The expression was validated when the module was loaded, so depth and opcodes are known good. */
bool instance_eval(struct wasm_instance *i, uint32_t offset, uint64_t ret[2]) {
    struct wasm_diag diag;
    struct wasm_module *m = i->mod;
    struct eval e = {.i = i};
    e.r = (struct reader){
        .p = m->bytes + offset, .end = m->bytes + m->size, .base = m->bytes, .diag = &diag};
    for (uint8_t op; (op = reader_byte(&e.r)) != 0x0b;)
        if (!eval_step(&e, op) || e.r.failed)
            return false;
    memcpy(ret, e.v, 16);
    return true;
}

/* Evaluates an element segment on first use and keeps the references. NULL: out of memory. */
const uint64_t *instance_elems(struct wasm_instance *i, uint32_t seg) {
    struct wasm_module *m = i->mod;
    const struct elem_decl *d = &m->elems[seg];
    if (i->elem_refs[seg])
        return i->elem_refs[seg];
    uint64_t *refs = engine_alloc(m->engine, d->n * sizeof *refs), both[2];
    if (!refs)
        return NULL;
    struct wasm_diag diag = {0};
    struct reader r = {
        .p = m->bytes + d->items, .end = m->bytes + m->size, .base = m->bytes, .diag = &diag};
    for (uint32_t k = 0; k < d->n; k++) {
        if (d->is_funcs) {
            refs[k] = instance_func_ref(i, reader_u32(&r));
            continue;
        }
        if (!instance_eval(i, (uint32_t)(r.p - r.base), both)) {
            engine_release(m->engine, refs, d->n * sizeof *refs);
            return NULL;
        }
        refs[k] = both[0];
        module_const_expr(m, &r, d->type); /* moves the reader to the end of the expression */
    }
    return i->elem_refs[seg] = refs;
}

/* ---- Linking ---- */

/* True if a memory or table fits an import: it has the minimum size, and no larger maximum. */
static bool limits_fit(const struct wasm_limits *have, uint64_t size,
                       const struct wasm_limits *want) {
    return have->is64 == want->is64 && size >= want->min &&
           (!want->has_max || (have->has_max && have->max <= want->max));
}

static bool extern_fits(const struct wasm_store *s, const struct wasm_module *m,
                        const struct import_decl *d, struct wasm_extern x) {
    const struct wasm_engine *e = s->engine;
    struct wasm_instance *i;
    if (x.kind != d->kind)
        return false;
    switch (d->kind) {
    case WASM_FUNC: {
        const struct fn *fn = store_fn(s, x.id, &i);
        return fn && types_sub_def(e, fn->canon, m->fns[d->index].canon);
    }
    case WASM_TABLE: {
        const struct table *t = s->tables[x.id];
        const struct limits_decl *want = &m->tables[d->index];
        return t->type == want->type && limits_fit(&t->type_limits, t->size, &want->l);
    }
    case WASM_MEMORY: {
        const struct memory *mem = s->mems[x.id];
        return limits_fit(&mem->type, mem->size / PAGE_SIZE, &m->mems[d->index].l);
    }
    case WASM_GLOBAL: {
        const struct global *g = s->globals[x.id];
        const struct global_decl *want = &m->globals[d->index];
        return g->is_mutable == want->is_mutable &&
               (want->is_mutable ? g->type == want->type : types_sub(e, g->type, want->type));
    }
    default:
        return s->tags[x.id].canon == m->tags[d->index];
    }
}

bool store_extern_exists(const struct wasm_store *s, struct wasm_extern x) {
    struct wasm_instance *i;
    switch (x.kind) {
    case WASM_FUNC:
        return store_fn(s, x.id, &i) != NULL;
    case WASM_TABLE:
        return x.id < s->n_tables;
    case WASM_MEMORY:
        return x.id < s->n_mems;
    case WASM_GLOBAL:
        return x.id < s->n_globals;
    default:
        return x.id < s->n_tags;
    }
}

static void bind_import(struct wasm_store *s, struct wasm_instance *i, const struct import_decl *d,
                        struct wasm_extern x) {
    uint32_t id = (uint32_t)x.id;
    switch (d->kind) {
    case WASM_FUNC:
        i->func_refs[d->index] = x.id;
        break;
    case WASM_TABLE:
        i->tables[d->index] = s->tables[i->table_ids[d->index] = id];
        break;
    case WASM_MEMORY:
        i->mems[d->index] = s->mems[i->mem_ids[d->index] = id];
        break;
    case WASM_GLOBAL:
        i->globals[d->index] = s->globals[i->global_ids[d->index] = id];
        break;
    default:
        i->tags[d->index] = id;
    }
}

static int link_import(struct wasm_store *s, struct wasm_instance *i, const struct import_decl *d,
                       const struct wasm_extern *given, struct err *err) {
    struct wasm_extern x;
    int ml = (int)(d->module_size < 64 ? d->module_size : 64),
        nl = (int)(d->name_size < 64 ? d->name_size : 64);
    if (given)
        x = *given;
    else if (!wasm_lookup(s, d->module, d->module_size, d->name, d->name_size, &x))
        return err_set(err, ERR_DENIED,
                       "unknown import: this module asks for %.*s.%.*s, which was not granted", ml,
                       d->module, nl, d->name);
    if (!store_extern_exists(s, x) || !extern_fits(s, i->mod, d, x))
        return err_set(err, ERR_INVALID, "incompatible import type for %.*s.%.*s", ml, d->module,
                       nl, d->name);
    bind_import(s, i, d, x);
    return 0;
}

/* Allocates one block for the instance and its arrays. */
struct wasm_instance *store_instance_shell(struct wasm_store *s, struct wasm_module *m) {
    size_t pointers =
        (size_t)m->imported_funcs + m->n_globals + m->n_mems + m->n_tables + m->n_elems;
    size_t words = (size_t)m->n_globals + m->n_mems + m->n_tables + m->n_tags;
    size_t size = sizeof(struct wasm_instance) + pointers * 8 + words * 4 + m->n_elems + m->n_datas;
    struct wasm_instance *i = engine_alloc(s->engine, size);
    if (!i)
        return NULL;
    i->block_size = size;
    uint64_t *p = (uint64_t *)(i + 1);
    i->func_refs = p;
    i->globals = (struct global **)(p += m->imported_funcs);
    i->mems = (struct memory **)(p += m->n_globals);
    i->tables = (struct table **)(p += m->n_mems);
    i->elem_refs = (uint64_t **)(p += m->n_tables);
    uint32_t *w = (uint32_t *)(p + m->n_elems);
    i->global_ids = w;
    i->mem_ids = (w += m->n_globals);
    i->table_ids = (w += m->n_mems);
    i->tags = (w += m->n_tables);
    i->dropped_elems = (uint8_t *)(w + m->n_tags);
    i->dropped_datas = i->dropped_elems + m->n_elems;
    i->store = s;
    i->mod = wasm_module_ref(m);
    i->fns = m->fns;
    i->n_fns = m->n_funcs;
    i->number = s->n_insts;
    return i;
}

static bool make_globals(struct wasm_store *s, struct wasm_instance *i) {
    struct wasm_module *m = i->mod;
    for (uint32_t k = m->imported_globals; k < m->n_globals; k++) {
        const struct global_decl *d = &m->globals[k];
        if (!store_add_global(s, d->type, d->is_mutable, &i->global_ids[k]))
            return false;
        i->globals[k] = s->globals[i->global_ids[k]];
        uint64_t v[2] = {0};
        if (!instance_eval(i, d->init, v))
            return false;
        i->globals[k]->value[0] = v[0];
        if (d->type == WASM_V128)
            i->globals[k]->value[1] = v[1];
    }
    return true;
}

static bool make_objects(struct wasm_store *s, struct wasm_instance *i) {
    struct wasm_module *m = i->mod;
    if (!make_globals(s, i))
        return false;
    for (uint32_t k = m->imported_mems; k < m->n_mems; k++) {
        if (!store_add_memory(s, &m->mems[k].l, &i->mem_ids[k]))
            return false;
        i->mems[k] = s->mems[i->mem_ids[k]];
    }
    for (uint32_t k = m->imported_tables; k < m->n_tables; k++) {
        uint64_t init[2] = {0, 0};
        if (m->tables[k].init && !instance_eval(i, m->tables[k].init, init))
            return false;
        if (!store_add_table(s, &m->tables[k].l, m->tables[k].type, init[0], &i->table_ids[k]))
            return false;
        i->tables[k] = s->tables[i->table_ids[k]];
    }
    for (uint32_t k = m->imported_tags; k < m->n_tags; k++)
        if (!store_add_tag(s, m->tags[k], &i->tags[k]))
            return false;
    i->mem0 = m->n_mems ? i->mems[0] : &store_empty_memory;
    return true;
}

/* Version 1.0 of the specification requires all segments to fit before any is written. */
static bool segments_fit(struct wasm_instance *i) {
    struct wasm_module *m = i->mod;
    uint64_t v[2];
    for (uint32_t k = 0; k < m->n_elems; k++) {
        instance_eval(i, m->elems[k].offset, v);
        if (v[0] + m->elems[k].n > i->tables[m->elems[k].table]->size)
            return false;
    }
    for (uint32_t k = 0; k < m->n_datas; k++) {
        instance_eval(i, m->datas[k].offset, v);
        if (v[0] + m->datas[k].size > i->mems[m->datas[k].mem]->size)
            return false;
    }
    return true;
}

static int instance_link(struct wasm_store *s, struct wasm_instance *i,
                         const struct wasm_extern *imports, struct err *err) {
    struct wasm_module *m = i->mod;
    for (uint32_t k = 0; k < m->n_imports; k++)
        if (link_import(s, i, &m->imports[k], imports ? &imports[k] : NULL, err) < 0)
            return -1;
    s->is_over_budget = false;
    if (!make_objects(s, i))
        return s->is_over_budget
                   ? over_budget(s, err)
                   : err_set(err, ERR_LIMIT,
                             "a memory or table of the module is larger than this engine allows");
    if (m->level < WASM_2_0 && !segments_fit(i))
        return err_set(err, ERR_INVALID,
                       "a data segment does not fit its memory, or an element segment its table");
    return 0;
}

/* Deletes the objects of a failed instantiation, so that later objects get the same numbers. */
static void undo(struct wasm_store *s, const struct wasm_store *before) {
    struct wasm_engine *e = s->engine;
    while (s->n_mems > before->n_mems)
        memory_free(s, s->mems[--s->n_mems]);
    while (s->n_tables > before->n_tables)
        table_free(s, s->tables[--s->n_tables]);
    while (s->n_globals > before->n_globals) {
        engine_release(e, s->globals[--s->n_globals], sizeof(struct global));
        store_give(s, BUDGET_ITEM);
    }
    s->n_tags = before->n_tags;
    store_give(s, budget_instance(s->insts[s->n_insts - 1]->mod));
    store_instance_free(s, s->insts[--s->n_insts]);
}

int store_instantiate(struct wasm_store *s, struct wasm_module *m,
                      const struct wasm_extern *imports, struct wasm_instance **ret,
                      struct err *err) {
    struct wasm_store before = *s;
    struct wasm_instance *i = NULL;
    if (s->n_insts > s->engine->cfg.instances)
        return err_set(err, ERR_LIMIT, "the store already has the maximum number of instances");
    if (!store_take(s, budget_instance(m)))
        return over_budget(s, err);
    if (!engine_grow(s->engine, &s->insts, &s->cap_insts, s->n_insts + 1, sizeof *s->insts) ||
        !(i = store_instance_shell(s, m))) {
        store_give(s, budget_instance(m));
        return store_no_memory(err);
    }
    s->insts[s->n_insts++] =
        i; /* add it before linking, because its globals may refer to its functions */
    if (instance_link(s, i, imports, err) < 0) {
        undo(s, &before);
        return -1;
    }
    if (!store_log_creation(s, MADE_INSTANCE, i->number)) {
        undo(s, &before);
        return store_no_memory(err);
    }
    *ret = i;
    return 0;
}

int wasm_instance_new(struct wasm_store *s, struct wasm_module *m,
                      const struct wasm_extern *imports, uint32_t n_imports,
                      struct wasm_instance **ret, struct err *err) {
    if (s->state != RUN_IDLE)
        return err_set(err, ERR_BUSY, "another call of this store is in progress");
    if (imports && n_imports != m->n_imports)
        return err_set(err, ERR_INVALID, "the module has %u imports, %u were given", m->n_imports,
                       n_imports);
    if (store_instantiate(s, m, imports, ret, err) < 0)
        return -1;
    s->state = RUN_READY;
    s->pc = NULL;
    s->init = (struct init_job){.inst = *ret, .active = true};
    return 0;
}
