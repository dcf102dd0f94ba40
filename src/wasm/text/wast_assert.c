/* The assertions of a wast script. */
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "wasm/text/value_text.h"
#include "wasm/text/wast.h"
#include "wasm/text/wast_inner.h"
#include "wasm/text/wast_value.h"
#include "wasm/wasm.h"

static bool wrong_result(struct runner *r, uint32_t which, uint32_t pattern) {
    struct buf got DEFER(buf_done) = BUF(200);
    char type[40];
    uint32_t from = wast_token(r, pattern)->pos,
             to = wast_token(r, wast_token(r, pattern)->link)->pos + 1;
    wasm_type_name(r->values[which].type, type, sizeof(type));
    bool printed = value_print(&r->values[which], &got);
    return wast_fail(r, "result %u is %s %s, expected %.*s", which, type, printed ? got.data : "?",
                     (int)(to - from < 150 ? to - from : 150), r->t->src + from);
}

bool wast_assert_return(struct runner *r, uint32_t i) {
    struct outcome out = wast_act(r, i + 2);
    if (!wast_is_done(r, out))
        return false;
    uint32_t pattern = wast_token(r, i + 2)->link + 1, n = 0;
    for (; wast_token(r, pattern)->kind == WAT_LPAR;
         pattern = wast_token(r, pattern)->link + 1, n++) {
        if (n >= out.count)
            return wast_fail(r, "the call returned %u results, expected more", out.count);
        if (!wast_matches(r->t, pattern, &r->values[n]))
            return wrong_result(r, n, pattern);
    }
    return n == out.count ||
           wast_fail(r, "the call returned %u results, expected %u", out.count, n);
}

static bool assert_nan(struct runner *r, uint32_t i, bool (*matches)(const struct wasm_value *)) {
    struct outcome out = wast_act(r, i + 2);
    if (!wast_is_done(r, out))
        return false;
    return (out.count == 1 && matches(&r->values[0])) ||
           wast_fail(r, "the result is not a NaN of the expected kind");
}

bool wast_assert_canonical_nan(struct runner *r, uint32_t i) {
    return assert_nan(r, i, wast_is_canonical_nan);
}

bool wast_assert_arithmetic_nan(struct runner *r, uint32_t i) {
    return assert_nan(r, i, wast_is_arithmetic_nan);
}

/* True if one text of a trap starts with the other: scripts may name an index that we leave out. */
static bool same_text(struct runner *r, uint32_t i, const char *text) {
    struct buf wanted DEFER(buf_done) = BUF(1000);
    if (wast_token(r, i)->kind != WAT_STRING || !wat_string(r->t, wast_token(r, i), &wanted) ||
        !wanted.len)
        return wast_fail(r, "expected a text in quotes");
    size_t n = strlen(text) < wanted.len ? strlen(text) : wanted.len;
    return !memcmp(text, wanted.data, n) ||
           wast_fail(r, "trap '%s', expected '%s'", text, wanted.data);
}

static struct outcome run_module_or_action(struct runner *r, uint32_t i) {
    struct wasm_module *m;
    uint32_t instance;
    if (!(wast_token(r, i)->kind == WAT_LPAR && wast_is(r, i + 1, "module")))
        return wast_act(r, i);
    if (wast_load_module(r, i, &m) != STAGE_LOADED)
        return (struct outcome){.ending = ENDED_ERROR};
    return wast_instantiate(r, m, &instance);
}

bool wast_assert_trap(struct runner *r, uint32_t i) {
    struct outcome out = run_module_or_action(r, i + 2);
    if (out.ending == ENDED_TRAP)
        return same_text(r, wast_token(r, i + 2)->link + 1, out.text);
    return out.ending == ENDED_ERROR ? false : wast_fail(r, "the call did not trap");
}

bool wast_assert_exception(struct runner *r, uint32_t i) {
    struct outcome out = wast_act(r, i + 2);
    if (out.ending == ENDED_THROWN)
        return true;
    return wast_is_done(r, out) ? wast_fail(r, "no exception was thrown") : false;
}

/* For assertions about a module: it must stop at exactly this stage. */
static bool assert_stage(struct runner *r, uint32_t i, enum stage wanted, const char *word) {
    struct wasm_module *m;
    if (wast_token(r, i + 2)->kind != WAT_LPAR || !wast_is(r, i + 3, "module"))
        return wast_fail(r, "expected `(module …)`");
    enum stage stage = wast_load_module(r, i + 2, &m);
    if (stage == wanted)
        return true;
    if (stage == STAGE_LOADED)
        return wast_fail(r, "the module was accepted, expected %s", word);
    char why[300];
    snprintf(why, sizeof(why), "%s", r->why);
    return wast_fail(r, "the module was refused for another reason, expected %s: %s", word, why);
}

bool wast_assert_malformed(struct runner *r, uint32_t i) {
    return assert_stage(r, i, STAGE_MALFORMED, "malformed");
}

bool wast_assert_invalid(struct runner *r, uint32_t i) {
    return assert_stage(r, i, STAGE_INVALID, "invalid");
}

/* In WebAssembly 1.0 a data or element segment that does not fit is a link error too. */
bool wast_assert_unlinkable(struct runner *r, uint32_t i) {
    struct wasm_module *m;
    uint32_t instance = 0;
    if (wast_token(r, i + 2)->kind != WAT_LPAR || !wast_is(r, i + 3, "module"))
        return wast_fail(r, "expected `(module …)`");
    if (wast_load_module(r, i + 2, &m) != STAGE_LOADED)
        return false;
    struct outcome out = wast_instantiate(r, m, &instance);
    if (out.ending == ENDED_ERROR && !instance)
        return true;
    if (r->options->spec < 20 && out.ending == ENDED_TRAP)
        return true;
    return wast_fail(r, "the module was linked, expected a link error");
}
