#include "wasm/text/wast.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "wasm/text/value_text.h"
#include "wasm/text/wast_inner.h"
#include "wasm/text/wast_value.h"
#include "wasm/text/wat.h"
#include "wasm/wasm.h"

/* More fuel than any script needs. A call that never ends runs out of fuel and fails. */
static const uint64_t FUEL_PER_CALL = 200000000;
/* --- reporting --- */

/* Records the reason and returns false. */

bool wast_fail(struct runner *r, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(r->why, sizeof(r->why), fmt, ap);
    va_end(ap);
    return false;
}

static void report(struct runner *r, const struct wat_token *tok) {
    struct wat_line l = wat_line_at(r->t->src, r->t->len, tok->pos);
    int len = (int)(tok->len < 60 ? tok->len : 60);
    bool told = buf_addf(r->report, "%s:%u: %.*s: %s\n", r->name, l.line, len, r->t->src + tok->pos,
                         r->why);
    (void)told; /* when the report is full, failures are still counted */
}

const struct wat_token *wast_token(const struct runner *r, uint32_t i) {
    return &r->t->tokens[i];
}

bool wast_is(const struct runner *r, uint32_t i, const char *word) {
    return wat_is(r->t, wast_token(r, i), word);
}

/* --- suspension --- */

static uint64_t next_random(struct runner *r) {
    r->random ^= r->random << 13;
    r->random ^= r->random >> 7;
    r->random ^= r->random << 17;
    return r->random;
}

static struct wasm_module *find_module(void *ctx, const uint8_t hash[32]) {
    struct runner *r = ctx;
    for (uint32_t i = 0; i < r->module_count; i++) {
        uint8_t own[32];
        wasm_module_hash(r->modules[i], own);
        if (memcmp(own, hash, sizeof(own)) == 0)
            return r->modules[i];
    }
    return NULL;
}

/* Captures the store as bytes and continues in a new store made from them. */
static bool capture_and_resume(struct runner *r) {
    struct buf state DEFER(buf_done) = BUF(MAX_STATE);
    struct wasm_modules modules = {.find = find_module, .ctx = r};
    struct wasm_store *resumed;
    struct err err;
    if (wasm_capture(r->store, &state, &err) < 0)
        return wast_fail(r, "cannot capture the store: %s", err.text);
    if (wasm_resume(r->engine, state.data, state.len, &modules, &resumed, &err) < 0)
        return wast_fail(r, "cannot resume the store: %s", err.text);
    wasm_store_free(r->store);
    r->store = resumed;
    r->result->captures++;
    return true;
}

/* A random amount of fuel, mostly very small: most functions of the suites use less than ten. */
static uint64_t random_slice(struct runner *r) {
    uint64_t bits = next_random(r) % 4 ? 2 : 10;
    return 1 + (next_random(r) >> 20) % (1ull << bits);
}

/* --- running --- */

static void keep_values(struct runner *r, const struct wasm_event *ev, struct outcome *ret) {
    ret->count = ev->n_values < MAX_VALUES ? ev->n_values : MAX_VALUES;
    if (ret->count)
        memcpy(r->values, ev->values, ret->count * sizeof(*r->values));
}

static bool answer_host(struct runner *r) {
    struct err err;
    if (wasm_answer(r->store, NULL, 0, &err) < 0)
        return wast_fail(r, "cannot answer a host call: %s", err.text);
    return true;
}

/*
 * Runs the call in progress to its end. The only host functions are the print functions of
 * spectest, which return nothing.
 */
