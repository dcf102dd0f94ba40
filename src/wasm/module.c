/*
 * Reads a module from bytes: one function per section, found in a table by section id.
 *
 * Each count is checked against the bytes that are left, before memory is allocated for it.
 */
#include "base/siphash.h"
#include "wasm/engine.h"
#include "wasm/module_inner.h"

bool module_fail_memory(struct reader *r) {
    return reader_fail(r, WASM_TOO_BIG, "out of memory");
}

/* Returns room for element n of a list in the arena. The list doubles when it is full. */
void *module_list_add(struct wasm_module *m, void *slot, uint32_t n, size_t size) {
    void **list = slot;
    if (n == 0 || (n >= 4 && (n & (n - 1)) == 0)) {
        void *next = arena_get(&m->arena, (n ? 2 * (size_t)n : 4) * size);
        if (!next)
            return NULL;
        if (n)
            memcpy(next, *list, n * size);
        *list = next;
    }
    return (uint8_t *)*list + n * size;
}

/* Reads the length of a vector. Each element takes at least one of the bytes that are left. */
uint32_t module_count(struct reader *r, uint32_t max, const char *what) {
    uint32_t n = reader_u32(r);
    if (n > (size_t)(r->end - r->p)) {
        reader_fail(r, WASM_MALFORMED, "unexpected end: length out of bounds");
        return 0;
    }
    if (n > max) {
        reader_fail(r, WASM_TOO_BIG, "too many %s: %u, limit %u", what, n, max);
        return 0;
    }
    return n;
}

static bool utf8_ok(const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n;) {
        uint8_t b = p[i];
        if (b < 0x80) {
            i++;
            continue;
        }
        unsigned more = b >= 0xf0 ? 3 : b >= 0xe0 ? 2 : 1;
        uint32_t code = b & (0x3fu >> more), low = more == 1 ? 0x80 : more == 2 ? 0x800 : 0x10000;
        if (b < 0xc2 || b > 0xf4 || n - i <= more)
            return false;
        for (unsigned j = 1; j <= more; j++) {
            if ((p[i + j] & 0xc0) != 0x80)
                return false;
            code = code << 6 | (p[i + j] & 0x3f);
        }
        if (code < low || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
            return false;
        i += more + 1;
    }
    return true;
}

static const char *name(struct reader *r, uint32_t *ret_size) {
    uint32_t n = reader_u32(r);
    const uint8_t *p = reader_bytes(r, n);
    if (p && !utf8_ok(p, n))
        reader_fail(r, WASM_MALFORMED, "malformed UTF-8 encoding");
    *ret_size = n;
    return (const char *)p;
}

/* ---- Imports and declarations ---- */

static bool fn_add(struct loader *l, uint32_t type_index) {
    struct wasm_module *m = l->m;
    if (type_index >= m->n_types)
        return reader_fail(&l->r, WASM_INVALID, "unknown type %u", type_index);
    const struct type *t = module_type(m, type_index);
    if (t->kind != TYPE_FUNC)
        return reader_fail(&l->r, WASM_INVALID, "type %u is not a function type", type_index);
    struct fn *fn = module_list_add(m, &m->fns, m->n_funcs, sizeof *fn);
    if (!fn || m->n_funcs >= MAX_FUNCS)
        return module_fail_memory(&l->r);
    *fn = (struct fn){.type = t,
                      .canon = t->id,
                      .index = m->n_funcs++,
                      .mod = m,
                      .param_slots = t->param_slots,
                      .result_slots = t->result_slots};
    return true;
}

static bool limits(struct loader *l, struct wasm_limits *ret, uint64_t max32, uint64_t max64,
                   const char *too_big) {
    struct reader *r = &l->r;
    uint8_t flags = reader_byte(r);
    bool level3 = l->m->level >= WASM_3_0;
    if (flags > (level3 ? 7 : 1) || (flags & 2))
        return reader_fail(r, WASM_MALFORMED, "malformed limits flags");
    ret->has_max = flags & 1;
    ret->is64 = flags & 4;
    ret->min = level3 ? reader_u64(r) : reader_u32(r);
    ret->max = !ret->has_max ? UINT64_MAX : level3 ? reader_u64(r) : reader_u32(r);
    uint64_t top = ret->is64 ? max64 : max32;
    if (r->failed)
        return false;
    if (ret->min > top || (ret->has_max && ret->max > top))
        return reader_fail(r, WASM_INVALID, "%s", too_big);
    if (ret->has_max && ret->min > ret->max)
        return reader_fail(r, WASM_INVALID, "size minimum must not be greater than maximum");
    return true;
}

