/*
 * Garbage collected objects of a store, and the instructions on them.
 *
 * A reference is a number: tag and index of the object, or tag and value of an i31. A field takes
 * one slot, even if it is packed; a v128 takes two. The collector starts from the guest's live
 * slots, globals, tables and segments, marks each number that looks like a reference, and moves
 * nothing. The allocation that starts the collector pays for it, by the number of slots it may have
 * to read. The collector runs at the same points on every host, because live slots are the same.
 */
#include "wasm/budget.h"
#include "wasm/interp.h"

#define OBJ_REF UINT64_C(0xc000000000000000)
#define I31_REF UINT64_C(0xa000000000000000)
#define EXN_REF UINT64_C(0xe000000000000000)

enum { COLLECT_FROM = 1 << 16 };

static const char trap_null_struct[] = "null structure reference",
                  trap_null_array[] = "null array reference",
                  trap_array[] = "out of bounds array access", trap_cast[] = "cast failure",
                  trap_null_i31[] = "null i31 reference", trap_heap[] = "out of object memory";

struct object *store_object(const struct wasm_store *s, uint64_t ref) {
    uint64_t i = ref - OBJ_REF;
    return ref >= OBJ_REF && i < s->n_objs && s->objs[i].type != NO_TYPE ? &s->objs[i] : NULL;
}

uint32_t object_dynamic_type(const struct wasm_store *s, uint64_t ref) {
    const struct object *o = store_object(s, ref);
    if (o)
        return WASM_REF | o->type;
    return (WASM_ANYREF & ~WASM_NULLABLE & ~0xffu) | (ref >> 60 == I31_REF >> 60 ? 0x6cu : 0x6eu);
}

/* True if the reference has this type. Both must belong to the same hierarchy of types. */
bool object_is(const struct wasm_store *s, uint64_t ref, uint32_t type) {
    struct wasm_instance *i;
    if (ref == 0)
        return type & WASM_NULLABLE;
    if (types_sub(s->engine, type, WASM_FUNCREF)) {
        const struct fn *fn = store_fn(s, ref, &i);
        return fn && types_sub(s->engine, WASM_REF | fn->canon, type);
    }
    if (types_sub(s->engine, type, WASM_ANYREF))
        return types_sub(s->engine, object_dynamic_type(s, ref), type);
    return WASM_HEAP(type) == WASM_HEAP(WASM_EXTERNREF) ||
           WASM_HEAP(type) == WASM_HEAP(WASM_EXNREF);
}

/* ---- Collecting ---- */

struct marker {
    struct wasm_store *s;
    uint32_t *work; /* numbers of marked objects whose fields were not read yet */
    uint32_t n;
};

static void mark_slots(struct marker *m, const uint64_t *from, const uint64_t *to) {
    struct wasm_store *s = m->s;
    s->engine->work += (uint64_t)(to - from);
    for (; from < to; from++) {
        struct object *o = store_object(s, *from);
        if (o && !o->marked) {
            o->marked = true;
            m->work[m->n++] = (uint32_t)(o - s->objs);
        } else if (*from >= EXN_REF && *from - EXN_REF < s->n_exns) {
            struct exn *x = &s->exns[*from - EXN_REF];
            if (!x->marked && x->tag != NO_TYPE) {
                x->marked = true;
                m->work[m->n++] = (uint32_t)(x - s->exns) | 0x80000000u;
            }
        }
    }
}

static void mark_all(struct marker *m) {
    while (m->n) {
        uint32_t i = m->work[--m->n];
        if (i & 0x80000000u) {
            const struct exn *x = &m->s->exns[i & 0x7fffffffu];
            mark_slots(m, x->slots, x->slots + x->n_slots);
        } else {
            const struct object *o = &m->s->objs[i];
            mark_slots(m, o->slots, o->slots + o->n_slots);
        }
    }
}

static void mark_roots(struct marker *m, const uint64_t *live_end) {
    struct wasm_store *s = m->s;
    if (s->stack && live_end)
        mark_slots(m, s->stack, live_end);
    for (uint32_t i = 0; i < s->n_globals; i++)
        mark_slots(m, s->globals[i]->value, s->globals[i]->value + 1);
    for (uint32_t i = 0; i < s->n_tables; i++)
        mark_slots(m, s->tables[i]->elems, s->tables[i]->elems + s->tables[i]->size);
    for (uint32_t i = 1; i < s->n_insts; i++)
        for (uint32_t k = 0; k < s->insts[i]->mod->n_elems; k++)
            if (s->insts[i]->elem_refs[k])
                mark_slots(m, s->insts[i]->elem_refs[k],
                           s->insts[i]->elem_refs[k] + s->insts[i]->mod->elems[k].n);
    mark_all(m);
}

