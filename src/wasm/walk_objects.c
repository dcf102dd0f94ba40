/*
 * Walks instructions on garbage collected objects.
 *
 * In code each of these instructions is a BULK word: it pays for itself, its operands are in their
 * slots, and objects.c executes it.
 */

#include "wasm/simd.h"
#include "wasm/walk.h"
#include "wasm/walk_inner.h"

static uint32_t field_type(const struct type *t, uint32_t i) {
    return t->vals[i] & ~FIELD_MUTABLE;
}

static bool is_packed(uint32_t type) {
    return type == TYPE_I8 || type == TYPE_I16;
}

static uint32_t unpacked(const struct type *t, uint32_t i) {
    uint32_t type = field_type(t, i);
    return is_packed(type) ? WASM_I32 : type;
}

static const struct type *object_type(struct scratch *w, uint32_t kind) {
    uint32_t i = reader_u32(&w->r);
    if (w->r.failed)
        return NULL;
    if (i >= w->m->n_types) {
        reader_fail(&w->r, WASM_INVALID, "unknown type %u", i);
        return NULL;
    }
    const struct type *t = module_type(w->m, i);
    if (t->kind == kind)
        return t;
    reader_fail(&w->r, WASM_INVALID, "type mismatch: type %u is not %s type", i,
                kind == TYPE_STRUCT ? "a struct" : "an array");
    return NULL;
}

static uint32_t ref_to(const struct type *t) {
    return WASM_REF | t->id;
}

static uint32_t null_ref_to(const struct type *t) {
    return WASM_REF | WASM_NULLABLE | t->id;
}