static bool mem_add(struct loader *l) {
    struct wasm_module *m = l->m;
    struct limits_decl *d = module_list_add(m, &m->mems, m->n_mems, sizeof *d);
    if (!d || m->n_mems >= MAX_TABLES)
        return module_fail_memory(&l->r);
    *d = (struct limits_decl){0};
    if (!limits(l, &d->l, 65536, UINT64_C(1) << 48,
                "memory size must be at most 65536 pages (4GiB)"))
        return false;
    m->n_mems++;
    if (m->n_mems > 1 && m->level < WASM_3_0)
        return reader_fail(&l->r, WASM_INVALID, "multiple memories");
    return true;
}

static bool table_add(struct loader *l) {
    struct wasm_module *m = l->m;
    struct limits_decl *d = module_list_add(m, &m->tables, m->n_tables, sizeof *d);
    if (!d || m->n_tables >= MAX_TABLES)
        return module_fail_memory(&l->r);
    *d = (struct limits_decl){0};
    d->type = module_reftype(m, &l->r);
    if (l->r.failed ||
        !limits(l, &d->l, UINT32_MAX, UINT64_MAX, "table size must be at most 2^32-1"))
        return false;
    m->n_tables++;
    if (m->n_tables > 1 && m->level < WASM_2_0)
        return reader_fail(&l->r, WASM_INVALID, "multiple tables");
    return true;
}

static bool global_add(struct loader *l) {
    struct wasm_module *m = l->m;
    struct global_decl *g = module_list_add(m, &m->globals, m->n_globals, sizeof *g);
    if (!g || m->n_globals >= MAX_ITEMS)
        return module_fail_memory(&l->r);
    *g = (struct global_decl){0};
    g->type = module_valtype(m, &l->r);
    uint8_t mut = reader_byte(&l->r);
    if (mut > 1)
        return reader_fail(&l->r, WASM_MALFORMED, "malformed mutability");
    g->is_mutable = mut;
    m->n_globals++;
    return !l->r.failed;
}

static bool tag_add(struct loader *l) {
    struct wasm_module *m = l->m;
    struct reader *r = &l->r;
    if (reader_byte(r) != 0)
        return reader_fail(r, WASM_MALFORMED, "malformed tag attribute");
    uint32_t type = reader_u32(r);
    if (type >= m->n_types)
        return reader_fail(r, WASM_INVALID, "unknown type %u", type);
    const struct type *t = module_type(m, type);
    if (t->kind != TYPE_FUNC || t->n_results)
        return reader_fail(r, WASM_INVALID, "non-empty tag result type");
    uint32_t *slot = module_list_add(m, &m->tags, m->n_tags, sizeof *slot);
    if (!slot || m->n_tags >= MAX_ITEMS)
        return module_fail_memory(r);
    *slot = t->id;
    m->n_tags++;
    return true;
}

static bool func_import(struct loader *l) {
    return fn_add(l, reader_u32(&l->r));
}

static bool import(struct loader *l) {
    struct wasm_module *m = l->m;
    struct import_decl d = {0};
    d.module = name(&l->r, &d.module_size);
    d.name = name(&l->r, &d.name_size);
    d.kind = reader_byte(&l->r);
    static bool (*const add[])(struct loader *) = {func_import, table_add, mem_add, global_add,
                                                   tag_add};
    uint32_t *const counts[] = {&m->n_funcs, &m->n_tables, &m->n_mems, &m->n_globals, &m->n_tags};
    if (d.kind > (m->level >= WASM_3_0 ? 4 : 3))
        return reader_fail(&l->r, WASM_MALFORMED, "malformed import kind");
    if (l->r.failed)
        return false;
    d.index = *counts[d.kind];
    struct import_decl *slot = module_list_add(m, &m->imports, m->n_imports, sizeof *slot);
    if (!slot)
        return module_fail_memory(&l->r);
    *slot = d;
    m->n_imports++;
    return add[d.kind](l);
}

static bool section_imports(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t n = module_count(&l->r, MAX_ITEMS, "imports");
    for (uint32_t i = 0; i < n; i++)
        if (!import(l))
            return false;
    m->imported_funcs = m->n_funcs;
    m->imported_tables = m->n_tables;
    m->imported_mems = m->n_mems;
    m->imported_globals = m->n_globals;
    m->imported_tags = m->n_tags;
    return true;
}

