/*
 * Bytes to module: one function a section, found in a table by section id.
 *
 * Everything with a count is checked against the bytes that are left before memory is taken for it.
 */
#include "base/siphash.h"
#include "wasm/engine.h"

struct loader {
    struct reader r;
    struct wasm_module *m;
    uint32_t group_first, group_n; /* types being defined: they may name each other */
    bool in_group;
    uint32_t code_count; /* bodies announced by the function section */
    bool code_seen;
};

static bool fail_memory(struct reader *r) {
    return reader_fail(r, WASM_TOO_BIG, "out of memory");
}

/* Room for element n of an arena list that doubles. */
static void *list_add(struct wasm_module *m, void *slot, uint32_t n, size_t size) {
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

/* A vector's length: each element takes at least one byte. */
static uint32_t count(struct reader *r, uint32_t max, const char *what) {
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

/* ---- Types ---- */

/* Outside the type section a reader is not part of a loader; m->types then holds all types. */
static uint32_t heap_index(struct wasm_module *m, struct reader *r, struct loader *l, uint32_t i) {
    if (i < m->n_types)
        return m->types[i];
    if (l && l->in_group && i - l->group_first < l->group_n)
        return TYPE_RELATIVE | (i - l->group_first);
    reader_fail(r, WASM_INVALID, "unknown type %u", i);
    return 0;
}

static uint32_t heaptype(struct wasm_module *m, struct reader *r, struct loader *l) {
    const uint8_t *at = r->p;
    int64_t v = reader_s33(r);
    if (v >= 0)
        return m->level >= WASM_3_0
                   ? heap_index(m, r, l, (uint32_t)v)
                   : (reader_fail(r, WASM_MALFORMED, "malformed reference type"), 0);
    uint32_t byte = (uint32_t)(v & 0x7f);
    bool known =
        byte == 0x70 || byte == 0x6f || (m->level >= WASM_3_0 && byte >= 0x69 && byte <= 0x74);
    if (v < -64 || !known) {
        r->p = at;
        reader_fail(r, WASM_MALFORMED, "malformed heap type");
        return 0;
    }
    return WASM_ABSTRACT | byte;
}

static uint32_t valtype_of(struct wasm_module *m, struct reader *r, struct loader *l) {
    uint8_t b = reader_byte(r);
    if (b <= WASM_I32 && b >= WASM_F64)
        return b;
    if (b == WASM_V128 && m->level >= WASM_2_0)
        return b;
    if ((b == 0x63 || b == 0x64) && m->level >= WASM_3_0)
        return WASM_REF | (b == 0x63 ? WASM_NULLABLE : 0) | heaptype(m, r, l);
    bool known = ((b == 0x70 || b == 0x6f) && m->level >= WASM_2_0) ||
                 (m->level >= WASM_3_0 && b >= 0x69 && b <= 0x74);
    if (known)
        return WASM_ABSTRACT_REF((uint32_t)b);
    r->p -= r->failed ? 0 : 1;
    reader_fail(r, WASM_MALFORMED, "malformed value type");
    return 0;
}

uint32_t module_valtype(struct wasm_module *m, struct reader *r) {
    return valtype_of(m, r, NULL);
}
uint32_t module_heaptype(struct wasm_module *m, struct reader *r) {
    return heaptype(m, r, NULL);
}
uint32_t module_reftype(struct wasm_module *m, struct reader *r) {
    if (m->level < WASM_2_0) {
        if (reader_byte(r) != 0x70)
            reader_fail(r, WASM_MALFORMED, "malformed element type");
        return WASM_FUNCREF;
    }
    uint32_t t = valtype_of(m, r, NULL);
    if (!r->failed && !is_ref(t))
        reader_fail(r, WASM_MALFORMED, "malformed reference type");
    return t;
}

static bool vals(struct loader *l, uint32_t **list, uint32_t *n, uint32_t base) {
    *n = count(&l->r, MAX_PARAMS, "parameters or results");
    uint32_t *next = arena_get(&l->m->arena, (base + *n) * sizeof *next);
    if (!next)
        return fail_memory(&l->r);
    if (base)
        memcpy(next, *list, base * sizeof *next);
    for (uint32_t i = 0; i < *n; i++)
        next[base + i] = valtype_of(l->m, &l->r, l);
    *list = next;
    return !l->r.failed;
}

static bool func_type(struct loader *l, struct type *t) {
    if (!vals(l, &t->vals, &t->n_params, 0) || !vals(l, &t->vals, &t->n_results, t->n_params))
        return false;
    if (t->n_results > 1 && l->m->level < WASM_2_0)
        return reader_fail(&l->r, WASM_INVALID, "invalid result arity");
    return true;
}

static uint32_t field(struct loader *l) {
    struct reader *r = &l->r;
    uint32_t t;
    if (r->p < r->end && (*r->p == TYPE_I8 || *r->p == TYPE_I16))
        t = *r->p++;
    else
        t = valtype_of(l->m, r, l);
    uint8_t mut = reader_byte(r);
    if (mut > 1)
        reader_fail(r, WASM_MALFORMED, "malformed mutability");
    return t | (mut ? FIELD_MUTABLE : 0);
}

static bool fields(struct loader *l, struct type *t) {
    t->n_params = t->kind == TYPE_ARRAY ? 1 : count(&l->r, 10000, "fields");
    t->vals = arena_get(&l->m->arena, t->n_params * sizeof *t->vals);
    if (!t->vals)
        return fail_memory(&l->r);
    for (uint32_t i = 0; i < t->n_params; i++)
        t->vals[i] = field(l);
    return !l->r.failed;
}

static bool sub_type(struct loader *l, struct type *t, uint32_t index) {
    struct reader *r = &l->r;
    uint8_t form = reader_byte(r);
    t->final = true;
    t->super = NO_TYPE;
    if (l->m->level >= WASM_3_0 && (form == 0x50 || form == 0x4f)) {
        t->final = form == 0x4f;
        uint32_t n = reader_u32(r);
        if (n > 1)
            return reader_fail(r, WASM_INVALID, "sub type has more than one super type");
        if (n == 1) {
            uint32_t super = reader_u32(r);
            if (super >= index)
                return reader_fail(r, WASM_INVALID, "unknown type %u", super);
            t->super = heap_index(l->m, r, l, super);
        }
        form = reader_byte(r);
    }
    t->kind = form;
    if (form == TYPE_FUNC)
        return func_type(l, t);
    if (l->m->level >= WASM_3_0 && (form == TYPE_STRUCT || form == TYPE_ARRAY))
        return fields(l, t);
    return reader_fail(r, WASM_MALFORMED, "malformed type: integer representation too long");
}

static bool type_group(struct loader *l) {
    struct reader *r = &l->r;
    struct wasm_module *m = l->m;
    uint32_t n = 1;
    if (m->level >= WASM_3_0 && r->p < r->end && *r->p == 0x4e) {
        r->p++;
        n = count(r, MAX_TYPES, "types");
    }
    struct type one = {0}, *group = n == 1 ? &one : arena_get(&m->arena, n * sizeof *group);
    if (!group)
        return fail_memory(r);
    l->group_first = m->n_types, l->group_n = n, l->in_group = true;
    for (uint32_t i = 0; i < n && !r->failed; i++)
        if (!sub_type(l, &group[i], m->n_types + i))
            return false;
    l->in_group = false;
    uint32_t first = 0;
    if (r->failed || (n && !types_intern(m->engine, group, n, &first)))
        return reader_fail(r, WASM_TOO_BIG, "too many types");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *slot = list_add(m, &m->types, m->n_types, sizeof *slot);
        if (!slot)
            return fail_memory(r);
        *slot = first + i;
        m->n_types++;
        if (!types_depth_ok(m->engine, m->engine->types[first + i]))
            return reader_fail(r, WASM_TOO_BIG, "sub types nested too deep: limit %d", MAX_SUPERS);
        if (!types_super_ok(m->engine, m->engine->types[first + i]))
            return reader_fail(r, WASM_INVALID, "sub type %u does not match super type",
                               m->n_types - 1);
    }
    return true;
}

static bool section_types(struct loader *l) {
    uint32_t n = count(&l->r, MAX_TYPES, "types");
    for (uint32_t i = 0; i < n; i++)
        if (!type_group(l))
            return false;
    return true;
}

/* ---- Imports and declarations ---- */

static bool fn_add(struct loader *l, uint32_t type_index) {
    struct wasm_module *m = l->m;
    if (type_index >= m->n_types)
        return reader_fail(&l->r, WASM_INVALID, "unknown type %u", type_index);
    const struct type *t = module_type(m, type_index);
    if (t->kind != TYPE_FUNC)
        return reader_fail(&l->r, WASM_INVALID, "type %u is not a function type", type_index);
    struct fn *fn = list_add(m, &m->fns, m->n_funcs, sizeof *fn);
    if (!fn || m->n_funcs >= MAX_FUNCS)
        return fail_memory(&l->r);
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
    struct limits_decl *d = list_add(m, &m->mems, m->n_mems, sizeof *d);
    if (!d || m->n_mems >= MAX_TABLES)
        return fail_memory(&l->r);
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
    struct limits_decl *d = list_add(m, &m->tables, m->n_tables, sizeof *d);
    if (!d || m->n_tables >= MAX_TABLES)
        return fail_memory(&l->r);
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
    struct global_decl *g = list_add(m, &m->globals, m->n_globals, sizeof *g);
    if (!g || m->n_globals >= MAX_ITEMS)
        return fail_memory(&l->r);
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
    uint32_t *slot = list_add(m, &m->tags, m->n_tags, sizeof *slot);
    if (!slot || m->n_tags >= MAX_ITEMS)
        return fail_memory(r);
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
    struct import_decl *slot = list_add(m, &m->imports, m->n_imports, sizeof *slot);
    if (!slot)
        return fail_memory(&l->r);
    *slot = d;
    m->n_imports++;
    return add[d.kind](l);
}

static bool section_imports(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t n = count(&l->r, MAX_ITEMS, "imports");
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
    uint32_t n = count(&l->r, MAX_FUNCS, "functions");
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
    uint32_t n = count(&l->r, MAX_TABLES, "tables");
    for (uint32_t i = 0; i < n; i++)
        if (!table_define(l))
            return false;
    return true;
}

static bool section_mems(struct loader *l) {
    uint32_t n = count(&l->r, MAX_TABLES, "memories");
    for (uint32_t i = 0; i < n; i++)
        if (!mem_add(l))
            return false;
    return true;
}

static bool section_tags(struct loader *l) {
    uint32_t n = count(&l->r, MAX_ITEMS, "tags");
    for (uint32_t i = 0; i < n; i++)
        if (!tag_add(l))
            return false;
    return true;
}

static bool section_globals(struct loader *l) {
    struct wasm_module *m = l->m;
    uint32_t n = count(&l->r, MAX_ITEMS, "globals");
    for (uint32_t i = 0; i < n; i++) {
        if (!global_add(l))
            return false;
        /* The global is not in scope of its own initialiser. */
        uint32_t at = --m->n_globals;
        m->globals[at].init = (uint32_t)(l->r.p - l->r.base);
        bool ok = module_const_expr(m, &l->r, m->globals[at].type);
        m->n_globals++;
        if (!ok)
            return false;
    }
    return true;
}

/* ---- Constant expressions ---- */

static bool declare(struct wasm_module *m, struct reader *r, uint32_t func) {
    if (func >= m->n_funcs)
        return reader_fail(r, WASM_INVALID, "unknown function %u", func);
    if (!m->declared && !(m->declared = arena_get(&m->arena, m->n_funcs)))
        return fail_memory(r);
    m->declared[func] = 1;
    return true;
}

struct const_stack {
    uint32_t types[MAX_CONST_DEPTH];
    uint32_t n;
};

static bool const_push(struct reader *r, struct const_stack *s, uint32_t type) {
    if (s->n == MAX_CONST_DEPTH)
        return reader_fail(r, WASM_TOO_BIG, "constant expression too deep");
    s->types[s->n++] = type;
    return !r->failed;
}

static bool const_binary(struct reader *r, struct const_stack *s, uint32_t type) {
    if (s->n < 2 || s->types[s->n - 1] != type || s->types[s->n - 2] != type)
        return reader_fail(r, WASM_INVALID, "type mismatch");
    s->n--;
    return true;
}

static bool const_global(struct wasm_module *m, struct reader *r, struct const_stack *s) {
    uint32_t i = reader_u32(r);
    uint32_t visible = m->level >= WASM_3_0 ? m->n_globals : m->imported_globals;
    if (i >= visible)
        return reader_fail(r, WASM_INVALID, "unknown global %u", i);
    if (m->globals[i].is_mutable)
        return reader_fail(r, WASM_INVALID, "constant expression required");
    return const_push(r, s, m->globals[i].type);
}

static bool const_ref_func(struct wasm_module *m, struct reader *r, struct const_stack *s) {
    uint32_t f = reader_u32(r);
    if (!declare(m, r, f))
        return false;
    uint32_t t = m->level >= WASM_3_0 ? WASM_REF | m->fns[f].canon : WASM_FUNCREF;
    return const_push(r, s, t);
}

static bool const_pop(struct wasm_module *m, struct reader *r, struct const_stack *s,
                      uint32_t type) {
    if (type == TYPE_I8 || type == TYPE_I16)
        type = WASM_I32;
    if (s->n == 0 || !types_sub(m->engine, s->types[s->n - 1], type))
        return reader_fail(r, WASM_INVALID, "type mismatch in constant expression");
    s->n--;
    return true;
}

static bool has_default(uint32_t type) {
    return type == TYPE_I8 || type == TYPE_I16 || is_defaultable(type);
}

/* struct.new, array.new and their kin; the type says what they take. */
static bool const_new(struct wasm_module *m, struct reader *r, struct const_stack *s,
                      uint32_t row) {
    uint32_t index = reader_u32(r);
    bool is_struct = row == OP_STRUCT_NEW || row == OP_STRUCT_NEW_DEFAULT;
    if (!r->failed && index >= m->n_types)
        return reader_fail(r, WASM_INVALID, "unknown type %u", index);
    if (r->failed || module_type(m, index)->kind != (is_struct ? TYPE_STRUCT : TYPE_ARRAY))
        return reader_fail(r, WASM_INVALID, "type mismatch: type %u is of another kind", index);
    const struct type *t = module_type(m, index);
    uint32_t n = row == OP_ARRAY_NEW_FIXED          ? reader_u32(r)
                 : row == OP_ARRAY_NEW || is_struct ? t->n_params
                                                    : 0;
    bool is_default = row == OP_STRUCT_NEW_DEFAULT || row == OP_ARRAY_NEW_DEFAULT;
    if (!r->failed && n > s->n && !is_default)
        return reader_fail(r, WASM_INVALID, "type mismatch in constant expression");
    if ((row == OP_ARRAY_NEW || row == OP_ARRAY_NEW_DEFAULT) && !const_pop(m, r, s, WASM_I32))
        return false;
    for (uint32_t i = is_struct ? t->n_params : n; i-- > 0 && !is_default;)
        if (!const_pop(m, r, s, t->vals[is_struct ? i : 0] & ~FIELD_MUTABLE))
            return false;
    for (uint32_t i = 0; is_default && i < t->n_params; i++)
        if (!has_default(t->vals[i] & ~FIELD_MUTABLE))
            return reader_fail(r, WASM_INVALID, "type mismatch: a field has no default");
    return const_push(r, s, WASM_REF | t->id);
}

static bool const_convert(struct wasm_module *m, struct reader *r, struct const_stack *s,
                          bool to_any) {
    uint32_t type = s->n ? s->types[s->n - 1] : 0;
    if (!const_pop(m, r, s, to_any ? WASM_EXTERNREF : WASM_ANYREF))
        return false;
    uint32_t out = to_any ? WASM_ANYREF : WASM_EXTERNREF;
    return const_push(r, s, type & WASM_NULLABLE ? out : out & ~WASM_NULLABLE);
}

static bool const_object(struct wasm_module *m, struct reader *r, struct const_stack *s) {
    uint32_t row = wasm_op_find(0xfb, reader_u32(r));
    switch (row) {
    case OP_STRUCT_NEW:
    case OP_STRUCT_NEW_DEFAULT:
    case OP_ARRAY_NEW:
    case OP_ARRAY_NEW_DEFAULT:
    case OP_ARRAY_NEW_FIXED:
        return const_new(m, r, s, row);
    case OP_REF_I31:
        return const_pop(m, r, s, WASM_I32) &&
               const_push(r, s, WASM_ABSTRACT_REF(0x6cu) & ~WASM_NULLABLE);
    case OP_ANY_CONVERT_EXTERN:
    case OP_EXTERN_CONVERT_ANY:
        return const_convert(m, r, s, row == OP_ANY_CONVERT_EXTERN);
    default:
        return row == OP_COUNT ? reader_fail(r, WASM_MALFORMED, "illegal opcode fb")
                               : reader_fail(r, WASM_INVALID, "constant expression required");
    }
}

static bool const_other(struct wasm_module *m, struct reader *r, uint8_t op) {
    uint32_t code = op;
    unsigned prefix = 0;
    if (op == 0xfb || op == 0xfc || op == 0xfd) {
        prefix = op;
        code = reader_u32(r);
    }
    enum wasm_op found = wasm_op_find(prefix, code);
    if (found == OP_COUNT || wasm_ops[found].level > m->level)
        return reader_fail(r, WASM_MALFORMED, "illegal opcode %02x", op);
    return reader_fail(r, WASM_INVALID, "constant expression required");
}

static bool const_step(struct wasm_module *m, struct reader *r, struct const_stack *s, uint8_t op) {
    bool level2 = m->level >= WASM_2_0, level3 = m->level >= WASM_3_0;
    switch (op) {
    case 0x41:
        reader_s32(r);
        return const_push(r, s, WASM_I32);
    case 0x42:
        reader_s64(r);
        return const_push(r, s, WASM_I64);
    case 0x43:
        reader_bytes(r, 4);
        return const_push(r, s, WASM_F32);
    case 0x44:
        reader_bytes(r, 8);
        return const_push(r, s, WASM_F64);
    case 0x23:
        return const_global(m, r, s);
    case 0xd0:
        return level2 ? const_push(r, s, WASM_REF | WASM_NULLABLE | module_heaptype(m, r))
                      : const_other(m, r, op);
    case 0xd2:
        return level2 ? const_ref_func(m, r, s) : const_other(m, r, op);
    case 0x6a:
    case 0x6b:
    case 0x6c:
        return level3 ? const_binary(r, s, WASM_I32) : const_other(m, r, op);
    case 0x7c:
    case 0x7d:
    case 0x7e:
        return level3 ? const_binary(r, s, WASM_I64) : const_other(m, r, op);
    case 0xfb:
        return level3 ? const_object(m, r, s) : const_other(m, r, op);
    case 0xfd:
        if (level2 && r->p < r->end && *r->p == 0x0c) {
            r->p++;
            reader_bytes(r, 16);
            return const_push(r, s, WASM_V128);
        }
        return const_other(m, r, op);
    default:
        return const_other(m, r, op);
    }
}

bool module_const_expr(struct wasm_module *m, struct reader *r, uint32_t type) {
    struct const_stack s = {.n = 0};
    for (;;) {
        uint8_t op = reader_byte(r);
        if (r->failed)
            return false;
        if (op == 0x0b)
            break;
        if (!const_step(m, r, &s, op))
            return false;
    }
    if (s.n != 1 || !types_sub(m->engine, s.types[0], type))
        return reader_fail(r, WASM_INVALID, "type mismatch in constant expression");
    return true;
}

/* ---- Exports, start, segments, code ---- */

static bool same_name(const struct export_decl *a, const struct export_decl *b) {
    return a->name_size == b->name_size && memcmp(a->name, b->name, a->name_size) == 0;
}

/* Export names are unique; a keyed hash set keeps a module with many of them linear. */
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
        return fail_memory(&l->r);
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
    uint32_t n = count(&l->r, MAX_ITEMS, "exports");
    m->exports = arena_get(&m->arena, n * sizeof *m->exports);
    if (!m->exports)
        return fail_memory(&l->r);
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
        if (d->kind == WASM_FUNC && !declare(m, &l->r, d->index))
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
    d->n = count(r, 10000000, "elements");
    d->items = (uint32_t)(r->p - r->base);
    for (uint32_t i = 0; i < d->n; i++) {
        bool ok =
            d->is_funcs ? declare(l->m, r, reader_u32(r)) : module_const_expr(l->m, r, d->type);
        if (!ok)
            return false;
    }
    return !r->failed;
}

