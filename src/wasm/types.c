/* Interns types in an engine: equal types of all modules get the same id. */
#include "wasm/engine.h"

#include "base/siphash.h"

enum {
    HEAP_NOEXN = 0x74,
    HEAP_NOFUNC = 0x73,
    HEAP_NOEXTERN = 0x72,
    HEAP_NONE = 0x71,
    HEAP_FUNC = 0x70,
    HEAP_EXTERN = 0x6f,
    HEAP_ANY = 0x6e,
    HEAP_EQ = 0x6d,
    HEAP_I31 = 0x6c,
    HEAP_STRUCT = 0x6b,
    HEAP_ARRAY = 0x6a,
    HEAP_EXN = 0x69,
};

/* The key of a recursion group is its definition as words. Groups with equal keys are one group. */
static uint32_t key_size(const struct type *group, uint32_t n) {
    uint32_t words = 0;
    for (uint32_t i = 0; i < n; i++)
        words += 4 + group[i].n_params + group[i].n_results;
    return words;
}

static void key_write(const struct type *group, uint32_t n, uint32_t *w) {
    for (uint32_t i = 0; i < n; i++) {
        const struct type *t = &group[i];
        uint32_t vals = t->n_params + t->n_results;
        *w++ = t->kind | (uint32_t)t->final << 8;
        *w++ = t->super;
        *w++ = t->n_params;
        *w++ = t->n_results;
        memcpy(w, t->vals, vals * sizeof *w);
        w += vals;
    }
}

/* Converts a type that is relative to its group, once the first type of the group has its id. */
static uint32_t absolute(uint32_t type, uint32_t first) {
    bool relative = is_ref(type) && !(type & WASM_ABSTRACT) && (type & TYPE_RELATIVE);
    return relative ? (type & ~TYPE_RELATIVE) + first : type;
}

/* Makes the list of supertypes by depth, so that a subtype test is one comparison. */
static bool supers_make(struct wasm_engine *e, struct type *t) {
    const struct type *super = t->super == NO_TYPE ? NULL : e->types[t->super];
    t->depth = super ? super->depth + 1 : 0;
    if (t->depth > MAX_SUPERS || (super && !super->supers))
        return true;
    t->supers = arena_get(&e->arena, (t->depth + 1) * sizeof *t->supers);
    if (!t->supers)
        return false;
    if (super)
        memcpy(t->supers, super->supers, t->depth * sizeof *t->supers);
    t->supers[t->depth] = t->id;
    return true;
}

static bool fields_make(struct wasm_engine *e, struct type *t) {
    if (t->kind != TYPE_STRUCT)
        return true;
    t->field_slots = arena_get(&e->arena, t->n_params * sizeof *t->field_slots);
    for (uint32_t i = 0, slot = 0; t->field_slots && i < t->n_params; i++) {
        t->field_slots[i] = slot;
        slot += slots_of(t->vals[i] & ~FIELD_MUTABLE);
    }
    return t->field_slots != NULL;
}

static struct type *type_copy(struct wasm_engine *e, const struct type *t, uint32_t id,
                              uint32_t first) {
    uint32_t vals = t->n_params + t->n_results;
    struct type *copy = arena_get(&e->arena, sizeof *copy);
    uint32_t *list = arena_get(&e->arena, vals * sizeof *list);
    if (!copy || !list)
        return NULL;
    *copy = *t;
    copy->id = id;
    copy->vals = list;
    if (t->super != NO_TYPE && (t->super & TYPE_RELATIVE))
        copy->super = (t->super & ~TYPE_RELATIVE) + first;
    for (uint32_t i = 0; i < vals; i++) {
        list[i] = absolute(t->vals[i], first);
        *(i < t->n_params ? &copy->param_slots : &copy->result_slots) +=
            slots_of(list[i] & ~FIELD_MUTABLE);
    }
    return supers_make(e, copy) && fields_make(e, copy) ? copy : NULL;
}

/* Doubles the hash table. An entry is the number of a group + 1; 0 is empty. */
static bool table_rehash(struct wasm_engine *e) {
    uint32_t size = e->group_table ? (e->group_mask + 1) * 2 : 64;
    uint32_t *table = engine_alloc(e, size * sizeof *table);
    if (!table)
        return false;
    for (uint32_t g = 0; g < e->n_groups; g++) {
        uint32_t at = e->groups[g].hash & (size - 1);
        while (table[at])
            at = (at + 1) & (size - 1);
        table[at] = g + 1;
    }
    if (e->group_table)
        engine_release(e, e->group_table, (e->group_mask + 1) * sizeof *table);
    e->group_table = table;
    e->group_mask = size - 1;
    return true;
}