static void object_drop(struct wasm_store *s, struct object *o) {
    engine_release(s->engine, o->slots, o->n_slots * sizeof *o->slots);
    s->heap_slots -= o->n_slots + 1;
    store_give(s, budget_slots(o->n_slots));
    *o = (struct object){.type = NO_TYPE};
    s->free_obj = (uint32_t)(o - s->objs);
}

static uint64_t by_elems(uint64_t n) {
    return n / 8 + (n % 8 != 0);
}

/* Fuel of a garbage collection, which reads each root and heap slot once and visits each object. */
uint64_t store_collect_cost(const struct wasm_store *s, const uint64_t *live_end) {
    uint64_t slots = s->heap_slots + s->exn_slots + s->n_globals;
    if (s->stack && live_end)
        slots += (uint64_t)(live_end - s->stack);
    for (uint32_t i = 0; i < s->n_tables; i++)
        slots += s->tables[i]->size;
    for (uint32_t i = 1; i < s->n_insts; i++)
        for (uint32_t k = 0; k < s->insts[i]->mod->n_elems; k++)
            slots += s->insts[i]->mod->elems[k].n;
    return by_elems(slots) + s->n_objs + s->n_exns;
}

bool store_collect(struct wasm_store *s, const uint64_t *live_end) {
    size_t room = ((size_t)s->n_objs + s->n_exns + 1) * sizeof(uint32_t);
    struct marker m = {.s = s, .work = engine_alloc(s->engine, room)};
    if (!m.work)
        return false;
    mark_roots(&m, live_end);
    engine_release(s->engine, m.work, room);
    s->engine->work += (uint64_t)s->n_objs + s->n_exns;
    for (uint32_t i = s->n_objs; i-- > 0;) {
        if (s->objs[i].type != NO_TYPE && !s->objs[i].marked)
            object_drop(s, &s->objs[i]);
        s->objs[i].marked = false;
    }
    for (uint32_t i = 0; i < s->n_exns; i++) {
        if (s->exns[i].tag != NO_TYPE && !s->exns[i].marked)
            store_exn_free(s, EXN_REF + i);
        s->exns[i].marked = false;
    }
    s->since_collect = 0;
    return true;
}

static uint64_t object_slots(const struct type *t, uint64_t n) {
    return t->kind == TYPE_ARRAY ? n * t->param_slots : t->param_slots;
}

/* Decides whether an allocation collects garbage first: seldom, because that costs much fuel. */
static void check_heap(const struct wasm_store *s, struct bulk *b, const struct type *t,
                       uint64_t n) {
    uint64_t slots = object_slots(t, n), pause = s->heap_slots / 2 + COLLECT_FROM;
    bool full =
        s->heap_slots + slots + 1 > s->engine->cfg.heap_slots || !store_has(s, budget_slots(slots));
    b->collects = !s->no_collect &&
                  (s->since_collect > pause || (full && s->since_collect > s->heap_slots / 8));
    if (b->collects)
        b->cost += store_collect_cost(s, b->live_end);
}

static uint32_t object_slot(struct wasm_store *s) {
    for (uint32_t i = s->free_obj; i < s->n_objs; i++)
        if (s->objs[i].type == NO_TYPE) {
            s->free_obj = i + 1;
            return i;
        }
    s->free_obj = s->n_objs;
    if (!engine_grow(s->engine, &s->objs, &s->cap_objs, s->n_objs + 1, sizeof *s->objs))
        return NO_TYPE;
    s->objs[s->n_objs] = (struct object){.type = NO_TYPE};
    return s->n_objs++;
}