static struct outcome drive(struct runner *r) {
    uint32_t stops = r->suspending ? CAPTURES_PER_CALL : 0;
    bool host_seen = false;
    for (;;) {
        const struct wasm_event *ev = wasm_run(r->store, stops ? random_slice(r) : UINT64_MAX);
        struct outcome out = {.ending = ENDED_ERROR};
        switch (ev->outcome) {
        case WASM_DONE:
            out.ending = ENDED_DONE;
            keep_values(r, ev, &out);
            return out;
        case WASM_TRAPPED:
            return (struct outcome){.ending = ENDED_TRAP, .text = ev->text};
        case WASM_THROWN:
            return (struct outcome){.ending = ENDED_THROWN};
        case WASM_SLICE:
            stops--;
            if (!capture_and_resume(r))
                return out;
            break;
        case WASM_HOST:
            /* A store captured while a host call is pending asks for the same call again. */
            if (stops && !host_seen ? !capture_and_resume(r) : !answer_host(r))
                return out;
            host_seen = stops && !host_seen;
            break;
        case WASM_OUT_OF_FUEL:
            wast_fail(r, "the call ran out of fuel");
            return wasm_cancel(r->store), out;
        case WASM_IDLE:
            wast_fail(r, "no call is in progress");
            return out;
        }
    }
}

static void refuel(struct runner *r) {
    uint64_t left = wasm_fuel_left(r->store);
    uint64_t wanted = r->options->fuel ? r->options->fuel : FUEL_PER_CALL;
    if (left < wanted)
        wasm_fuel_add(r->store, wanted - left);
}

/* --- modules --- */

static bool add_module(struct runner *r, struct wasm_module *m) {
    if (r->module_count == r->module_room) {
        uint32_t room = r->module_room ? r->module_room * 2 : 16;
        struct wasm_module **list = realloc(r->modules, room * sizeof(*list));
        if (!list)
            return false;
        r->modules = list;
        r->module_room = room;
    }
    r->modules[r->module_count++] = m;
    return true;
}

static enum stage load_binary(struct runner *r, const struct buf *bytes, struct wasm_module **ret) {
    struct wasm_diag diag = {0};
    struct wasm_module *m;
    if (wasm_module_load(r->engine, bytes->len ? bytes->data : "", bytes->len,
                         (enum wasm_level)r->options->spec, &m, &diag) == 0) {
        if (!add_module(r, m)) {
            wasm_module_unref(m);
            return wast_fail(r, "out of memory"), STAGE_REFUSED;
        }
        return *ret = m, STAGE_LOADED;
    }
    wast_fail(r, "%s (at byte %zu)", diag.message, diag.offset);
    return diag.fault == WASM_MALFORMED ? STAGE_MALFORMED
           : diag.fault == WASM_INVALID ? STAGE_INVALID
                                        : STAGE_REFUSED;
}

static enum stage load_text(struct runner *r, struct wat_text *t, uint32_t first, uint32_t end,
                            struct wasm_module **ret) {
    struct wat_diags diags = {0};
    struct wat_module m DEFER(wat_module_done);
    if (wat_encode_tokens(t, first, end, &m, &diags) < 0) {
        wast_fail(r, "%s", diags.list[0].text);
        return STAGE_MALFORMED;
    }
    return load_binary(r, &m.binary, ret);
}

/* Joins the strings from token i up to `)`. */
static bool join_strings(struct runner *r, uint32_t i, const char *between, struct buf *out) {
    for (; wast_token(r, i)->kind == WAT_STRING; i++)
        if (!wat_string(r->t, wast_token(r, i), out) || !buf_addf(out, "%s", between))
            return wast_fail(r, "out of memory");
    return wast_token(r, i)->kind == WAT_RPAR ||
           wast_fail(r, "expected only strings in quotes before `)`");
}

static enum stage load_quoted(struct runner *r, uint32_t i, struct wasm_module **ret) {
    struct buf source DEFER(buf_done) = BUF(MAX_MODULE);
    struct wat_text t;
    struct wat_diags diags = {0};
    if (!join_strings(r, i, "\n", &source))
        return STAGE_REFUSED;
    if (wat_text_init(&t, source.len ? source.data : "", source.len, r->options->spec, &diags) < 0)
        return wast_fail(r, "%s", diags.list[0].text), STAGE_MALFORMED;
    enum stage stage = load_text(r, &t, 0, t.count, ret);
    wat_text_done(&t);
    return stage;
}

/* The parts of `(module definition? $name? …)` at '(' token i. */
struct module_form {
    uint32_t sym;  /* symbol + 1, or 0 without a name */
    uint32_t body; /* first token of the contents */
    bool is_definition, is_instance;
};

