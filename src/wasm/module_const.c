/* Validates constant expressions. */
#include "base/siphash.h"
#include "wasm/engine.h"
#include "wasm/module_inner.h"

/* Marks a function as declared: ref.func in a function body may name only declared functions. */
bool module_declare(struct wasm_module *m, struct reader *r, uint32_t func) {
    if (func >= m->n_funcs)
        return reader_fail(r, WASM_INVALID, "unknown function %u", func);
    if (!m->declared && !(m->declared = arena_get(&m->arena, m->n_funcs)))
        return module_fail_memory(r);
    m->declared[func] = 1;
    return true;
}

/* Types of the operands of a constant expression. store_link.c computes their values later. */
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

/* Before version 3.0, only imported globals may be read; since then, all globals before this one.
 */
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
    if (!module_declare(m, r, f))
        return false;
    uint32_t t = m->level >= WASM_3_0 ? WASM_REF | m->fns[f].canon : WASM_FUNCREF;
    return const_push(r, s, t);
}

static bool const_pop(struct wasm_module *m, struct reader *r, struct const_stack *s,
                      uint32_t type) {
    if (type == TYPE_I8 || type == TYPE_I16) /* packed fields are i32 on the stack */
        type = WASM_I32;
    if (s->n == 0 || !types_sub(m->engine, s->types[s->n - 1], type))
        return reader_fail(r, WASM_INVALID, "type mismatch in constant expression");
    s->n--;
    return true;
}

static bool has_default(uint32_t type) {
    return type == TYPE_I8 || type == TYPE_I16 || is_defaultable(type);
}

/* Checks struct.new, array.new and similar instructions; their type gives the operands. */
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

/* Tells an unknown opcode (malformed) from one that is not allowed here (invalid). */
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
