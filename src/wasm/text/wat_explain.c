#include "wasm/text/wat_explain.h"

#include <string.h>

#include "base/banned.h"
#include "wasm/opcode.h"

/* Instructions that convert one number type to another. */
static const struct {
    uint32_t have, want;
    const char *how;
} conversions[] = {
    {WASM_I64, WASM_I32, "`i32.wrap_i64`"},
    {WASM_I32, WASM_I64, "`i64.extend_i32_s` (or `_u`)"},
    {WASM_F64, WASM_F32, "`f32.demote_f64`"},
    {WASM_F32, WASM_F64, "`f64.promote_f32`"},
    {WASM_F32, WASM_I32, "`i32.trunc_sat_f32_s` (or `_u`)"},
    {WASM_F64, WASM_I32, "`i32.trunc_sat_f64_s` (or `_u`)"},
    {WASM_F32, WASM_I64, "`i64.trunc_sat_f32_s` (or `_u`)"},
    {WASM_F64, WASM_I64, "`i64.trunc_sat_f64_s` (or `_u`)"},
    {WASM_I32, WASM_F32, "`f32.convert_i32_s` (or `_u`)"},
    {WASM_I64, WASM_F32, "`f32.convert_i64_s` (or `_u`)"},
    {WASM_I32, WASM_F64, "`f64.convert_i32_s` (or `_u`)"},
    {WASM_I64, WASM_F64, "`f64.convert_i64_s` (or `_u`)"},
};

static const char *conversion(uint32_t have, uint32_t want) {
    for (size_t i = 0; i < sizeof(conversions) / sizeof(*conversions); i++)
        if (conversions[i].have == have && conversions[i].want == want)
            return conversions[i].how;
    return NULL;
}

/* Lists types as "i32, i64"; "nothing" if there are none. */
static void list_types(const uint32_t *types, unsigned n, char *out, size_t size) {
    size_t used = 0;
    snprintf(out, size, "nothing");
    for (unsigned i = 0; i < n && used < size; i++) {
        char name[40];
        wasm_type_name(types[i], name, sizeof(name));
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? ", " : "",
                                 types[i] ? name : "any");
    }
}

static const char *op_text(const struct wasm_diag *d) {
    return d->op < OP_COUNT ? wasm_ops[d->op].text : "this";
}

/*
 * Finds a conversion for the lowest operand with a wrong number type. Both lists end at the top of
 * the stack.
 */
static const char *find_conversion(const struct wasm_diag *d) {
    unsigned n = d->n_expected < d->n_found ? d->n_expected : d->n_found;
    for (unsigned i = n; i > 0; i--) {
        uint32_t want = d->expected[d->n_expected - i], have = d->found[d->n_found - i];
        if (want != have && have)
            return conversion(have, want);
    }
    return NULL;
}

/* True for an error at the end of a block, where values are left over or missing. */
static bool is_end(const struct wasm_diag *d) {
    return d->op == OP_END || d->op == OP_ELSE;
}

static bool advise_end(const struct wasm_diag *d, const char *want, const char *have, char *hint,
                       size_t size) {
    if (d->n_found > d->n_expected)
        snprintf(hint, size,
                 "the block or function must end with %s, but %s is on the stack: `drop` "
                 "the extra values, or declare them with `(result …)`",
                 want, have);
    else
        snprintf(hint, size, "the block or function must end with %s, but %s is on the stack", want,
                 have);
    return true;
}

/* Advice for each validation error, found by the start of its message. */
static const struct {
    const char *message, *advice;
} rules[] = {
    {"type mismatch: values remain",
     "remove the extra values from the stack with `drop`, or declare them "
     "as results of the block or function: `(result i32)`"},
    {"type mismatch: if without else",
     "an if with a result needs an else: `(else …)` with the same "
     "types"},
    {"type mismatch: select needs", "both alternatives must have the same type"},
    {"unknown local",
     "local indices start at 0 with the parameters; a name, `(local $x i32)`, is safer"},
    {"unknown memory", "declare one: `(memory 1)`, in pages of 64 KiB"},
    {"unknown table", "declare one: `(table 1 funcref)`"},
    {"unknown function",
     "function indices start at 0 with the imported functions; a name is safer"},
    {"unknown label", "label 0 is the innermost block; a name, `(block $l …)`, is safer"},
    {"immutable global", "declare the global mutable: `(global $g (mut i32) (i32.const 0))`"},
    {"undeclared function reference",
     "declare that the function is referenced: `(elem declare func $f)`"},
    {"constant expression required",
     "only constants, `global.get`, `ref.func`, `ref.null` and integer "
     "add, sub, mul are allowed here"},
    {"start function", "a start function must have no parameters and no results"},
    {"alignment must not be larger", "leave `align=` out: it is only advice to the CPU"},
    {"duplicate export name", "every export needs a name of its own"},
};

static bool advise_rule(const struct wasm_diag *d, char *hint, size_t size) {
    for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
        if (strncmp(d->message, rules[i].message, strlen(rules[i].message)) != 0)
            continue;
        snprintf(hint, size, "%s", rules[i].advice);
        return true;
    }
    return false;
}

bool wat_advise(const struct wasm_diag *d, char *hint, size_t size) {
    char want[100], have[100];
    if (advise_rule(d, hint, size))
        return true;
    if (d->func == UINT32_MAX || d->n_expected + d->n_found == 0)
        return false;
    list_types(d->expected, d->n_expected, want, sizeof(want));
    list_types(d->found, d->n_found, have, sizeof(have));
    const char *how = find_conversion(d);
    if (how && !is_end(d))
        snprintf(hint, size, "`%s` needs %s on the stack, but %s is there: convert with %s",
                 op_text(d), want, have, how);
    else if (how)
        snprintf(hint, size,
                 "the block or function must end with %s, but %s is on the stack: convert with %s",
                 want, have, how);
    else if (is_end(d))
        return advise_end(d, want, have, hint, size);
    else
        snprintf(hint, size, "`%s` needs %s on the stack, but %s is there", op_text(d), want, have);
    return true;
}

/* The length of the word at a source position, so that the carets underline it. */
static uint32_t word_length(const char *src, size_t len, uint32_t pos) {
    uint32_t n = 0;
    while (pos + n < len && !strchr(" \t\r\n()\";", src[pos + n]))
        n++;
    return n ? n : 1;
}

void wat_explain(const struct wasm_diag *diag, const struct wat_module *m, const char *src,
                 size_t len, struct wat_diags *diags) {
    uint32_t pos = wat_locate(m, (uint32_t)diag->offset);
    char hint[200];
    wat_error(diags, pos, word_length(src, len, pos), "%s", diag->message);
    if (wat_advise(diag, hint, sizeof(hint)))
        wat_hint(diags, "%s", hint);
}