static struct module_form module_form(const struct runner *r, uint32_t i) {
    struct module_form f = {.body = i + 2};
    f.is_definition = wast_is(r, f.body, "definition");
    f.is_instance = wast_is(r, f.body, "instance");
    f.body += f.is_definition || f.is_instance;
    if (wast_token(r, f.body)->kind == WAT_ID)
        f.sym = wast_token(r, f.body++)->link + 1;
    return f;
}

enum stage wast_load_module(struct runner *r, uint32_t i, struct wasm_module **ret) {
    struct module_form f = module_form(r, i);
    struct buf bytes DEFER(buf_done) = BUF(MAX_MODULE);
    if (wast_is(r, f.body, "quote"))
        return load_quoted(r, f.body + 1, ret);
    if (!wast_is(r, f.body, "binary"))
        return load_text(r, r->t, f.body, wast_token(r, i)->link, ret);
    if (!join_strings(r, f.body + 1, "", &bytes))
        return STAGE_REFUSED;
    return load_binary(r, &bytes, ret);
}

/* --- names --- */

static struct named *find_named(struct runner *r, uint32_t sym) {
    if (!sym)
        return &r->last;
    for (uint32_t i = r->named_count; i > 0; i--)
        if (r->named[i - 1].sym == sym)
            return &r->named[i - 1];
    return NULL;
}

/* Finds the module that the optional name at token i refers to; *i moves past the name. */
static struct named *take_named(struct runner *r, uint32_t *i) {
    uint32_t sym = wast_token(r, *i)->kind == WAT_ID ? wast_token(r, (*i)++)->link + 1 : 0;
    struct named *n = find_named(r, sym);
    if (!n)
        wast_fail(r, "unknown module $%s", wat_sym_name(r->t, sym - 1));
    return n;
}

static bool name_it(struct runner *r, struct named what) {
    if (r->named_count == r->named_room) {
        uint32_t room = r->named_room ? r->named_room * 2 : 16;
        struct named *list = realloc(r->named, room * sizeof(*list));
        if (!list)
            return wast_fail(r, "out of memory");
        r->named = list;
        r->named_room = room;
    }
    r->named[r->named_count++] = what;
    return true;
}

static bool take_instance(struct runner *r, uint32_t *i, struct wasm_instance **ret) {
    struct named *n = take_named(r, i);
    if (!n)
        return false;
    if (!n->instance)
        return wast_fail(r, "the script has not created a module instance");
    *ret = wasm_instance_at(r->store, n->instance - 1);
    return true;
}

/*
 * Links a module and runs its start function. A link error is ENDED_ERROR with its text in r->why.
 */
struct outcome wast_instantiate(struct runner *r, struct wasm_module *m, uint32_t *instance) {
    struct wasm_instance *made;
    struct err err;
    refuel(r);
    if (wasm_instance_new(r->store, m, NULL, 0, &made, &err) < 0) {
        wast_fail(r, "%s", err.text);
        return (struct outcome){.ending = ENDED_ERROR};
    }
    *instance = wasm_instances(r->store);
    return drive(r);
}

bool wast_is_done(struct runner *r, struct outcome out) {
    if (out.ending == ENDED_TRAP)
        return wast_fail(r, "trap: %s", out.text);
    if (out.ending == ENDED_THROWN)
        return wast_fail(r, "uncaught exception");
    return out.ending == ENDED_DONE;
}

/* --- commands that are not assertions --- */

static bool make_instance(struct runner *r, struct wasm_module *m, uint32_t sym) {
    r->last = (struct named){.definition = m};
    uint32_t instance = 0;
    if (!wast_is_done(r, wast_instantiate(r, m, &instance)))
        return false;
    r->last.instance = instance;
    return !sym || name_it(r, (struct named){.sym = sym, .instance = instance, .definition = m});
}

static bool run_instance_of(struct runner *r, const struct module_form *f) {
    uint32_t i = f->body;
    struct named *n = take_named(r, &i);
    if (!n)
        return false;
    if (!n->definition)
        return wast_fail(r, "the script has not defined a module");
    return make_instance(r, n->definition, f->sym);
}

