#include "wasm/text/wast_value.h"

#include <string.h>

#include "base/banned.h"
#include "wasm/text/wat_num.h"

/* --- lanes: a scalar is a vector of one lane --- */

struct shape {
    const char *word;
    uint32_t type;
    unsigned bits, lanes;
    bool is_float;
};

static const struct shape scalars[] = {
    {"i32.const", WASM_I32, 32, 1, false},
    {"i64.const", WASM_I64, 64, 1, false},
    {"f32.const", WASM_F32, 32, 1, true},
    {"f64.const", WASM_F64, 64, 1, true},
    {NULL},
};

static const struct shape vectors[] = {
    {"i8x16", WASM_V128, 8, 16, false},
    {"i16x8", WASM_V128, 16, 8, false},
    {"i32x4", WASM_V128, 32, 4, false},
    {"i64x2", WASM_V128, 64, 2, false},
    {"f32x4", WASM_V128, 32, 4, true},
    {"f64x2", WASM_V128, 64, 2, true},
    {NULL},
};

static const struct shape *find_shape(const struct wat_text *t, uint32_t i,
                                      const struct shape *table) {
    for (; table->word; table++)
        if (wat_is(t, &t->tokens[i], table->word))
            return table;
    return NULL;
}

/* The shape of the numeric constant at '(' token i; *first is the token of its first number. */
static const struct shape *shape_at(const struct wat_text *t, uint32_t i, uint32_t *first) {
    if (wat_is(t, &t->tokens[i + 1], "v128.const")) {
        *first = i + 3;
        return find_shape(t, i + 2, vectors);
    }
    *first = i + 2;
    return find_shape(t, i + 1, scalars);
}

static void put_lane(struct wasm_value *v, const struct shape *s, unsigned lane, uint64_t bits) {
    for (unsigned byte = 0; byte < s->bits / 8; byte++)
        v->v128[lane * s->bits / 8 + byte] = (uint8_t)(bits >> 8 * byte);
}

static uint64_t get_lane(const struct wasm_value *v, const struct shape *s, unsigned lane) {
    uint64_t bits = 0;
    for (unsigned byte = 0; byte < s->bits / 8; byte++)
        bits |= (uint64_t)v->v128[lane * s->bits / 8 + byte] << 8 * byte;
    return bits;
}

/* Scalars share the union with v128, but have the byte order of the CPU: converts to lane order. */
static void scalar_to_lanes(struct wasm_value *v) {
    if (v->type == WASM_I32 || v->type == WASM_F32)
        put_lane(v, &scalars[0], 0, v->f32);
    else if (v->type == WASM_I64 || v->type == WASM_F64)
        put_lane(v, &scalars[1], 0, v->f64);
}

static void lanes_to_scalar(struct wasm_value *v) {
    if (v->type == WASM_I32 || v->type == WASM_F32)
        v->f32 = (uint32_t)get_lane(v, &scalars[0], 0);
    else if (v->type == WASM_I64 || v->type == WASM_F64)
        v->f64 = get_lane(v, &scalars[1], 0);
}

static bool wast_value_read_number(const struct wat_text *t, uint32_t i, const struct shape *s,
                                   uint64_t *ret) {
    const struct wat_token *tok = &t->tokens[i];
    if (tok->kind != WAT_ATOM)
        return false;
    const char *text = t->src + tok->pos;
    return (s->is_float ? wat_float(text, tok->len, s->bits, ret)
                        : wat_int(text, tok->len, s->bits, ret)) == WAT_NUM_OK;
}

static bool read_lanes(const struct wat_text *t, uint32_t i, struct wasm_value *ret) {
    uint32_t first;
    const struct shape *s = shape_at(t, i, &first);
    if (!s || t->tokens[i].link != first + s->lanes)
        return false;
    *ret = (struct wasm_value){.type = s->type};
    for (unsigned lane = 0; lane < s->lanes; lane++) {
        uint64_t bits;
        if (!wast_value_read_number(t, first + lane, s, &bits))
            return false;
        put_lane(ret, s, lane, bits);
    }
    lanes_to_scalar(ret);
    return true;
}

/* --- references --- */

static const struct {
    const char *word;
    uint32_t type;
} null_types[] = {
    {"func", WASM_FUNCREF},
    {"extern", WASM_EXTERNREF},
    {"any", WASM_ANYREF},
    {"exn", WASM_EXNREF},
    {"none", WASM_NULLREF},
    {"nofunc", WASM_NULLFUNCREF},
    {"noextern", WASM_NULLEXTERNREF},
    {"noexn", WASM_NULLEXNREF},
    {"eq", WASM_ABSTRACT_REF(0x6du)},
    {"i31", WASM_ABSTRACT_REF(0x6cu)},
    {"struct", WASM_ABSTRACT_REF(0x6bu)},
    {"array", WASM_ABSTRACT_REF(0x6au)},
};

static bool read_null(const struct wat_text *t, uint32_t i, struct wasm_value *ret) {
    *ret = (struct wasm_value){.type = WASM_NULLREF};
    for (size_t k = 0; k < sizeof(null_types) / sizeof(*null_types); k++)
        if (wat_is(t, &t->tokens[i + 2], null_types[k].word))
            ret->type = null_types[k].type;
    return true;
}