static bool section_funcs(struct loader *l) {
    uint32_t n = module_count(&l->r, MAX_FUNCS, "functions");
    for (uint32_t i = 0; i < n; i++)
        if (!fn_add(l, reader_u32(&l->r)))
            return false;
    l->code_count = n;
    return !l->r.failed;
}

static bool table_define(struct loader *l) {
    struct reader *r = &l->r;
    bool has_init = l->m->level >= WASM_3_0 && r->p < r->end && *r->p == 0x40;
    if (has_init) {
        r->p++;
        if (reader_byte(r) != 0)
            return reader_fail(r, WASM_MALFORMED, "malformed table: zero byte expected");
    }
    if (!table_add(l))
        return false;
    struct limits_decl *d = &l->m->tables[l->m->n_tables - 1];
    if (!has_init)
        return is_defaultable(d->type) ||
               reader_fail(r, WASM_INVALID, "type mismatch: table needs an initial value");
    d->init = (uint32_t)(r->p - r->base);
    return module_const_expr(l->m, r, d->type);
}

static bool section_tables(struct loader *l) {
    uint32_t n = module_count(&l->r, MAX_TABLES, "tables");
    for (uint32_t i = 0; i < n; i++)
        if (!table_define(l))
            return false;
    return true;
}

static bool section_mems(struct loader *l) {
    uint32_t n = module_count(&l->r, MAX_TABLES, "memories");
    for (uint32_t i = 0; i < n; i++)
        if (!mem_add(l))
            return false;
    return true;
}

static bool section_tags(struct loader *l) {
    uint32_t n = module_count(&l->r, MAX_ITEMS, "tags");
    for (uint32_t i = 0; i < n; i++)
        if (!tag_add(l))
            return false;
    return true;
}

static bool section_globals(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t n = module_count(&l->r, MAX_ITEMS, "globals");
    for (uint32_t i = 0; i < n; i++) {
        if (!global_add(l))
            return false;
        /* The initialiser of a global must not refer to the global itself. */
        uint32_t at = --m->n_globals;
        m->globals[at].init = (uint32_t)(l->r.p - l->r.base);
        bool ok = module_const_expr(m, &l->r, m->globals[at].type);
        m->n_globals++;
        if (!ok)
            return false;
    }
    return true;
}

/* ---- Exports, start, segments, code ---- */

static bool same_name(const struct export_decl *a, const struct export_decl *b) {
    return a->name_size == b->name_size && memcmp(a->name, b->name, a->name_size) == 0;
}

/* Refuses duplicate export names. A keyed hash set keeps this linear for hostile modules. */
static bool exports_unique(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t size = 16;
    if (m->n_exports < 8) {
        for (uint32_t i = 1; i < m->n_exports; i++)
            for (uint32_t j = 0; j < i; j++)
                if (same_name(&m->exports[i], &m->exports[j]))
                    return reader_fail(&l->r, WASM_INVALID, "duplicate export name");
        return true;
    }
    while (size < m->n_exports * 2)
        size *= 2;
    uint32_t *set = engine_alloc(m->engine, size * sizeof *set);
    if (!set)
        return module_fail_memory(&l->r);
    const struct siphash_key *key = siphash_own_key();
    bool ok = true;
    for (uint32_t i = 0; i < m->n_exports && ok; i++) {
        uint32_t at =
            (uint32_t)siphash(key, m->exports[i].name, m->exports[i].name_size) & (size - 1);
        for (; set[at] && ok; at = (at + 1) & (size - 1))
            ok = !same_name(&m->exports[i], &m->exports[set[at] - 1]);
        set[at] = i + 1;
    }
    engine_release(m->engine, set, size * sizeof *set);
    return ok || reader_fail(&l->r, WASM_INVALID, "duplicate export name");
}