/* Flags: 1 passive or declared, 2 explicit table or declared, 4 expressions. */
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
    uint32_t n = count(&l->r, MAX_ITEMS, "element segments");
    m->elems = arena_get(&m->arena, n * sizeof *m->elems);
    if (!m->elems)
        return fail_memory(&l->r);
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
    uint32_t n = count(&l->r, MAX_ITEMS, "data segments");
    m->datas = arena_get(&m->arena, n * sizeof *m->datas);
    if (!m->datas)
        return fail_memory(&l->r);
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
    [0] = {section_custom, 0, 10},       [1] = {section_types, 1, 10},
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

static bool load(struct loader *l) {
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
    for (uint32_t i = m->imported_funcs; i < m->n_funcs; i++)
        if (!walk_validate(m, &m->fns[i], r->diag))
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

int wasm_module_load(struct wasm_engine *e, const void *bytes, size_t size, enum wasm_level level,
                     struct wasm_module **ret, struct wasm_diag *diag) {
    *diag = (struct wasm_diag){.func = UINT32_MAX};
    if (size > e->cfg.module_bytes || size > UINT32_MAX - 16) {
        diag->fault = WASM_TOO_BIG;
        snprintf(diag->message, sizeof diag->message, "module of %zu bytes is too big", size);
        return -1;
    }
    struct wasm_module *m = engine_realloc(e, NULL, 0, sizeof *m + size);
    if (!m) {
        diag->fault = WASM_TOO_BIG;
        snprintf(diag->message, sizeof diag->message, "out of memory");
        return -1;
    }
    *m = (struct wasm_module){
        .engine = e, .refs = 1, .level = level, .size = size, .start = NO_TYPE};
    uint8_t *copy = (uint8_t *)(m + 1);
    if (size)
        memcpy(copy, bytes, size);
    m->bytes = copy;
    m->arena.engine = e;
    struct loader l = {.r = {.p = copy, .end = copy + size, .base = copy, .diag = diag}, .m = m};
    if (!load(&l)) {
        module_free(m);
        return -1;
    }
    *ret = m;
    return 0;
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

/* ---- What a module says about itself ---- */

void wasm_module_hash(struct wasm_module *m, uint8_t hash[32]) {
    if (!m->hashed) {
        struct sha256 s;
        sha256_init(&s);
        sha256_add(&s, m->bytes, m->size);
        sha256_end(&s, m->hash);
        m->hashed = true;
    }
    memcpy(hash, m->hash, 32);
}

const uint8_t *wasm_module_bytes(const struct wasm_module *m, size_t *ret_size) {
    *ret_size = m->size;
    return m->bytes;
}

static void decl_type(const struct wasm_module *m, uint8_t kind, uint32_t i,
                      struct wasm_extern_type *ret) {
    *ret = (struct wasm_extern_type){.kind = kind};
    switch (kind) {
    case WASM_FUNC:
        ret->func = type_view(m->fns[i].type);
        break;
    case WASM_TABLE:
        ret->limits = m->tables[i].l;
        ret->type = m->tables[i].type;
        break;
    case WASM_MEMORY:
        ret->limits = m->mems[i].l;
        break;
    case WASM_GLOBAL:
        ret->type = m->globals[i].type;
        ret->is_mutable = m->globals[i].is_mutable;
        break;
    default:
        ret->func = type_view(m->engine->types[m->tags[i]]);
    }
}

uint32_t wasm_module_imports(const struct wasm_module *m) {
    return m->n_imports;
}

void wasm_module_import(const struct wasm_module *m, uint32_t i, struct wasm_import *ret) {
    const struct import_decl *d = &m->imports[i];
    *ret = (struct wasm_import){d->module, d->name, d->module_size, d->name_size, {0}};
    decl_type(m, d->kind, d->index, &ret->type);
}

uint32_t wasm_module_exports(const struct wasm_module *m) {
    return m->n_exports;
}

void wasm_module_export(const struct wasm_module *m, uint32_t i, struct wasm_export *ret) {
    const struct export_decl *d = &m->exports[i];
    *ret = (struct wasm_export){d->name, d->name_size, d->index, {0}};
    decl_type(m, d->kind, d->index, &ret->type);
}

uint32_t wasm_module_funcs(const struct wasm_module *m) {
    return m->n_funcs;
}

bool wasm_module_func_body(const struct wasm_module *m, uint32_t func, size_t *ret_offset,
                           size_t *ret_size) {
    if (func < m->imported_funcs || func >= m->n_funcs)
        return false;
    *ret_offset = m->fns[func].body;
    *ret_size = m->fns[func].body_size;
    return true;
}

/* The name section is advice: anything odd in it ends the search. */
static const char *section_name(const struct wasm_module *m, uint32_t func, size_t *ret_size) {
    struct wasm_diag diag;
    struct reader r = {.p = m->bytes + m->names, .base = m->bytes, .diag = &diag};
    r.end = r.p + m->names_size;
    while (r.p < r.end) {
        uint8_t id = reader_byte(&r);
        uint32_t size = reader_u32(&r);
        if (r.failed || size > (size_t)(r.end - r.p))
            return NULL;
        if (id != 1) {
            r.p += size;
            continue;
        }
        uint32_t n = reader_u32(&r);
        for (uint32_t i = 0; i < n && !r.failed; i++) {
            uint32_t at = reader_u32(&r), len = reader_u32(&r);
            const uint8_t *p = reader_bytes(&r, len);
            if (p && at == func) {
                *ret_size = len;
                return (const char *)p;
            }
        }
        return NULL;
    }
    return NULL;
}

const char *wasm_module_func_name(const struct wasm_module *m, uint32_t func, size_t *ret_size) {
    const char *found = section_name(m, func, ret_size);
    for (uint32_t i = 0; !found && i < m->n_exports; i++)
        if (m->exports[i].kind == WASM_FUNC && m->exports[i].index == func) {
            found = m->exports[i].name;
            *ret_size = m->exports[i].name_size;
        }
    return found;
}
