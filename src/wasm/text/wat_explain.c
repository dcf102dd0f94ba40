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

/* Lists types as "i32 i64". */
static void bare_types(const uint32_t *types, unsigned n, char *out, size_t size) {
    size_t used = 0;
    out[0] = '\0';
    for (unsigned i = 0; i < n && used < size; i++) {
        char name[40];
        wasm_type_name(types[i], name, sizeof(name));
        used += (size_t)snprintf(out + used, size - used, "%s%s", i ? " " : "",
                                 types[i] ? name : "any");
    }
}

/* Lists types as "(i32 i64)"; "nothing" if there are none. */
static void list_types(const uint32_t *types, unsigned n, char *out, size_t size) {
    char bare[120];
    bare_types(types, n, bare, sizeof(bare));
    snprintf(out, size, "%s%s%s", n ? "(" : "nothing", bare, n ? ")" : "");
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

/* How a message names the block that ends. */
static const char *block_name(const struct wasm_diag *d) {
    if (d->block == OP_CALL)
        return "function";
    return d->block == OP_ELSE ? "if" : d->block < OP_COUNT ? wasm_ops[d->block].text : "block";
}

/* The number of values that lie on the stack beyond those that the block must end with. */
static int left_over(const struct wasm_diag *d) {
    return d->n_found > d->n_expected ? d->n_found - d->n_expected : 0;
}

static void advise_end(const struct wasm_diag *d, char *hint, size_t size) {
    char types[120];
    bare_types(d->found, d->n_found, types, sizeof(types));
    if (left_over(d) && d->n_expected == 0 && d->block == OP_CALL)
        snprintf(hint, size, "declare the result, `(func … (result %s) …)`, or `drop` it", types);
    else if (left_over(d) && d->n_expected == 0)
        snprintf(hint, size, "declare the result, `(%s (result %s) …)`, or `drop` it",
                 block_name(d), types);
    else if (left_over(d))
        snprintf(hint, size, "`drop` the values that are not used: %d too many", left_over(d));
    else if (d->n_found < d->n_expected)
        snprintf(hint, size, "end the %s with an instruction that leaves the missing value",
                 block_name(d));
}

/* Says which operands are missing: the last ones if those that are there fit the first ones. */
static void advise_missing(const struct wasm_diag *d, char *hint, size_t size) {
    unsigned missing = d->n_expected - d->n_found;
    bool first_given = true;
    for (unsigned i = 0; i < d->n_found; i++)
        first_given &= d->found[i] == d->expected[i] || d->found[i] == 0;
    char list[120];
    list_types(d->expected + (first_given ? d->n_found : 0), missing, list, sizeof(list));
    snprintf(hint, size, "missing: %s", list);
}

/* Advice for each validation error, found by the start of its message. */
static const struct {
    const char *message, *advice;
} rules[] = {
    {"type mismatch: if without else",
     "an if with a result needs an else: `(else …)` with the same "
     "types"},
    {"type mismatch in constant expression",
     "give a value of the declared type: `(global $g (mut i32) (i32.const 0))`"},
    {"type mismatch: drop takes", "nothing is on the stack here: remove the drop"},
    {"immutable array", "declare its elements mutable: `(array (mut i32))`"},
    {"immutable field", "declare the field mutable: `(field (mut i32))`"},
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

/* True if the diagnosis lists operands, or values at the end of a block. */
static bool has_types(const struct wasm_diag *d) {
    return d->func != UINT32_MAX && d->n_expected + d->n_found > 0;
}

bool wat_advise(const struct wasm_diag *d, char *hint, size_t size) {
    hint[0] = '\0';
    if (advise_rule(d, hint, size))
        return true;
    if (!has_types(d))
        return false;
    const char *how = d->n_found == d->n_expected ? find_conversion(d) : NULL;
    if (how)
        snprintf(hint, size, "convert with %s", how);
    else if (is_end(d))
        advise_end(d, hint, size);
    else if (d->n_found < d->n_expected)
        advise_missing(d, hint, size);
    return hint[0] != '\0';
}

void wat_describe(const struct wasm_diag *d, const char *subject, char *text, size_t size) {
    char want[120], have[120];
    if (!has_types(d)) {
        snprintf(text, size, "%s", d->message);
        return;
    }
    list_types(d->expected, d->n_expected, want, sizeof(want));
    list_types(d->found, d->n_found, have, sizeof(have));
    if (is_end(d))
        snprintf(text, size, "type mismatch: the %s must end with %s, %s is on the stack",
                 block_name(d), want, have);
    else if (d->n_found < d->n_expected)
        snprintf(text, size, "type mismatch: `%s` takes %s, %u given",
                 subject ? subject : op_text(d), want, d->n_found);
    else
        snprintf(text, size, "type mismatch: `%s` takes %s, %s given",
                 subject ? subject : op_text(d), want, have);
}

/* The length of the word at a source position, so that the carets underline it. */
static uint32_t word_length(const char *src, size_t len, uint32_t pos) {
    uint32_t n = 0;
    while (pos + n < len && !strchr(" \t\r\n()\";", src[pos + n]))
        n++;
    return n ? n : 1;
}

/* The instruction at a source position, with the name or number after it: "call $add". */
static void subject_at(const char *src, size_t len, uint32_t pos, char *out, size_t size) {
    uint32_t n = word_length(src, len, pos), next = pos + n;
    while (next < len && src[next] == ' ')
        next++;
    if (next < len && next > pos + n &&
        (src[next] == '$' || (src[next] >= '0' && src[next] <= '9')))
        n = next + word_length(src, len, next) - pos;
    snprintf(out, size, "%.*s", (int)(n < size - 1 ? n : size - 1), src + pos);
}

/* The last instruction with too many operands before `pos`, or NULL. */
static const struct wat_surplus *surplus_before(const struct wat_module *m, uint32_t pos) {
    const struct wat_surplus *found = NULL;
    for (uint32_t i = 0; i < m->surplus_count; i++)
        if (m->surplus[i].pos < pos && (!found || m->surplus[i].pos > found->pos))
            found = &m->surplus[i];
    return found;
}

void wat_explain(const struct wasm_diag *diag, const struct wat_module *m, const char *src,
                 size_t len, struct wat_diags *diags) {
    uint32_t pos = wat_locate(m, (uint32_t)diag->offset);
    char text[220], hint[200], subject[80];
    subject_at(src, len, pos, subject, sizeof(subject));
    wat_describe(diag, subject, text, sizeof(text));
    wat_error(diags, pos, word_length(src, len, pos), "%s", text);
    const struct wat_surplus *s =
        has_types(diag) && is_end(diag) && left_over(diag) ? surplus_before(m, pos) : NULL;
    if (s) {
        subject_at(src, len, s->pos, subject, sizeof(subject));
        wat_hint(diags, "`%s` at line %u takes %u operand%s, %u given", subject,
                 wat_line_at(src, len, s->pos).line, s->takes, s->takes == 1 ? "" : "s", s->given);
    } else if (wat_advise(diag, hint, sizeof(hint))) {
        wat_hint(diags, "%s", hint);
    }
}