static bool section_exports(struct loader *l) {
    struct wasm_module *m = l->m;
    static const char *const kinds[] = {"function", "table", "memory", "global", "tag"};
    const uint32_t counts[] = {m->n_funcs, m->n_tables, m->n_mems, m->n_globals, m->n_tags};
    uint32_t n = module_count(&l->r, MAX_ITEMS, "exports");
    m->exports = arena_get(&m->arena, n * sizeof *m->exports);
    if (!m->exports)
        return module_fail_memory(&l->r);
    for (uint32_t i = 0; i < n; i++) {
        struct export_decl *d = &m->exports[i];
        d->name = name(&l->r, &d->name_size);
        d->kind = reader_byte(&l->r);
        d->index = reader_u32(&l->r);
        if (l->r.failed)
            return false;
        if (d->kind > (m->level >= WASM_3_0 ? 4 : 3))
            return reader_fail(&l->r, WASM_MALFORMED, "malformed export kind");
        if (d->index >= counts[d->kind])
            return reader_fail(&l->r, WASM_INVALID, "unknown %s %u", kinds[d->kind], d->index);
        if (d->kind == WASM_FUNC && !module_declare(m, &l->r, d->index))
            return false;
    }
    m->n_exports = n;
    return exports_unique(l);
}

static bool section_start(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t f = reader_u32(&l->r);
    if (f >= m->n_funcs)
        return reader_fail(&l->r, WASM_INVALID, "unknown function %u", f);
    if (m->fns[f].type->n_params || m->fns[f].type->n_results)
        return reader_fail(&l->r, WASM_INVALID,
                           "start function must have no parameters or results");
    m->start = f;
    return true;
}

static uint32_t index_type(bool is64) {
    return is64 ? WASM_I64 : WASM_I32;
}

static bool elem_table(struct loader *l, struct elem_decl *d) {
    struct wasm_module *m = l->m;
    if (d->table >= m->n_tables)
        return reader_fail(&l->r, WASM_INVALID, "unknown table %u", d->table);
    d->offset = (uint32_t)(l->r.p - l->r.base);
    return module_const_expr(m, &l->r, index_type(m->tables[d->table].l.is64));
}

static bool elem_items(struct loader *l, struct elem_decl *d) {
    struct reader *r = &l->r;
    d->n = module_count(r, 10000000, "elements");
    d->items = (uint32_t)(r->p - r->base);
    for (uint32_t i = 0; i < d->n; i++) {
        bool ok = d->is_funcs ? module_declare(l->m, r, reader_u32(r))
                              : module_const_expr(l->m, r, d->type);
        if (!ok)
            return false;
    }
    return !r->failed;
}

/* Reads a segment. Its flags: 1 passive or declared, 2 explicit table or declared, 4 expressions.
 */
static bool elem(struct loader *l, struct elem_decl *d) {
    struct wasm_module *m = l->m;
    struct reader *r = &l->r;
    uint32_t flags = reader_u32(r);
    if (m->level < WASM_2_0) {
        d->table = flags;
        flags = 0;
    } else if (flags > 7) {
        return reader_fail(r, WASM_MALFORMED, "malformed elements segment kind");
    }
    d->mode = !(flags & 1) ? SEG_ACTIVE : flags & 2 ? SEG_DECLARED : SEG_PASSIVE;
    d->is_funcs = !(flags & 4);
    d->type = m->level >= WASM_3_0 && d->is_funcs ? WASM_FUNCREF & ~WASM_NULLABLE : WASM_FUNCREF;
    if (d->mode == SEG_ACTIVE) {
        if (flags & 2)
            d->table = reader_u32(r);
        if (!elem_table(l, d))
            return false;
    }
    if (flags & 3) {
        if (flags & 4)
            d->type = module_reftype(m, r);
        else if (reader_byte(r) != 0)
            return reader_fail(r, WASM_MALFORMED, "malformed element kind");
    }
    if (!r->failed && d->mode == SEG_ACTIVE &&
        !types_sub(m->engine, d->type, m->tables[d->table].type))
        return reader_fail(r, WASM_INVALID, "type mismatch between element segment and table");
    return elem_items(l, d);
}

static bool section_elems(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t n = module_count(&l->r, MAX_ITEMS, "element segments");
    m->elems = arena_get(&m->arena, n * sizeof *m->elems);
    if (!m->elems)
        return module_fail_memory(&l->r);
    for (uint32_t i = 0; i < n; i++)
        if (!elem(l, &m->elems[i]))
            return false;
    m->n_elems = n;
    return true;
}

static bool section_data_count(struct loader *l) {
    l->m->n_data_count = reader_u32(&l->r);
    l->m->has_data_count = true;
    return !l->r.failed;
}