static bool run_module(struct runner *r, uint32_t i) {
    struct module_form f = module_form(r, i);
    struct wasm_module *m;
    if (f.is_instance)
        return run_instance_of(r, &f);
    if (wast_load_module(r, i, &m) != STAGE_LOADED) {
        r->last = (struct named){0};
        return false;
    }
    if (!f.is_definition)
        return make_instance(r, m, f.sym);
    r->last.definition = m;
    return !f.sym || name_it(r, (struct named){.sym = f.sym, .definition = m});
}

static bool run_register(struct runner *r, uint32_t i) {
    struct buf name DEFER(buf_done) = BUF(1 << 16);
    struct wasm_instance *instance = NULL;
    struct err err;
    uint32_t at = i + 3;
    if (wast_token(r, i + 2)->kind != WAT_STRING || !wat_string(r->t, wast_token(r, i + 2), &name))
        return wast_fail(r, "expected a name in quotes");
    if (!take_instance(r, &at, &instance))
        return false;
    if (wasm_register(r->store, name.len ? name.data : "", name.len, instance, &err) < 0)
        return wast_fail(r, "%s", err.text);
    return true;
}

/* --- actions --- */

static bool take_arguments(struct runner *r, uint32_t i, uint32_t *count) {
    for (*count = 0; wast_token(r, i)->kind == WAT_LPAR; i = wast_token(r, i)->link + 1) {
        if (*count == MAX_VALUES)
            return wast_fail(r, "too many arguments");
        if (!wast_constant(r->t, i, &r->values[(*count)++]))
            return wast_fail(r, "argument %u is not a constant", *count);
    }
    return true;
}

static struct outcome call(struct runner *r, struct wasm_extern func, uint32_t args) {
    struct outcome out = {.ending = ENDED_ERROR};
    uint32_t count;
    struct err err;
    if (!take_arguments(r, args, &count))
        return out;
    refuel(r);
    if (wasm_call(r->store, func, r->values, count, &err) < 0) {
        wast_fail(r, "%s", err.text);
        return out;
    }
    return drive(r);
}

/* Runs `(invoke $m? "name" arg*)` or `(get $m? "name")` at '(' token i. */
struct outcome wast_act(struct runner *r, uint32_t i) {
    struct outcome out = {.ending = ENDED_ERROR};
    struct buf name DEFER(buf_done) = BUF(1 << 16);
    struct wasm_instance *instance = NULL;
    struct wasm_extern x;
    uint32_t at = i + 2;
    bool is_get = wast_is(r, i + 1, "get");
    if (wast_token(r, i)->kind != WAT_LPAR || (!is_get && !wast_is(r, i + 1, "invoke")))
        return wast_fail(r, "expected `(invoke …)` or `(get …)`"), out;
    if (!take_instance(r, &at, &instance))
        return out;
    if (wast_token(r, at)->kind != WAT_STRING || !wat_string(r->t, wast_token(r, at), &name))
        return wast_fail(r, "expected a name in quotes"), out;
    if (!wasm_export(instance, name.len ? name.data : "", name.len, &x))
        return wast_fail(r, "unknown export '%.100s'", name.len ? name.data : ""), out;
    if (x.kind != (is_get ? WASM_GLOBAL : WASM_FUNC))
        return wast_fail(r,
                         "export '%.100s' is not of the requested kind: invoke needs a function, "
                         "get a global",
                         name.data),
               out;
    if (!is_get)
        return call(r, x, at + 1);
    r->values[0] = wasm_global_get(r->store, x);
    return (struct outcome){.ending = ENDED_DONE, .count = 1};
}

static bool run_action(struct runner *r, uint32_t i) {
    return wast_is_done(r, wast_act(r, i));
}

/* --- running the script --- */