/* Creates an object with all fields zero. NULL: the heap is full, even after a collection. */
static struct object *object_new(struct wasm_store *s, const struct bulk *b, uint32_t n,
                                 uint64_t *ret_ref) {
    uint32_t type = b->x;
    uint64_t slots = object_slots(s->engine->types[type], n);
    if (b->collects)
        store_collect(s, b->live_end);
    if (s->heap_slots + slots + 1 > s->engine->cfg.heap_slots ||
        !store_take(s, budget_slots(slots)))
        return NULL;
    uint64_t *p = engine_alloc(s->engine, slots * sizeof *p);
    uint32_t i = p ? object_slot(s) : NO_TYPE;
    if (i == NO_TYPE) {
        store_give(s, budget_slots(slots));
        engine_release(s->engine, p, slots * sizeof *p);
        return NULL;
    }
    s->objs[i] = (struct object){.type = type, .n = n, .n_slots = (uint32_t)slots, .slots = p};
    s->heap_slots += slots + 1;
    s->since_collect += slots + 1;
    *ret_ref = OBJ_REF + i;
    return &s->objs[i];
}

/* ---- Checking ---- */

static bool outside(uint64_t at, uint64_t n, uint64_t size) {
    return at > size || n > size - at;
}

static uint32_t elem_type(const struct type *t) {
    return t->vals[0] & ~FIELD_MUTABLE;
}

static uint32_t elem_bytes(uint32_t type) {
    switch (type) {
    case TYPE_I8:
        return 1;
    case TYPE_I16:
        return 2;
    case WASM_I32:
    case WASM_F32:
        return 4;
    default:
        return type == WASM_V128 ? 16 : 8;
    }
}

static uint64_t data_size(const struct wasm_instance *i, uint32_t seg) {
    return i->dropped_datas[seg] ? 0 : i->mod->datas[seg].size;
}

static uint64_t elem_size(const struct wasm_instance *i, uint32_t seg) {
    return i->dropped_elems[seg] ? 0 : i->mod->elems[seg].n;
}

static const char *check_new(struct wasm_instance *i, struct bulk *b, const struct type *t) {
    uint64_t *v = b->slots, n;
    switch (b->row) {
    case OP_ARRAY_NEW_FIXED:
        n = b->y;
        break;
    case OP_ARRAY_NEW:
        n = v[t->param_slots];
        break;
    case OP_ARRAY_NEW_DEFAULT:
        n = v[0];
        break;
    case OP_ARRAY_NEW_DATA:
        n = v[1];
        if (outside(v[0], n * elem_bytes(elem_type(t)), data_size(i, b->y)))
            return trap_memory;
        break;
    default:
        n = v[1];
        if (outside(v[0], n, elem_size(i, b->y)))
            return trap_table;
    }
    if (n > i->store->engine->cfg.heap_slots)
        return trap_heap;
    b->cost = by_elems(n);
    check_heap(i->store, b, t, n);
    return NULL;
}

/* Checks array.fill, array.copy and array.init: their operands are array, offset, …, count. */
static const char *check_range(struct wasm_instance *i, struct bulk *b, const struct type *t) {
    uint64_t *v = b->slots;
    const struct object *to = store_object(i->store, v[0]);
    uint64_t n = b->row == OP_ARRAY_FILL   ? v[2 + t->param_slots]
                 : b->row == OP_ARRAY_COPY ? v[4]
                                           : v[3];
    if (!to)
        return trap_null_array;
    if (b->row == OP_ARRAY_COPY) {
        const struct object *from = store_object(i->store, v[2]);
        /* A store that was read from bytes may have an array of another type here. */
        if (!from || i->store->engine->types[from->type]->kind != TYPE_ARRAY ||
            i->store->engine->types[from->type]->param_slots != t->param_slots)
            return trap_null_array;
        if (outside(v[3], n, from->n))
            return trap_array;
    }
    if (outside(v[1], n, to->n))
        return trap_array;
    if (b->row == OP_ARRAY_INIT_DATA &&
        outside(v[2], n * elem_bytes(elem_type(t)), data_size(i, b->y)))
        return trap_memory;
    if (b->row == OP_ARRAY_INIT_ELEM && outside(v[2], n, elem_size(i, b->y)))
        return trap_table;
    b->cost = by_elems(n);
    return NULL;
}

static const char *check_elem(const struct wasm_store *s, const uint64_t *v) {
    const struct object *o = store_object(s, v[0]);
    return !o ? trap_null_array : v[1] >= o->n ? trap_array : NULL;
}