static bool section_code(struct loader *l) {
    struct wasm_module *m = l->m;
    struct reader *r = &l->r;
    uint32_t n = reader_u32(r);
    if (!r->failed && n != l->code_count)
        return reader_fail(r, WASM_MALFORMED,
                           "function and code section have inconsistent lengths");
    l->code_seen = true;
    for (uint32_t i = 0; i < n; i++) {
        struct fn *fn = &m->fns[m->imported_funcs + i];
        fn->body_size = reader_u32(r);
        fn->body = (uint32_t)(r->p - r->base);
        if (!reader_bytes(r, fn->body_size))
            return false;
    }
    return true;
}

static bool data(struct loader *l, struct data_decl *d) {
    struct wasm_module *m = l->m;
    struct reader *r = &l->r;
    uint32_t flags = reader_u32(r);
    if (m->level < WASM_2_0) {
        d->mem = flags;
    } else if (flags > 2) {
        return reader_fail(r, WASM_MALFORMED, "malformed data segment kind");
    } else {
        d->mode = flags == 1 ? SEG_PASSIVE : SEG_ACTIVE;
        d->mem = flags == 2 ? reader_u32(r) : 0;
    }
    if (d->mode == SEG_ACTIVE) {
        if (d->mem >= m->n_mems)
            return reader_fail(r, WASM_INVALID, "unknown memory %u", d->mem);
        d->offset = (uint32_t)(r->p - r->base);
        if (!module_const_expr(m, r, index_type(m->mems[d->mem].l.is64)))
            return false;
    }
    d->size = reader_u32(r);
    d->bytes = (uint32_t)(r->p - r->base);
    return reader_bytes(r, d->size) != NULL;
}

static bool section_data(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t n = module_count(&l->r, MAX_ITEMS, "data segments");
    m->datas = arena_get(&m->arena, n * sizeof *m->datas);
    if (!m->datas)
        return module_fail_memory(&l->r);
    for (uint32_t i = 0; i < n; i++)
        if (!data(l, &m->datas[i]))
            return false;
    m->n_datas = n;
    return true;
}

/* ---- The module ---- */

static bool section_custom(struct loader *l) {
    uint32_t n;
    const char *p = name(&l->r, &n);
    if (l->r.failed)
        return false;
    if (n == 4 && memcmp(p, "name", 4) == 0) {
        l->m->names = (uint32_t)(l->r.p - l->r.base);
        l->m->names_size = (uint32_t)(l->r.end - l->r.p);
    }
    l->r.p = l->r.end;
    return true;
}

static const struct {
    bool (*load)(struct loader *);
    uint8_t order;
    uint8_t level;
} sections[] = {
    [0] = {section_custom, 0, 10},       [1] = {module_section_types, 1, 10},
    [2] = {section_imports, 2, 10},      [3] = {section_funcs, 3, 10},
    [4] = {section_tables, 4, 10},       [5] = {section_mems, 5, 10},
    [6] = {section_globals, 7, 10},      [7] = {section_exports, 8, 10},
    [8] = {section_start, 9, 10},        [9] = {section_elems, 10, 10},
    [10] = {section_code, 12, 10},       [11] = {section_data, 13, 10},
    [12] = {section_data_count, 11, 20}, [13] = {section_tags, 6, 30},
};

static bool section(struct loader *l, const uint8_t *end, uint8_t *last) {
    struct reader *r = &l->r;
    const uint8_t *at = r->p;
    uint8_t id = reader_byte(r);
    uint32_t size = reader_u32(r);
    if (r->failed)
        return false;
    if (id >= sizeof sections / sizeof *sections || sections[id].level > l->m->level) {
        r->p = at;
        return reader_fail(r, WASM_MALFORMED, "malformed section id %u", id);
    }
    if (size > (size_t)(end - r->p))
        return reader_fail(r, WASM_MALFORMED, "unexpected end: length out of bounds");
    if (id != 0 && sections[id].order <= *last) {
        r->p = at;
        return reader_fail(r, WASM_MALFORMED, "unexpected content after last section");
    }
    if (id != 0)
        *last = sections[id].order;
    r->end = r->p + size;
    if (!sections[id].load(l) || r->failed)
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    if (r->p != r->end)
        return reader_fail(r, WASM_MALFORMED, "section size mismatch");
    r->end = end;
    return true;
}

static bool header(struct reader *r) {
    if ((size_t)(r->end - r->p) < 4)
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    if (memcmp(r->p, "\0asm", 4) != 0)
        return reader_fail(r, WASM_MALFORMED, "magic header not detected");
    r->p += 4;
    if ((size_t)(r->end - r->p) < 4)
        return reader_fail(r, WASM_MALFORMED, "unexpected end");
    if (memcmp(r->p, "\1\0\0\0", 4) != 0)
        return reader_fail(r, WASM_MALFORMED, "unknown binary version");
    r->p += 4;
    return true;
}