static const struct command {
    const char *word;
    bool is_assertion;
    bool (*run)(struct runner *r, uint32_t i); /* i is the '(' token of the command */
} commands[] = {
    {"module", false, run_module},
    {"register", false, run_register},
    {"invoke", false, run_action},
    {"get", false, run_action},
    {"assert_return", true, wast_assert_return},
    {"assert_trap", true, wast_assert_trap},
    {"assert_invalid", true, wast_assert_invalid},
    {"assert_malformed", true, wast_assert_malformed},
    {"assert_unlinkable", true, wast_assert_unlinkable},
    {"assert_exhaustion", true, wast_assert_trap},
    {"assert_exception", true, wast_assert_exception},
    {"assert_return_canonical_nan", true, wast_assert_canonical_nan},
    {"assert_return_arithmetic_nan", true, wast_assert_arithmetic_nan},
};

static const struct command *command_at(const struct runner *r, uint32_t i) {
    for (size_t k = 0; k < sizeof(commands) / sizeof(*commands); k++)
        if (wast_token(r, i)->kind == WAT_LPAR && wast_is(r, i + 1, commands[k].word))
            return &commands[k];
    return NULL;
}

/* The first run records the fuel used so far; the second run compares it. */
static bool check_fuel(struct runner *r, uint32_t command) {
    uint64_t used = wasm_fuel_used(r->store);
    if (r->suspending)
        return command >= r->fuel_count || r->fuel[command] == used ||
               wast_fail(r, "the script used fuel %" PRIu64 " with suspension, %" PRIu64 " without",
                         used, r->fuel[command]);
    if (r->fuel_count == r->fuel_room) {
        uint32_t room = r->fuel_room ? r->fuel_room * 2 : 256;
        uint64_t *list = realloc(r->fuel, room * sizeof(*list));
        if (!list)
            return wast_fail(r, "out of memory");
        r->fuel = list;
        r->fuel_room = room;
    }
    r->fuel[r->fuel_count++] = used;
    return true;
}

static void run_command(struct runner *r, uint32_t i, uint32_t number) {
    const struct command *c = command_at(r, i);
    bool is_assertion = c && c->is_assertion;
    bool ok = c ? c->run(r, i) : wast_fail(r, "unknown script command");
    wasm_cancel(r->store);
    ok = check_fuel(r, number) && ok;
    r->result->total += is_assertion;
    r->result->passed += is_assertion && ok;
    if (ok)
        return;
    r->result->broken = r->result->broken || !is_assertion;
    report(r, wast_token(r, wast_token(r, i)->kind == WAT_LPAR ? i + 1 : i));
}

/* A script may also be the fields of one module, without `(module …)` around them. */
static void run_inline_module(struct runner *r) {
    struct wasm_module *m;
    if (load_text(r, r->t, 0, r->t->count, &m) == STAGE_LOADED && make_instance(r, m, 0))
        return;
    r->result->broken = true;
    report(r, wast_token(r, 0));
}

static void run_all(struct runner *r) {
    uint32_t number = 0;
    if (r->t->count && !command_at(r, 0)) {
        run_inline_module(r);
        return;
    }
    for (uint32_t i = 0; i < r->t->count; number++) {
        run_command(r, i, number);
        i = wast_token(r, i)->kind == WAT_LPAR ? wast_token(r, i)->link + 1 : i + 1;
    }
}

/* --- the host module "spectest" --- */

static const uint32_t print_types[][2] = {
    {0}, {WASM_I32}, {WASM_I64}, {WASM_F32}, {WASM_F64}, {WASM_I32, WASM_F32}, {WASM_F64, WASM_F64},
};
static const struct {
    const char *name;
    int params, types;
} prints[] = {
    {"print", 0, 0},     {"print_i32", 1, 1},     {"print_i64", 1, 2},     {"print_f32", 1, 3},
    {"print_f64", 1, 4}, {"print_i32_f32", 2, 5}, {"print_f64_f64", 2, 6},
};

static const struct wasm_value global_values[] = {
    {.type = WASM_I32, .i32 = 666},
    {.type = WASM_I64, .i64 = 666},
    {.type = WASM_F32, .f32 = 0x4426a666},         /* 666.6 */
    {.type = WASM_F64, .f64 = 0x4084d4cccccccccd}, /* 666.6 */
};
static const char *const global_names[] = {"global_i32", "global_i64", "global_f32", "global_f64"};