/* Pops n operands of the types in[] and pushes type `out`; 0: no result. */
static bool object_op(struct scratch *w, bool emit, uint32_t row, const uint32_t *in, uint32_t n,
                      uint32_t out, uint32_t x, uint32_t y) {
    if (w->r.failed)
        return false;
    if (emit && !w->dead)
        em_bulk(w, row, n, x, y);
    if (!walk_pop_types(w, in, n) || (out && !push(w, emit, out)))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

#define IN(...) \
    (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t)

static bool do_struct_new(struct scratch *w, bool emit, uint32_t row) {
    const struct type *t = object_type(w, TYPE_STRUCT);
    if (!t)
        return false;
    bool is_default = row == OP_STRUCT_NEW_DEFAULT;
    for (uint32_t i = 0; is_default && i < t->n_params; i++)
        if (!is_packed(field_type(t, i)) && !is_defaultable(field_type(t, i)))
            return walk_fail_type(w, "type mismatch: a field has no default");
    if (emit && !w->dead)
        em_bulk(w, row, is_default ? 0 : t->n_params, t->id, 0);
    for (uint32_t i = t->n_params; !is_default && i-- > 0;)
        if (!pop(w, unpacked(t, i)))
            return false;
    if (!push(w, emit, ref_to(t)))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

/* Checks that get_s and get_u are used for packed fields, and get for the others. */
static bool get_fits(struct scratch *w, bool is_plain, uint32_t type) {
    return is_plain != is_packed(type) ||
           walk_fail_type(w, "type mismatch: packed and unpacked access differ");
}

static bool do_struct_field(struct scratch *w, bool emit, uint32_t row) {
    const struct type *t = object_type(w, TYPE_STRUCT);
    uint32_t i = reader_u32(&w->r);
    if (!t || w->r.failed)
        return false;
    if (i >= t->n_params)
        return reader_fail(&w->r, WASM_INVALID, "unknown field %u", i);
    if (row == OP_STRUCT_SET) {
        if (!(t->vals[i] & FIELD_MUTABLE))
            return reader_fail(&w->r, WASM_INVALID, "immutable field %u", i);
        return object_op(w, emit, row, IN(null_ref_to(t), unpacked(t, i)), 0, t->id, i);
    }
    return get_fits(w, row == OP_STRUCT_GET, field_type(t, i)) &&
           object_op(w, emit, row, IN(null_ref_to(t)), unpacked(t, i), t->id, i);
}

static bool array_mutable(struct scratch *w, const struct type *t) {
    return (t->vals[0] & FIELD_MUTABLE) || walk_fail_type(w, "immutable array");
}

static bool array_of_numbers(struct scratch *w, const struct type *t) {
    return !is_ref(field_type(t, 0)) || walk_fail_type(w, "array type is not numeric or vector");
}

static bool array_takes_elems(struct scratch *w, const struct type *t, uint32_t seg) {
    if (!walk_elem_ok(w, seg))
        return false;
    return types_sub(w->e, w->m->elems[seg].type, field_type(t, 0)) ||
           walk_fail_type(w, "type mismatch between segment and array");
}

static bool do_array_new_fixed(struct scratch *w, bool emit, const struct type *t) {
    uint32_t n = reader_u32(&w->r), el = unpacked(t, 0);
    if (w->r.failed)
        return false;
    if (n > 10000)
        return reader_fail(&w->r, WASM_TOO_BIG, "array.new_fixed of more than 10000 elements");
    if (w->n - w->floor < n && !w->top->unreachable)
        return walk_mismatch(w, el);
    if (emit && !w->dead)
        em_bulk(w, OP_ARRAY_NEW_FIXED, n, t->id, n);
    for (uint32_t i = 0; i < n; i++)
        if (!pop(w, el))
            return false;
    if (!push(w, emit, ref_to(t)))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

static bool do_array_new(struct scratch *w, bool emit, uint32_t row) {
    const struct type *t = object_type(w, TYPE_ARRAY);
    if (!t)
        return false;
    uint32_t el = unpacked(t, 0), seg;
    switch (row) {
    case OP_ARRAY_NEW:
        return object_op(w, emit, row, IN(el, WASM_I32), ref_to(t), t->id, 0);
    case OP_ARRAY_NEW_DEFAULT:
        if (!is_packed(field_type(t, 0)) && !is_defaultable(el))
            return walk_fail_type(w, "type mismatch: the element type has no default");
        return object_op(w, emit, row, IN(WASM_I32), ref_to(t), t->id, 0);
    case OP_ARRAY_NEW_FIXED:
        return do_array_new_fixed(w, emit, t);
    case OP_ARRAY_NEW_DATA:
        seg = reader_u32(&w->r);
        return array_of_numbers(w, t) && walk_data_ok(w, seg) &&
               object_op(w, emit, row, IN(WASM_I32, WASM_I32), ref_to(t), t->id, seg);
    default:
        seg = reader_u32(&w->r);
        return array_takes_elems(w, t, seg) &&
               object_op(w, emit, row, IN(WASM_I32, WASM_I32), ref_to(t), t->id, seg);
    }
}

static bool do_array_copy(struct scratch *w, bool emit, const struct type *t) {
    const struct type *from = object_type(w, TYPE_ARRAY);
    if (!from || !array_mutable(w, t))
        return false;
    uint32_t a = field_type(from, 0), b = field_type(t, 0);
    if (a != b && (is_packed(a) || is_packed(b) || !types_sub(w->e, a, b)))
        return walk_fail_type(w, "array types do not match");
    return object_op(w, emit, OP_ARRAY_COPY,
                     IN(null_ref_to(t), WASM_I32, null_ref_to(from), WASM_I32, WASM_I32), 0, t->id,
                     0);
}

static bool do_array(struct scratch *w, bool emit, uint32_t row) {
    if (row == OP_ARRAY_LEN)
        return object_op(w, emit, row, IN(WASM_ABSTRACT_REF(0x6au)), WASM_I32, 0, 0);
    const struct type *t = object_type(w, TYPE_ARRAY);
    if (!t)
        return false;
    uint32_t el = unpacked(t, 0), ref = null_ref_to(t), seg;
    switch (row) {
    case OP_ARRAY_GET:
    case OP_ARRAY_GET_S:
    case OP_ARRAY_GET_U:
        return get_fits(w, row == OP_ARRAY_GET, field_type(t, 0)) &&
               object_op(w, emit, row, IN(ref, WASM_I32), el, t->id, 0);
    case OP_ARRAY_SET:
        return array_mutable(w, t) && object_op(w, emit, row, IN(ref, WASM_I32, el), 0, t->id, 0);
    case OP_ARRAY_FILL:
        return array_mutable(w, t) &&
               object_op(w, emit, row, IN(ref, WASM_I32, el, WASM_I32), 0, t->id, 0);
    case OP_ARRAY_COPY:
        return do_array_copy(w, emit, t);
    case OP_ARRAY_INIT_DATA:
        seg = reader_u32(&w->r);
        return array_mutable(w, t) && array_of_numbers(w, t) && walk_data_ok(w, seg) &&
               object_op(w, emit, row, IN(ref, WASM_I32, WASM_I32, WASM_I32), 0, t->id, seg);
    default:
        seg = reader_u32(&w->r);
        return array_mutable(w, t) && array_takes_elems(w, t, seg) &&
               object_op(w, emit, row, IN(ref, WASM_I32, WASM_I32, WASM_I32), 0, t->id, seg);
    }
}

static uint32_t ref_top(struct scratch *w, uint32_t type) {
    static const uint32_t tops[] = {WASM_FUNCREF, WASM_EXTERNREF, WASM_EXNREF};
    for (size_t i = 0; i < sizeof tops / sizeof *tops; i++)
        if (types_sub(w->e, type, tops[i]))
            return tops[i];
    return WASM_ANYREF;
}

static bool do_cast(struct scratch *w, bool emit, uint32_t row) {
    uint32_t null = row == OP_REF_TEST_NULL || row == OP_REF_CAST_NULL ? WASM_NULLABLE : 0;
    uint32_t type = WASM_REF | null | module_heaptype(w->m, &w->r);
    if (w->r.failed)
        return false;
    bool is_test = row == OP_REF_TEST || row == OP_REF_TEST_NULL;
    return object_op(w, emit, row, IN(ref_top(w, type)), is_test ? WASM_I32 : type, type, 0);
}

static bool do_br_on_cast(struct scratch *w, bool emit, bool on_fail) {
    struct reader *r = &w->r;
    uint8_t flags = reader_byte(r);
    uint32_t depth = reader_u32(r), n;
    uint32_t from = WASM_REF | (flags & 1 ? WASM_NULLABLE : 0) | module_heaptype(w->m, r);
    uint32_t to = WASM_REF | (flags & 2 ? WASM_NULLABLE : 0) | module_heaptype(w->m, r);
    struct ctrl *c = r->failed ? NULL : walk_label(w, depth);
    if (!c)
        return false;
    if (flags > 3)
        return reader_fail(r, WASM_MALFORMED, "malformed br_on_cast flags");
    const uint32_t *types = ctrl_label(c, &n);
    uint32_t rest = to & WASM_NULLABLE ? from & ~WASM_NULLABLE : from;
    uint32_t taken = on_fail ? rest : to, kept = on_fail ? to : rest;
    if (!types_sub(w->e, to, from) || n == 0 || !types_sub(w->e, taken, types[n - 1]))
        return walk_fail_type(w, "type mismatch: the cast does not fit its label");
    if (emit && !w->dead)
        em_br_cast(w, depth, to, on_fail);
    return pop(w, from) && walk_pop_types(w, types, n - 1) && push_types(w, emit, types, n - 1) &&
           push(w, emit, kept);
}

/* Walks a conversion between the hierarchies of any and extern; the null flag stays. */
static bool do_convert(struct scratch *w, bool emit, uint32_t row) {
    bool to_any = row == OP_ANY_CONVERT_EXTERN;
    uint32_t t, from = to_any ? WASM_EXTERNREF : WASM_ANYREF;
    uint32_t out = to_any ? WASM_ANYREF : WASM_EXTERNREF;
    if (emit && !w->dead)
        em_bulk(w, row, 1, 0, 0);
    if (!walk_pop_ref(w, &t) || (t != 0 && !types_sub(w->e, t, from)))
        return walk_mismatch(w, from);
    if (!push(w, emit, t & WASM_NULLABLE || t == 0 ? out : out & ~WASM_NULLABLE))
        return false;
    if (emit && !w->dead)
        em_after_call(w);
    return true;
}

bool walk_ref_eq(struct scratch *w, bool emit) {
    uint32_t eq = WASM_ABSTRACT_REF(0x6du);
    return object_op(w, emit, OP_REF_EQ, IN(eq, eq), WASM_I32, 0, 0);
}

bool walk_fb(struct scratch *w, bool emit) {
    uint32_t row = w->op = wasm_op_find(0xfb, reader_u32(&w->r));
    if (w->r.failed)
        return false;
    if (row == OP_COUNT || w->m->level < WASM_3_0)
        return reader_fail(&w->r, WASM_MALFORMED, "illegal opcode fb");
    switch (row) {
    case OP_STRUCT_NEW:
    case OP_STRUCT_NEW_DEFAULT:
        return do_struct_new(w, emit, row);
    case OP_STRUCT_GET:
    case OP_STRUCT_GET_S:
    case OP_STRUCT_GET_U:
    case OP_STRUCT_SET:
        return do_struct_field(w, emit, row);
    case OP_ARRAY_NEW:
    case OP_ARRAY_NEW_DEFAULT:
    case OP_ARRAY_NEW_FIXED:
    case OP_ARRAY_NEW_DATA:
    case OP_ARRAY_NEW_ELEM:
        return do_array_new(w, emit, row);
    case OP_REF_TEST:
    case OP_REF_TEST_NULL:
    case OP_REF_CAST:
    case OP_REF_CAST_NULL:
        return do_cast(w, emit, row);
    case OP_BR_ON_CAST:
    case OP_BR_ON_CAST_FAIL:
        return do_br_on_cast(w, emit, row == OP_BR_ON_CAST_FAIL);
    case OP_ANY_CONVERT_EXTERN:
    case OP_EXTERN_CONVERT_ANY:
        return do_convert(w, emit, row);
    case OP_REF_I31:
        return object_op(w, emit, row, IN(WASM_I32), WASM_ABSTRACT_REF(0x6cu) & ~WASM_NULLABLE, 0,
                         0);
    case OP_I31_GET_S:
    case OP_I31_GET_U:
        return object_op(w, emit, row, IN(WASM_ABSTRACT_REF(0x6cu)), WASM_I32, 0, 0);
    default:
        return do_array(w, emit, row);
    }
}