const char *object_check(struct wasm_instance *i, struct bulk *b) {
    const struct wasm_store *s = i->store;
    const struct type *t = b->row < OP_REF_TEST && b->row != OP_ARRAY_LEN && b->row != OP_REF_EQ
                               ? s->engine->types[b->x]
                               : NULL;
    switch (b->row) {
    case OP_STRUCT_GET:
    case OP_STRUCT_GET_S:
    case OP_STRUCT_GET_U:
    case OP_STRUCT_SET:
        return object_is(s, b->slots[0], WASM_REF | b->x) ? NULL : trap_null_struct;
    case OP_ARRAY_GET:
    case OP_ARRAY_GET_S:
    case OP_ARRAY_GET_U:
    case OP_ARRAY_SET:
        return object_is(s, b->slots[0], WASM_REF | b->x) ? check_elem(s, b->slots)
                                                          : trap_null_array;
    case OP_ARRAY_LEN:
        return store_object(s, b->slots[0]) ? NULL : trap_null_array;
    case OP_STRUCT_NEW:
    case OP_STRUCT_NEW_DEFAULT:
        b->cost = t->n_params / 8;
        check_heap(s, b, t, 0);
        return NULL;
    case OP_ARRAY_NEW:
    case OP_ARRAY_NEW_DEFAULT:
    case OP_ARRAY_NEW_FIXED:
    case OP_ARRAY_NEW_DATA:
    case OP_ARRAY_NEW_ELEM:
        return check_new(i, b, t);
    case OP_ARRAY_FILL:
    case OP_ARRAY_COPY:
    case OP_ARRAY_INIT_DATA:
    case OP_ARRAY_INIT_ELEM:
        return object_is(s, b->slots[0], WASM_REF | b->x) ? check_range(i, b, t) : trap_null_array;
    case OP_REF_CAST:
    case OP_REF_CAST_NULL:
        return object_is(s, b->slots[0], b->x) ? NULL : trap_cast;
    case OP_I31_GET_S:
    case OP_I31_GET_U:
        return b->slots[0] ? NULL : trap_null_i31;
    default:
        return NULL;
    }
}

/* ---- Execution ---- */

static uint64_t packed(uint32_t type, uint64_t v) {
    return type == TYPE_I8 ? (uint8_t)v : type == TYPE_I16 ? (uint16_t)v : v;
}

static void field_put(uint64_t *slots, uint32_t type, const uint64_t *v) {
    slots[0] = packed(type, v[0]);
    if (type == WASM_V128)
        slots[1] = v[1];
}

static void field_get(const uint64_t *slots, uint32_t type, bool is_signed, uint64_t *v) {
    v[0] = slots[0];
    if (type == WASM_V128)
        v[1] = slots[1];
    if (is_signed)
        v[0] = type == TYPE_I8 ? (uint32_t)(int8_t)slots[0] : (uint32_t)(int16_t)slots[0];
}

static void elems_from_data(struct object *o, uint64_t at, const struct type *t,
                            const uint8_t *bytes, uint64_t n) {
    uint32_t width = elem_bytes(elem_type(t));
    for (uint64_t k = 0; k < n; k++) {
        uint64_t *slot = o->slots + (at + k) * t->param_slots;
        slot[0] = 0;
        memcpy(slot, bytes + k * width, width);
    }
}

static bool new_array(struct wasm_instance *i, struct bulk *b, const struct type *t) {
    uint64_t *v = b->slots, ref, at = v[0];
    uint32_t w = t->param_slots, type = elem_type(t);
    uint64_t n = b->row == OP_ARRAY_NEW           ? v[w]
                 : b->row == OP_ARRAY_NEW_FIXED   ? b->y
                 : b->row == OP_ARRAY_NEW_DEFAULT ? at
                                                  : v[1];
    const uint64_t *refs = b->row == OP_ARRAY_NEW_ELEM && n ? instance_elems(i, b->y) : NULL;
    if (b->row == OP_ARRAY_NEW_ELEM && n && !refs)
        return false;
    struct object *o = object_new(i->store, b, (uint32_t)n, &ref);
    if (!o)
        return false;
    for (uint64_t k = 0; k < n && (b->row == OP_ARRAY_NEW || b->row == OP_ARRAY_NEW_FIXED); k++)
        field_put(o->slots + k * w, type, b->row == OP_ARRAY_NEW ? v : v + k * w);
    if (b->row == OP_ARRAY_NEW_DATA && n)
        elems_from_data(o, 0, t, i->mod->bytes + i->mod->datas[b->y].bytes + at, n);
    if (refs)
        memcpy(o->slots, refs + at, n * sizeof *refs);
    v[0] = ref;
    return true;
}