static int define_spectest(struct wasm_store *s, int spec, struct err *err) {
    for (size_t i = 0; i < sizeof(prints) / sizeof(*prints); i++) {
        struct wasm_func_type type = {.params = print_types[prints[i].types],
                                      .n_params = (uint32_t)prints[i].params};
        if (wasm_host_func(s, "spectest", prints[i].name, &type, 0, err) < 0)
            return -1;
    }
    for (size_t i = 0; i < sizeof(global_names) / sizeof(*global_names); i++)
        if (wasm_host_global(s, "spectest", global_names[i], false, global_values[i], err) < 0)
            return -1;
    struct wasm_limits table = {.min = 10, .max = 20, .has_max = true};
    struct wasm_limits table64 = {.min = 10, .max = 20, .has_max = true, .is64 = true};
    struct wasm_limits memory = {.min = 1, .max = 2, .has_max = true};
    if (wasm_host_table(s, "spectest", "table", &table, WASM_FUNCREF, err) < 0 ||
        wasm_host_memory(s, "spectest", "memory", &memory, err) < 0)
        return -1;
    return spec < 30 ? 0 : wasm_host_table(s, "spectest", "table64", &table64, WASM_FUNCREF, err);
}

/* --- one run of the script, in its own store --- */

static void wast_forget(struct runner *r) {
    wasm_store_free(r->store);
    for (uint32_t i = 0; i < r->module_count; i++)
        wasm_module_unref(r->modules[i]);
    wasm_engine_free(r->engine);
    r->store = NULL;
    r->engine = NULL;
    r->module_count = r->named_count = 0;
    r->last = (struct named){0};
}

static bool wast_prepare(struct runner *r) {
    struct err err;
    r->engine = wasm_engine_new(NULL);
    r->store = r->engine ? wasm_store_new(r->engine) : NULL;
    if (!r->store)
        return wast_fail(r, "out of memory");
    if (define_spectest(r->store, r->options->spec, &err) < 0)
        return wast_fail(r, "cannot define the host module spectest: %s", err.text);
    return true;
}

static void sum_up(struct runner *r) {
    struct err err;
    r->result->fuel = wasm_fuel_used(r->store);
    if (wasm_store_hash(r->store, r->result->hash, &err) < 0)
        r->result->broken = true;
}

static void run_once(struct runner *r) {
    if (wast_prepare(r)) {
        run_all(r);
        sum_up(r);
    } else {
        r->result->broken = true;
        report(r, wast_token(r, 0));
    }
    if (r->engine && r->store)
        wast_forget(r);
    else if (r->engine)
        wasm_engine_free(TAKE(r->engine));
}

/* A run with suspension must use the same fuel and leave the same state as one without. */
static void compare_runs(struct runner *r, const struct wast_result *plain) {
    bool same = plain->fuel == r->result->fuel &&
                memcmp(plain->hash, r->result->hash, sizeof(plain->hash)) == 0;
    if (same)
        return;
    r->result->broken = true;
    wast_fail(r, "fuel or memory hash differ from the run without suspension");
    report(r, wast_token(r, 0));
}

void wast_run(const char *name, const char *src, size_t len, const struct wast_options *options,
              struct wast_result *ret, struct buf *report_to) {
    struct wat_text t;
    struct wat_diags diags = {0};
    *ret = (struct wast_result){0};
    if (wat_text_init(&t, src, len, options->spec, &diags) < 0) {
        ret->broken = true;
        bool told = wat_diag_print(&diags.list[0], name, src, len, report_to);
        (void)told;
        return;
    }
    struct runner *r DEFER_FREE = calloc(1, sizeof(*r));
    if (r) {
        r->name = name, r->options = options, r->result = ret, r->report = report_to, r->t = &t;
        run_once(r);
        if (options->suspend) {
            struct wast_result plain = *ret;
            *ret = (struct wast_result){0};
            r->suspending = true;
            r->random = options->seed * 2 + 1;
            run_once(r);
            compare_runs(r, &plain);
        }
        free(r->modules);
        free(r->named);
        free(r->fuel);
    } else {
        ret->broken = true;
    }
    wat_text_done(&t);
}