/* Reads all sections. The bodies of functions are validated later. */
static bool module_read(struct loader *l) {
    struct wasm_module *m = l->m;
    struct reader *r = &l->r;
    const uint8_t *end = r->end;
    uint8_t last = 0;
    if (!header(r))
        return false;
    while (r->p < end)
        if (!section(l, end, &last))
            return false;
    if (l->code_count && !l->code_seen)
        return reader_fail(r, WASM_MALFORMED,
                           "function and code section have inconsistent lengths");
    if (m->has_data_count && m->n_data_count != m->n_datas)
        return reader_fail(r, WASM_MALFORMED,
                           "data count and data section have inconsistent lengths");
    return true;
}

static bool module_validate(struct wasm_module *m, struct wasm_diag *diag) {
    for (uint32_t i = m->imported_funcs; i < m->n_funcs; i++)
        if (!walk_validate(m, &m->fns[i], diag))
            return false;
    m->is_loaded = true;
    return true;
}

static void module_free(struct wasm_module *m) {
    struct wasm_engine *e = m->engine;
    for (uint32_t i = 0; i < m->n_funcs; i++) {
        struct code *both[] = {m->fns[i].fast, m->fns[i].step};
        for (int k = 0; k < 2; k++) {
            struct code *c = both[k];
            if (!c)
                continue;
            engine_release(e, c->words, c->n_words * sizeof *c->words);
            engine_release(e, c->marks, c->n_marks * sizeof *c->marks);
            engine_release(e, c->handlers, c->n_handlers * sizeof *c->handlers);
            engine_release(e, c, sizeof *c);
        }
    }
    engine_arena_done(&m->arena);
    engine_release(e, m, sizeof *m + m->size);
}

static struct wasm_module *module_new(struct wasm_engine *e, const void *bytes, size_t size,
                                      enum wasm_level level, struct wasm_diag *diag) {
    *diag = (struct wasm_diag){.func = UINT32_MAX};
    if (size > e->cfg.module_bytes || size > UINT32_MAX - 16) {
        diag->fault = WASM_TOO_BIG;
        snprintf(diag->message, sizeof diag->message, "module of %zu bytes is too big", size);
        return NULL;
    }
    struct wasm_module *m = engine_realloc(e, NULL, 0, sizeof *m + size);
    if (!m) {
        diag->fault = WASM_TOO_BIG;
        snprintf(diag->message, sizeof diag->message, "out of memory");
        return NULL;
    }
    *m = (struct wasm_module){
        .engine = e, .refs = 1, .level = level, .size = size, .start = NO_TYPE};
    uint8_t *copy = (uint8_t *)(m + 1);
    if (size)
        memcpy(copy, bytes, size);
    m->bytes = copy;
    m->arena.engine = e;
    struct loader l = {.r = {.p = copy, .end = copy + size, .base = copy, .diag = diag}, .m = m};
    if (module_read(&l))
        return m;
    module_free(m);
    return NULL;
}

int wasm_module_load(struct wasm_engine *e, const void *bytes, size_t size, enum wasm_level level,
                     struct wasm_module **ret, struct wasm_diag *diag) {
    struct wasm_module *m = module_new(e, bytes, size, level, diag);
    if (!m)
        return -1;
    if (!module_validate(m, diag)) {
        module_free(m);
        return -1;
    }
    *ret = m;
    return 0;
}

uint32_t wasm_module_faults(struct wasm_engine *e, const void *bytes, size_t size,
                            enum wasm_level level, struct wasm_diag *list, uint32_t max) {
    struct wasm_module *m = max ? module_new(e, bytes, size, level, &list[0]) : NULL;
    uint32_t n = 0;
    if (!m)
        return max ? 1 : 0;
    for (uint32_t i = m->imported_funcs; i < m->n_funcs && n < max; i++)
        n += walk_faults(&m->fns[i], list + n, max - n);
    module_free(m);
    return n;
}

struct wasm_module *wasm_module_ref(struct wasm_module *m) {
    m->refs++;
    return m;
}

void wasm_module_unref(struct wasm_module *m) {
    if (m && --m->refs == 0)
        module_free(m);
}

void wasm_module_unrefp(struct wasm_module **m) {
    wasm_module_unref(*m);
}