static bool new_struct(struct wasm_instance *i, struct bulk *b, const struct type *t) {
    uint64_t ref;
    struct object *o = object_new(i->store, b, t->n_params, &ref);
    if (!o)
        return false;
    uint32_t at = 0;
    for (uint32_t k = 0; b->row == OP_STRUCT_NEW && k < t->n_params; k++) {
        uint32_t type = t->vals[k] & ~FIELD_MUTABLE;
        field_put(o->slots + at, type, b->slots + at);
        at += slots_of(type);
    }
    b->slots[0] = ref;
    return true;
}

static bool change_range(struct wasm_instance *i, struct bulk *b, const struct type *t) {
    uint64_t *v = b->slots;
    struct object *o = store_object(i->store, v[0]);
    uint32_t w = t->param_slots;
    if (b->row == OP_ARRAY_FILL) {
        for (uint64_t k = 0; k < v[2 + w]; k++)
            field_put(o->slots + (v[1] + k) * w, elem_type(t), v + 2);
    } else if (b->row == OP_ARRAY_COPY) {
        const struct object *from = store_object(i->store, v[2]);
        if (v[4])
            memmove(o->slots + v[1] * w, from->slots + v[3] * w, v[4] * w * sizeof *v);
    } else if (b->row == OP_ARRAY_INIT_DATA) {
        elems_from_data(o, v[1], t, i->mod->bytes + i->mod->datas[b->y].bytes + v[2], v[3]);
    } else if (v[3]) {
        const uint64_t *refs = instance_elems(i, b->y);
        if (!refs)
            return false;
        memcpy(store_object(i->store, v[0])->slots + v[1], refs + v[2], v[3] * sizeof *refs);
    }
    return true;
}

static void access_field(struct wasm_instance *i, struct bulk *b, const struct type *t) {
    uint64_t *v = b->slots;
    struct object *o = store_object(i->store, v[0]);
    bool is_array = t->kind == TYPE_ARRAY;
    uint32_t type = t->vals[is_array ? 0 : b->y] & ~FIELD_MUTABLE;
    uint64_t *at = o->slots + (is_array ? v[1] * t->param_slots : t->field_slots[b->y]);
    if (b->row == OP_STRUCT_SET || b->row == OP_ARRAY_SET)
        field_put(at, type, v + (is_array ? 2 : 1));
    else
        field_get(at, type, b->row == OP_STRUCT_GET_S || b->row == OP_ARRAY_GET_S, v);
}

bool object_do(struct wasm_instance *i, struct bulk *b) {
    struct wasm_store *s = i->store;
    uint64_t *v = b->slots;
    switch (b->row) {
    case OP_STRUCT_NEW:
    case OP_STRUCT_NEW_DEFAULT:
        return new_struct(i, b, s->engine->types[b->x]);
    case OP_ARRAY_NEW:
    case OP_ARRAY_NEW_DEFAULT:
    case OP_ARRAY_NEW_FIXED:
    case OP_ARRAY_NEW_DATA:
    case OP_ARRAY_NEW_ELEM:
        return new_array(i, b, s->engine->types[b->x]);
    case OP_ARRAY_FILL:
    case OP_ARRAY_COPY:
    case OP_ARRAY_INIT_DATA:
    case OP_ARRAY_INIT_ELEM:
        return change_range(i, b, s->engine->types[b->x]);
    case OP_ARRAY_LEN:
        v[0] = store_object(s, v[0])->n;
        return true;
    case OP_REF_TEST:
    case OP_REF_TEST_NULL:
        v[0] = object_is(s, v[0], b->x);
        return true;
    case OP_REF_EQ:
        v[0] = v[0] == v[1];
        return true;
    case OP_REF_I31:
        v[0] = I31_REF | (v[0] & 0x7fffffff);
        return true;
    case OP_I31_GET_S:
        v[0] = (uint32_t)((int32_t)((uint32_t)v[0] << 1) >> 1);
        return true;
    case OP_I31_GET_U:
        v[0] = v[0] & 0x7fffffff;
        return true;
    case OP_REF_CAST:
    case OP_REF_CAST_NULL:
    case OP_ANY_CONVERT_EXTERN:
    case OP_EXTERN_CONVERT_ANY:
        return true;
    default:
        access_field(i, b, s->engine->types[b->x]);
        return true;
    }
}