static bool group_add(struct wasm_engine *e, const struct type *group, uint32_t n,
                      const uint32_t *key, uint32_t n_words, uint32_t hash) {
    uint32_t first = e->n_types;
    if (first + n > MAX_TYPES ||
        !engine_grow(e, &e->types, &e->cap_types, first + n, sizeof *e->types) ||
        !engine_grow(e, &e->groups, &e->cap_groups, e->n_groups + 1, sizeof *e->groups))
        return false;
    uint32_t *keep = arena_get(&e->arena, n_words * sizeof *keep);
    if (!keep)
        return false;
    memcpy(keep, key, n_words * sizeof *keep);
    for (uint32_t i = 0; i < n; i++)
        if (!(e->types[first + i] = type_copy(e, &group[i], first + i, first)))
            return false;
    e->n_types = first + n;
    e->groups[e->n_groups++] = (struct type_group){keep, n_words, first, hash};
    return true;
}

bool types_intern(struct wasm_engine *e, struct type *group, uint32_t n, uint32_t *ret_first) {
    uint32_t small[64], n_words = key_size(group, n);
    uint32_t *key = n_words <= 64 ? small : engine_alloc(e, n_words * sizeof *key);
    if (!key || ((!e->group_table || e->n_groups * 2 > e->group_mask) && !table_rehash(e)))
        return false;
    key_write(group, n, key);
    uint32_t hash = (uint32_t)siphash(siphash_own_key(), key, n_words * sizeof *key);
    uint32_t at = hash & e->group_mask;
    bool ok = true;
    for (; e->group_table[at]; at = (at + 1) & e->group_mask) {
        const struct type_group *g = &e->groups[e->group_table[at] - 1];
        if (g->hash == hash && g->n_words == n_words &&
            memcmp(g->key, key, n_words * sizeof *key) == 0)
            break;
    }
    if (!e->group_table[at]) {
        ok = group_add(e, group, n, key, n_words, hash);
        if (ok)
            e->group_table[at] = e->n_groups;
    }
    if (ok)
        *ret_first = e->groups[e->group_table[at] - 1].first;
    if (key != small)
        engine_release(e, key, n_words * sizeof *key);
    return ok;
}

bool types_sub_def(const struct wasm_engine *e, uint32_t a, uint32_t b) {
    if (a == b)
        return true;
    const struct type *sub = e->types[a], *super = e->types[b];
    return sub->supers && sub->depth > super->depth && sub->supers[super->depth] == b;
}

/* Returns the topmost type in the hierarchy of an abstract heap type. */
static uint32_t heap_top(uint32_t heap) {
    switch (heap) {
    case HEAP_FUNC:
    case HEAP_NOFUNC:
        return HEAP_FUNC;
    case HEAP_EXTERN:
    case HEAP_NOEXTERN:
        return HEAP_EXTERN;
    case HEAP_EXN:
    case HEAP_NOEXN:
        return HEAP_EXN;
    default:
        return HEAP_ANY;
    }
}

static uint32_t kind_heap(const struct type *t) {
    return t->kind == TYPE_FUNC ? HEAP_FUNC : t->kind == TYPE_STRUCT ? HEAP_STRUCT : HEAP_ARRAY;
}

static bool heap_sub_abstract(uint32_t a, uint32_t b) {
    if (a == b)
        return true;
    if (heap_top(a) != heap_top(b))
        return false;
    if (b == heap_top(b) || a == HEAP_NOFUNC || a == HEAP_NOEXTERN || a == HEAP_NOEXN ||
        a == HEAP_NONE)
        return !(b == HEAP_NOFUNC || b == HEAP_NOEXTERN || b == HEAP_NOEXN || b == HEAP_NONE);
    return b == HEAP_EQ && (a == HEAP_I31 || a == HEAP_STRUCT || a == HEAP_ARRAY);
}

