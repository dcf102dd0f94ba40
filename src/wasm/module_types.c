/* Reads the type section: recursion groups, functions, structs and arrays. */
#include "base/siphash.h"
#include "wasm/engine.h"
#include "wasm/module_inner.h"

/* Returns the type with index i. l is NULL after the type section; m->types then has all types. */
static uint32_t heap_index(struct wasm_module *m, struct reader *r, struct loader *l, uint32_t i) {
    if (i < m->n_types)
        return m->types[i];
    if (l && l->in_group && i - l->group_first < l->group_n)
        return TYPE_RELATIVE | (i - l->group_first);
    reader_fail(r, WASM_INVALID, "unknown type %u", i);
    return 0;
}

/* A heap type is a signed LEB128: an index if not negative, else one byte for an abstract type. */
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

/* Reads a vector of value types into the list, after its first `base` elements. */
static bool vals(struct loader *l, uint32_t **list, uint32_t *n, uint32_t base) {
    *n = module_count(&l->r, MAX_PARAMS, "parameters or results");
    uint32_t *next = arena_get(&l->m->arena, (base + *n) * sizeof *next);
    if (!next)
        return module_fail_memory(&l->r);
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
    t->n_params = t->kind == TYPE_ARRAY ? 1 : module_count(&l->r, 10000, "fields");
    t->vals = arena_get(&l->m->arena, t->n_params * sizeof *t->vals);
    if (!t->vals)
        return module_fail_memory(&l->r);
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

/*
 * Types of a group may refer to each other, so the group is interned as one unit. Equal groups of
 * all modules share their types: comparing two types is comparing two numbers.
 */
static bool type_group(struct loader *l) {
    struct reader *r = &l->r;
    struct wasm_module *m = l->m;
    uint32_t n = 1;
    if (m->level >= WASM_3_0 && r->p < r->end && *r->p == 0x4e) {
        r->p++;
        n = module_count(r, MAX_TYPES, "types");
    }
    struct type one = {0}, *group = n == 1 ? &one : arena_get(&m->arena, n * sizeof *group);
    if (!group)
        return module_fail_memory(r);
    l->group_first = m->n_types, l->group_n = n, l->in_group = true;
    for (uint32_t i = 0; i < n && !r->failed; i++)
        if (!sub_type(l, &group[i], m->n_types + i))
            return false;
    l->in_group = false;
    uint32_t first = 0;
    if (r->failed || (n && !types_intern(m->engine, group, n, &first)))
        return reader_fail(r, WASM_TOO_BIG, "too many types");
    for (uint32_t i = 0; i < n; i++) {
        uint32_t *slot = module_list_add(m, &m->types, m->n_types, sizeof *slot);
        if (!slot)
            return module_fail_memory(r);
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

bool module_section_types(struct loader *l) {
    uint32_t n = module_count(&l->r, MAX_TYPES, "types");
    for (uint32_t i = 0; i < n; i++)
        if (!type_group(l))
            return false;
    return true;
}