static bool read_host(const struct wat_text *t, uint32_t i, uint32_t type, struct wasm_value *ret) {
    const struct wat_token *tok = &t->tokens[i + 2];
    uint64_t handle;
    if (tok->kind != WAT_ATOM ||
        wat_unsigned(t->src + tok->pos, tok->len, UINT32_MAX, &handle) != WAT_NUM_OK)
        return false;
    *ret = wasm_host_ref(handle);
    ret->type = type;
    return true;
}

bool wast_constant(const struct wat_text *t, uint32_t i, struct wasm_value *ret) {
    const struct wat_token *word = &t->tokens[i + 1];
    if (t->tokens[i].kind != WAT_LPAR)
        return false;
    if (wat_is(t, word, "ref.null"))
        return read_null(t, i, ret);
    if (wat_is(t, word, "ref.extern"))
        return read_host(t, i, WASM_EXTERNREF, ret);
    if (wat_is(t, word, "ref.host"))
        return read_host(t, i, WASM_ANYREF, ret);
    return read_lanes(t, i, ret);
}

/* --- patterns --- */

static bool is_nan(uint64_t bits, unsigned width, bool canonical) {
    uint64_t infinity = width == 32 ? 0x7f800000u : 0x7ff0000000000000u;
    uint64_t quiet = width == 32 ? 0x400000u : 0x8000000000000u;
    uint64_t magnitude = bits & ~(1ull << (width - 1));
    if (canonical)
        return magnitude == (infinity | quiet);
    return (magnitude & (infinity | quiet)) == (infinity | quiet);
}

bool wast_is_canonical_nan(const struct wasm_value *v) {
    return v->type == WASM_F32 ? is_nan(v->f32, 32, true)
                               : v->type == WASM_F64 && is_nan(v->f64, 64, true);
}

bool wast_is_arithmetic_nan(const struct wasm_value *v) {
    return v->type == WASM_F32 ? is_nan(v->f32, 32, false)
                               : v->type == WASM_F64 && is_nan(v->f64, 64, false);
}

static bool lane_matches(const struct wat_text *t, uint32_t i, const struct shape *s,
                         uint64_t bits) {
    uint64_t wanted;
    if (s->is_float && wat_is(t, &t->tokens[i], "nan:canonical"))
        return is_nan(bits, s->bits, true);
    if (s->is_float && wat_is(t, &t->tokens[i], "nan:arithmetic"))
        return is_nan(bits, s->bits, false);
    return wast_value_read_number(t, i, s, &wanted) && wanted == bits;
}

static bool lanes_match(const struct wat_text *t, uint32_t i, const struct wasm_value *v) {
    uint32_t first;
    const struct shape *s = shape_at(t, i, &first);
    if (!s || s->type != v->type || t->tokens[i].link != first + s->lanes)
        return false;
    struct wasm_value copy = *v;
    scalar_to_lanes(&copy);
    for (unsigned lane = 0; lane < s->lanes; lane++)
        if (!lane_matches(t, first + lane, s, get_lane(&copy, s, lane)))
            return false;
    return true;
}

enum hierarchy { IS_FUNC, IS_EXTERN, IS_EXN, IS_ANY };

/* The type hierarchy of a reference type. Only function types are not abstract. */
static enum hierarchy hierarchy_of(uint32_t type) {
    if (!(type & WASM_ABSTRACT))
        return IS_FUNC;
    switch (type | WASM_NULLABLE) {
    case WASM_EXTERNREF:
    case WASM_NULLEXTERNREF:
        return IS_EXTERN;
    case WASM_EXNREF:
    case WASM_NULLEXNREF:
        return IS_EXN;
    case WASM_FUNCREF:
    case WASM_NULLFUNCREF:
        return IS_FUNC;
    default:
        return IS_ANY;
    }
}

static const struct {
    const char *word;
    enum hierarchy hierarchy;
} ref_patterns[] = {
    {"ref.func", IS_FUNC},  {"ref.extern", IS_EXTERN}, {"ref.exn", IS_EXN},
    {"ref.any", IS_ANY},    {"ref.eq", IS_ANY},        {"ref.i31", IS_ANY},
    {"ref.struct", IS_ANY}, {"ref.array", IS_ANY},     {"ref.host", IS_ANY},
};

static bool reference_matches(const struct wat_text *t, uint32_t i, const struct wasm_value *v) {
    const struct wat_token *word = &t->tokens[i + 1];
    if (!(v->type & WASM_REF))
        return false;
    if (wat_is(t, word, "ref.null"))
        return v->ref == 0;
    for (size_t k = 0; k < sizeof(ref_patterns) / sizeof(*ref_patterns); k++) {
        if (!wat_is(t, word, ref_patterns[k].word))
            continue;
        struct wasm_value wanted;
        bool exact = t->tokens[i + 2].kind == WAT_ATOM;
        return v->ref != 0 && hierarchy_of(v->type) == ref_patterns[k].hierarchy &&
               (!exact || (read_host(t, i, v->type, &wanted) && wanted.ref == v->ref));
    }
    return false;
}

bool wast_matches(const struct wat_text *t, uint32_t i, const struct wasm_value *v) {
    if (t->tokens[i].kind != WAT_LPAR)
        return false;
    if (!wat_is(t, &t->tokens[i + 1], "either"))
        return lanes_match(t, i, v) || reference_matches(t, i, v);
    for (uint32_t k = i + 2; k < t->tokens[i].link; k = t->tokens[k].link + 1)
        if (t->tokens[k].kind != WAT_LPAR)
            return false;
        else if (lanes_match(t, k, v) || reference_matches(t, k, v))
            return true;
    return false;
}