static bool heap_sub(const struct wasm_engine *e, uint32_t a, uint32_t b) {
    uint32_t ha = a & 0xff, hb = b & 0xff;
    if (a & WASM_ABSTRACT && b & WASM_ABSTRACT)
        return heap_sub_abstract(ha, hb);
    uint32_t ia = a & ~WASM_ABSTRACT, ib = b & ~WASM_ABSTRACT;
    if (b & WASM_ABSTRACT)
        return heap_sub_abstract(kind_heap(e->types[ia]), hb);
    if (a & WASM_ABSTRACT) {
        uint32_t bottom = kind_heap(e->types[ib]) == HEAP_FUNC ? HEAP_NOFUNC : HEAP_NONE;
        return ha == bottom;
    }
    return types_sub_def(e, ia, ib);
}

bool types_sub(const struct wasm_engine *e, uint32_t a, uint32_t b) {
    if (a == b)
        return true;
    if (!is_ref(a) || !is_ref(b) || ((a & WASM_NULLABLE) && !(b & WASM_NULLABLE)))
        return false;
    return heap_sub(e, WASM_HEAP(a), WASM_HEAP(b));
}

bool types_depth_ok(const struct wasm_engine *e, const struct type *t) {
    (void)e;
    return t->supers != NULL;
}

static bool field_sub(const struct wasm_engine *e, uint32_t a, uint32_t b) {
    if ((a ^ b) & FIELD_MUTABLE)
        return false;
    if (a & FIELD_MUTABLE)
        return a == b;
    return types_sub(e, a, b);
}

static bool func_sub(const struct wasm_engine *e, const struct type *t, const struct type *sup) {
    if (t->n_params != sup->n_params || t->n_results != sup->n_results)
        return false;
    for (uint32_t i = 0; i < t->n_params; i++)
        if (!types_sub(e, sup->vals[i], t->vals[i]))
            return false;
    for (uint32_t i = t->n_params; i < t->n_params + t->n_results; i++)
        if (!types_sub(e, t->vals[i], sup->vals[i]))
            return false;
    return true;
}

bool types_super_ok(const struct wasm_engine *e, const struct type *t) {
    if (t->super == NO_TYPE)
        return true;
    const struct type *sup = e->types[t->super];
    if (sup->final || sup->kind != t->kind)
        return false;
    if (t->kind == TYPE_FUNC)
        return func_sub(e, t, sup);
    if (t->n_params < sup->n_params)
        return false;
    for (uint32_t i = 0; i < sup->n_params; i++)
        if (!field_sub(e, t->vals[i], sup->vals[i]))
            return false;
    return true;
}

struct wasm_func_type type_view(const struct type *t) {
    return (struct wasm_func_type){t->vals, t->vals + t->n_params, t->n_params, t->n_results};
}

static const struct {
    uint32_t heap;
    const char *name;
} heap_names[] = {
    {HEAP_FUNC, "func"},     {HEAP_EXTERN, "extern"},
    {HEAP_ANY, "any"},       {HEAP_EQ, "eq"},
    {HEAP_I31, "i31"},       {HEAP_STRUCT, "struct"},
    {HEAP_ARRAY, "array"},   {HEAP_EXN, "exn"},
    {HEAP_NONE, "none"},     {HEAP_NOEXTERN, "noextern"},
    {HEAP_NOFUNC, "nofunc"}, {HEAP_NOEXN, "noexn"},
};

static const char *heap_name(uint32_t heap) {
    for (size_t i = 0; i < sizeof heap_names / sizeof *heap_names; i++)
        if (heap_names[i].heap == (heap & 0xff))
            return heap_names[i].name;
    return "?";
}

static const char *number_name(uint32_t type) {
    static const char names[][5] = {"v128", "f64", "f32", "i64", "i32"};
    return type >= WASM_V128 && type <= WASM_I32 ? names[type - WASM_V128] : "unknown";
}

const char *wasm_type_name(uint32_t type, char *buf, size_t size) {
    if (!is_ref(type))
        snprintf(buf, size, "%s", number_name(type));
    else if (!(type & WASM_ABSTRACT))
        snprintf(buf, size, "(ref %s%u)", type & WASM_NULLABLE ? "null " : "", WASM_HEAP(type));
    else if (!(type & WASM_NULLABLE))
        snprintf(buf, size, "(ref %s)", heap_name(type));
    else if ((type & 0xff) >= HEAP_NONE)
        snprintf(buf, size, "(ref null %s)", heap_name(type));
    else
        snprintf(buf, size, "%sref", heap_name(type));
    return buf;
}
