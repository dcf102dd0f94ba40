/* `cell run` and `cell replay`: run a program, or repeat a recorded run. */
#include <inttypes.h>
#include <string.h>

#include "base/banned.h"
#include "base/capability.h"
#include "base/defer.h"
#include "cell/json.h"
#include "cell/pause.h"
#include "cell/session.h"
#include "cell/type_text.h"
#include "cell/verb.h"
#include "wasm/text/value_text.h"

/* --- the function to call --- */

static struct slice text_slice(const char *s) {
    return (struct slice){.data = (const uint8_t *)s, .len = s ? strlen(s) : 0};
}

static bool exports_plain(const struct session *s, const char *name) {
    for (uint32_t i = 0; i < wasm_module_exports(s->module); i++) {
        struct wasm_export x;
        wasm_module_export(s->module, i, &x);
        if (x.type.kind == WASM_FUNC && x.name_size == strlen(name) &&
            !memcmp(x.name, name, x.name_size))
            return x.type.func.n_params == 0;
    }
    return false;
}

enum { OFFERED_BYTES = 105 }; /* as many as a remedy has room for */

/* Lists the exported functions with their types: "add (func (param i32)), sub (func)". */
static bool add_offered(struct buf *b, const struct session *s) {
    for (uint32_t i = 0; i < wasm_module_exports(s->module); i++) {
        struct wasm_export x;
        size_t before = b->len;
        wasm_module_export(s->module, i, &x);
        if (x.type.kind != WASM_FUNC)
            continue;
        if (buf_addf(b, "%s%.*s ", before ? ", " : "", (int)(x.name_size < 80 ? x.name_size : 80),
                     x.name) &&
            type_text_add(b, &x.type) && b->len <= OFFERED_BYTES)
            continue;
        b->len = before;
        return buf_addf(b, "%s...", before ? ", " : "");
    }
    return true;
}

/* Without _start and main, only a module that exports no functions or has a start function runs. */
static int no_entry(struct session *s) {
    struct buf offered DEFER(buf_done) = BUF(1 << 16);
    struct err err;
    if (wasm_module_has_start(s->module) || !add_offered(&offered, s) || !offered.len)
        return CELL_OK;
    err_set(&err, ERR_INVALID,
            "module %s has no entry point: it needs an exported function \"_start\" or \"main\" "
            "without parameters, or --invoke",
            s->job->file);
    err_remedy(&err, "choose a function with --invoke NAME ARG...: %s", offered.data);
    return session_fail(s, CELL_INVALID, &err);
}

int chosen_function(struct session *s, struct slice *ret) {
    *ret = (struct slice){0};
    if (s->call->invoke)
        *ret = text_slice(s->call->invoke);
    else if (exports_plain(s, "_start"))
        *ret = text_slice("_start");
    else if (exports_plain(s, "main"))
        *ret = text_slice("main");
    return ret->len ? CELL_OK : no_entry(s);
}

static bool find_export(const struct session *s, struct slice name, struct wasm_export *ret) {
    for (uint32_t i = 0; i < wasm_module_exports(s->module); i++) {
        wasm_module_export(s->module, i, ret);
        if (ret->name_size == name.len && !memcmp(ret->name, name.data, name.len))
            return ret->type.kind == WASM_FUNC;
    }
    return false;
}

/* Reads the arguments with the types of the function's parameters. */
int read_arguments(struct session *s, struct slice function, struct cell_values *ret) {
    const struct cell_options *o = s->call;
    struct wasm_export x;
    struct err err;
    *ret = (struct cell_values){0};
    if (!function.len || !find_export(s, function, &x))
        return CELL_OK;
    if (x.type.func.n_params != (uint32_t)o->arg_count || x.type.func.n_results > CELL_LOG_VALUES) {
        err_set(&err, ERR_INVALID, "function %.*s takes %u argument%s, %d %s given",
                (int)function.len, (const char *)function.data, x.type.func.n_params,
                x.type.func.n_params == 1 ? "" : "s", o->arg_count,
                o->arg_count == 1 ? "was" : "were");
        return session_fail(s, CELL_INVALID, &err);
    }
    for (int i = 0; i < o->arg_count; i++) {
        if (value_read(x.type.func.params[i], o->args[i], strlen(o->args[i]), &ret->list[i], &err) <
            0) {
            err_wrap(&err, "argument %d", i + 1);
            return session_fail(s, CELL_INVALID, &err);
        }
        ret->count++;
    }
    return CELL_OK;
}

/* --- reporting --- */

static const char *const outcome_names[] = {
    [WASM_DONE] = "done",        [WASM_TRAPPED] = "trap",
    [WASM_THROWN] = "exception", [WASM_OUT_OF_FUEL] = "out_of_fuel",
    [WASM_SLICE] = "suspended",  [WASM_HOST] = "host",
    [WASM_IDLE] = "idle",
};

static const int outcome_codes[] = {
    [WASM_DONE] = CELL_OK,          [WASM_TRAPPED] = CELL_TRAP, [WASM_THROWN] = CELL_TRAP,
    [WASM_OUT_OF_FUEL] = CELL_FUEL, [WASM_SLICE] = CELL_OK,     [WASM_HOST] = CELL_INTERNAL,
    [WASM_IDLE] = CELL_INTERNAL,
};

static bool add_hash(struct buf *b, const uint8_t hash[32]) {
    bool ok = true;
    for (int i = 0; ok && i < 32; i++)
        ok = buf_addf(b, "%02x", hash[i]);
    return ok;
}

enum { SHOWN_FRAMES = 10 };

/* Writes the call stack where the program stopped, innermost function first. */
static bool add_frames(struct buf *b, struct session *s, bool json) {
    bool ok = true;
    struct wasm_frame f;
    for (uint32_t i = 0; ok && i < SHOWN_FRAMES && wasm_frame_at(s->store, i, &f); i++) {
        char name[100], place[300];
        session_func_name(s, f.func, name, sizeof(name));
        /*
         * The offset of an outer frame is behind its call instruction; one byte before is the call
         * itself.
         */
        session_place(s, f.offset - (i > 0 && s->is_text), place, sizeof(place));
        if (json)
            ok = buf_addf(b, "%s{\"function\":", i ? "," : "") &&
                 json_string(b, name, strlen(name)) && buf_addf(b, ",\"place\":") &&
                 json_string(b, place, strlen(place)) && buf_addf(b, "}");
        else
            ok = buf_addf(b, "  at %s (%s)\n", name, place);
    }
    return ok;
}

static bool add_json_values(struct buf *b, const struct cell_values *values) {
    bool ok = buf_addf(b, "[");
    for (uint32_t i = 0; ok && i < values->count; i++) {
        char type[40];
        wasm_type_name(values->list[i].type, type, sizeof(type));
        ok = buf_addf(b, "%s{\"type\":\"%s\",\"value\":\"", i ? "," : "", type) &&
             value_print(&values->list[i], b) && buf_addf(b, "\"}");
    }
    return ok && buf_addf(b, "]");
}

/* Returns the fuel of this run, without that of a warm image. */
static uint64_t run_fuel(const struct session *s) {
    return wasm_fuel_used(s->store) - s->fuel_before;
}

static bool add_json_report(struct buf *b, struct session *s, const struct ending *e,
                            const uint8_t hash[32]) {
    bool ok = buf_addf(b, "{\"outcome\":\"%s\",\"results\":", outcome_names[e->outcome]) &&
              add_json_values(b, &e->values) &&
              buf_addf(b, ",\"fuel\":%" PRIu64 ",\"memory_hash\":\"", run_fuel(s)) &&
              add_hash(b, hash) && buf_addf(b, "\",\"output\":") &&
              json_string(b, s->output.len ? s->output.data : "", s->output.len);
    if (ok && s->result.len)
        ok = buf_addf(b, ",\"result\":") && json_string(b, s->result.data, s->result.len);
    if (ok && s->has_wasi && e->outcome == WASM_DONE)
        ok = buf_addf(b, ",\"exit_code\":%" PRIu32, e->exit_code);
    if (ok && s->job->is_script)
        ok = buf_addf(b, ",\"start\":\"%s\"", s->is_warm ? "warm" : "cold");
    if (ok && e->outcome == WASM_TRAPPED)
        ok = buf_addf(b, ",\"trap\":") && json_string(b, e->text, strlen(e->text)) &&
             buf_addf(b, ",\"frames\":[") && add_frames(b, s, true) && buf_addf(b, "]");
    if (ok && e->outcome == WASM_OUT_OF_FUEL)
        ok = buf_addf(b, ",\"needed\":%" PRIu64, e->needed);
    return ok && buf_addf(b, "}\n");
}

/* Writes the results of the program, one per line. */
static bool add_results(struct buf *b, const struct cell_values *values) {
    bool ok = true;
    for (uint32_t i = 0; ok && i < values->count; i++)
        ok = value_print(&values->list[i], b) && buf_addf(b, "\n");
    return ok;
}

/* Writes the result that the program passed to carrel.1.result, if any. */
static bool add_result_json(struct buf *b, const struct session *s) {
    return !s->result.len || (buf_add(b, s->result.data, s->result.len) && buf_addf(b, "\n"));
}

/* After a trap at the memory limit, tells how to raise the limit. */
static bool add_limit(struct buf *b, const struct session *s) {
    return !wasm_store_over_budget(s->store) ||
           buf_addf(b,
                    "  memories, tables, objects and code may use %" PRIu64
                    " pages of 64 KiB: raise %s\n",
                    s->pages, s->job->options->in_machine ? "--mem" : "--memory");
}

static bool add_reason(struct buf *b, struct session *s, const struct ending *e) {
    switch (e->outcome) {
    case WASM_TRAPPED:
        return buf_addf(b, "trap: %s\n", e->text) && add_frames(b, s, false) && add_limit(b, s);
    case WASM_THROWN:
        return buf_addf(b, "trap: an exception was not caught\n");
    case WASM_OUT_OF_FUEL:
        return buf_addf(b,
                        "out of fuel: %" PRIu64 " spent, the next instruction needs %" PRIu64 "\n",
                        run_fuel(s), e->needed) &&
               add_frames(b, s, false);
    case WASM_SLICE:
        return buf_addf(b, "suspended\n") && add_frames(b, s, false);
    default:
        return true;
    }
}

static bool add_fuel(struct buf *b, const struct session *s) {
    return buf_addf(b, "fuel: %" PRIu64 "\n", run_fuel(s));
}

int tell_ending(struct session *s, const struct ending *e) {
    struct buf b DEFER(buf_done) = BUF(JAIL_MAX_TEXT), why DEFER(buf_done) = BUF(1 << 20);
    uint8_t hash[32] = {0};
    struct err err;
    /* The hash reads all memory that the program touched, so compute it only if it is printed. */
    if (s->job->options->json && wasm_store_hash(s->store, hash, &err) < 0)
        return session_fail(s, CELL_INTERNAL, &err);
    bool ok;
    if (s->job->options->json)
        ok = add_json_report(&b, s, e, hash);
    else
        ok = add_results(&b, &e->values) && add_result_json(&b, s) && add_reason(&why, s, e) &&
             (s->job->options->in_machine || add_fuel(s->has_wasi ? &why : &b, s));
    if (!ok) {
        err_set(&err, ERR_LIMIT, "the report of the run is too large");
        return session_fail(s, CELL_LIMIT, &err);
    }
    link_err(s->link, why.data, why.len);
    link_out(s->link, b.data, b.len);
    s->has_exited = e->has_exited;
    if (e->has_exited)
        return e->exit_code < UINT8_MAX ? (int)e->exit_code : UINT8_MAX;
    return outcome_codes[e->outcome];
}

/* --- recording --- */

/* In the list of granted functions of a log: this is a capability of carrel.1. */
#define ALLOWED "allow:"

static bool start_log(struct session *s, struct slice function, const struct cell_values *args) {
    const struct cell_options *o = s->job->options;
    struct buf grants DEFER(buf_done) = BUF(1 << 12);
    size_t size;
    const uint8_t *module = wasm_module_bytes(s->module, &size);
    for (int i = 0; i < o->grant_count; i++)
        if (!buf_addf(&grants, "%s\n", o->grants[i]))
            return false;
    for (size_t i = 0; capability_name(i); i++)
        if (s->allowed & UINT32_C(1) << i && !buf_addf(&grants, ALLOWED "%s\n", capability_name(i)))
            return false;
    struct cell_start start = {.spec = (uint8_t)o->spec,
                               .fuel = o->fuel,
                               .pages = o->memory,
                               .module = {.data = module, .len = size},
                               .function = function,
                               .input = s->input,
                               .grants = {.data = (const uint8_t *)grants.data, .len = grants.len},
                               .args = *args};
    s->recording = true;
    return cell_log_start(&s->log, &start);
}

static bool end_log(struct session *s, const struct ending *e) {
    struct cell_end end = {.outcome = (uint8_t)e->outcome,
                           .text = text_slice(e->text),
                           .results = e->values,
                           .fuel = wasm_fuel_used(s->store)};
    struct err err;
    if (wasm_store_hash(s->store, end.hash, &err) < 0 || !cell_log_end(&s->log, &end))
        return false;
    link_log(s->link, s->log.data, s->log.len);
    return true;
}

static int log_full(struct session *s) {
    struct err err;
    err_set(&err, ERR_LIMIT, "the log of the recorded run is larger than 1 GiB");
    return session_fail(s, CELL_LIMIT, &err);
}

/* --- suspension --- */

int send_state(struct session *s, bool is_image) {
    struct buf state DEFER(buf_done) = BUF(JAIL_MAX_BLOB);
    struct err err;
    err_set(&err, ERR_LIMIT, "the state is larger than %d MiB", JAIL_MAX_BLOB >> 20);
    if (!next_call_save(s, &state) || (s->has_capabilities && !host_capabilities_save(s, &state)) ||
        (s->has_wasi && !host_wasi_save(s, &state)) || wasm_capture(s->store, &state, &err) < 0)
        return session_fail(s, err.code == ERR_LIMIT ? CELL_LIMIT : CELL_STATE, &err);
    if (is_image)
        send_image_head(s, (struct slice){.data = (const uint8_t *)state.data, .len = state.len});
    link_state(s->link, state.data, state.len);
    return CELL_OK;
}

static struct wasm_module *find_module(void *ctx, const uint8_t hash[32]) {
    struct session *s = ctx;
    uint8_t own[32];
    wasm_module_hash(s->module, own);
    return memcmp(own, hash, sizeof(own)) == 0 ? s->module : NULL;
}

/*
 * A state is untrusted and names its host functions itself. Each must be a function that the module
 * imports (these are granted), with the type and cost in host.c.
 */
static bool hosts_are_granted(const struct session *s) {
    struct wasm_host_info h;
    for (uint32_t i = 0; wasm_host_func_at(s->store, i, &h); i++) {
        bool asked = false;
        for (uint32_t k = 0; k < wasm_module_imports(s->module) && !asked; k++) {
            struct wasm_import in;
            wasm_module_import(s->module, k, &in);
            asked = in.name_size == strlen(h.name) && !memcmp(in.name, h.name, in.name_size) &&
                    in.module_size == strlen(h.module) &&
                    !memcmp(in.module, h.module, in.module_size);
        }
        if (!asked || !host_is(&h))
            return false;
    }
    return true;
}

int resume_engine(struct session *s, struct slice state, struct err *err) {
    struct wasm_modules modules = {.find = find_module, .ctx = s};
    if (wasm_resume(s->engine, state.data, state.len, &modules, &s->store, err) < 0)
        return -1;
    if (wasm_instances(s->store) != 1 || !hosts_are_granted(s)) {
        wasm_store_free(s->store);
        s->store = NULL;
        return err_set(err, ERR_DENIED, "the state needs a host function that was not granted");
    }
    s->instance = wasm_instance_at(s->store, 0);
    return 0;
}

int resume_store(struct session *s, struct slice state, struct err *err) {
    if ((s->has_capabilities && host_capabilities_resume(s, &state, err) < 0) ||
        (s->has_wasi && host_wasi_resume(s, &state, err) < 0))
        return -1;
    return resume_engine(s, state, err);
}

/* --- run --- */

/*
 * Calls the function, unless it is empty, after the instantiation or initialization in *ret. A
 * library of WASI (a reactor) has to be initialized before its functions are called.
 */
static int run_on(struct session *s, struct slice function, const struct cell_values *args,
                  struct ending *ret) {
    if (ret->outcome != WASM_DONE || ret->has_exited || !function.len)
        return CELL_OK;
    if (s->phase == RUN_BEGINS && s->has_wasi && exports_plain(s, "_initialize") &&
        !exports_plain(s, "_start")) {
        s->phase = RUN_INITIALIZES;
        int code = session_call(s, text_slice("_initialize"), &(struct cell_values){0}, ret);
        if (code != CELL_OK || ret->outcome != WASM_DONE || ret->has_exited)
            return code;
    }
    s->phase = RUN_CALLS;
    return session_call(s, function, args, ret);
}

/*
 * Initializes memories and tables, runs the start function, then calls `function` unless it is
 * empty.
 */
int run_whole(struct session *s, struct slice function, const struct cell_values *args,
              uint64_t fuel, struct ending *ret) {
    int code = session_link(s);
    if (code != CELL_OK)
        return code;
    wasm_fuel_add(s->store, fuel);
    s->phase = RUN_BEGINS;
    code = session_drive(s, ret);
    return code == CELL_OK ? run_on(s, function, args, ret) : code;
}

int run_new(struct session *s, struct ending *ret) {
    const struct cell_options *o = s->job->options;
    struct slice function;
    struct cell_values args;
    int code = chosen_function(s, &function);
    if (code == CELL_OK)
        code = read_arguments(s, function, &args);
    if (code == CELL_OK && o->record && !start_log(s, function, &args))
        return log_full(s);
    return code == CELL_OK ? run_whole(s, function, &args, o->fuel, ret) : code;
}

static int cannot_resume(struct session *s, struct err *err) {
    err_wrap(err, "cannot resume '%s'", s->job->options->resume);
    return session_fail(s, CELL_STATE, err);
}

/* The fuel of a stored program is that of its whole command. */
static void resume_stored(struct session *s) {
    const struct pause_parts *p = s->job->stored;
    if (!p)
        return;
    s->is_warm = p->is_warm;
    s->fuel_before = p->fuel_before < wasm_fuel_used(s->store) ? p->fuel_before : 0;
    s->request = p->request;
    session_meter(s);
}

/* The state may have been saved before the call of the function, which it then names. */
static int resume_with(struct session *s, struct slice state, struct ending *ret) {
    struct slice function = {0};
    struct cell_values args = {0};
    struct err err;
    if (resume_store(s, state, &err) < 0)
        return cannot_resume(s, &err);
    bool is_called = s->phase == RUN_CALLS;
    int code = is_called ? CELL_OK : chosen_function(s, &function);
    if (code == CELL_OK && !is_called)
        code = read_arguments(s, function, &args);
    if (code != CELL_OK)
        return code;
    if (s->job->options->has_fuel)
        wasm_fuel_add(s->store, s->job->options->fuel);
    resume_stored(s);
    code = session_drive(s, ret);
    return code == CELL_OK && !is_called ? run_on(s, function, &args, ret) : code;
}

static int resume(struct session *s, struct cell_options *call, struct ending *ret) {
    struct slice state = s->job->state;
    struct err err;
    return next_call_resume(s, &state, call, &err) < 0 ? cannot_resume(s, &err)
                                                       : resume_with(s, state, ret);
}

static int run_loaded(struct session *s) {
    const struct cell_options *o = s->job->options;
    struct cell_options call = *o;
    struct ending e = {0};
    s->call = &call;
    int code = session_check_grants(s, o->grants, o->grant_count);
    if (code == CELL_OK)
        code = o->resume                          ? resume(s, &call, &e)
               : s->job->dump || s->job->warm.len ? run_warm(s, &e)
                                                  : run_new(s, &e);
    if (code != CELL_OK)
        return code;
    if (s->recording && !end_log(s, &e))
        return log_full(s);
    bool stopped = e.suspended || e.outcome == WASM_OUT_OF_FUEL;
    if (stopped && o->out && (code = send_state(s, false)) != CELL_OK)
        return code;
    return tell_ending(s, &e);
}

int verb_run(struct link *l, const void *arg) {
    struct session s DEFER(session_done);
    const struct job *job = arg;
    session_init(&s, l, job);
    if (job->stored) /* nothing happens before the machine knows that this process has it */
        link_stay(l, STAY_HELD);
    int code = job->dump ? session_load_dump(&s)
                         : session_load(&s, job->bytes, job->options->spec, job->options->memory);
    if (code == CELL_OK)
        code = run_loaded(&s);
    return job->options->in_machine && !s.has_exited ? cell_status_of((enum cell_exit)code) : code;
}

/* --- replay --- */

static int bad_log(struct session *s, struct err *err) {
    err_wrap(err, "cannot replay '%s'", s->job->file);
    return session_fail(s, CELL_STATE, err);
}

static int differs(struct session *s, const char *what) {
    struct err err;
    err_set(&err, ERR_INVALID, "the run differs from the recorded run; first difference: %s", what);
    return bad_log(s, &err);
}

/*
 * Splits the names of granted host functions in a log, each followed by a newline. The strings are
 * in `room`. Capabilities of carrel.1 go into s->allowed.
 */
static int split_grants(struct session *s, struct slice names, struct buf *room,
                        const char **list) {
    const size_t head = strlen(ALLOWED);
    int count = 0;
    s->allowed = 0;
    if (!buf_add(room, names.data, names.len))
        return 0;
    for (char *p = room->data, *end; names.len && count < CELL_MAX_GRANTS; p = end + 1) {
        end = strchr(p, '\n');
        if (!end)
            break;
        *end = '\0';
        if (strncmp(p, ALLOWED, head) == 0)
            s->allowed |= capability_bit(p + head, strlen(p + head));
        else
            list[count++] = p;
    }
    return count;
}

static int compare_end(struct session *s, const struct ending *e, const struct cell_end *was) {
    struct cell_call rest;
    struct buf now DEFER(buf_done) = BUF(1 << 16), then DEFER(buf_done) = BUF(1 << 16);
    uint8_t hash[32];
    char what[300];
    struct err err;
    if (cell_log_next(s->replay, &rest)) {
        snprintf(what, sizeof(what), "the recorded run made a further host call (%.*s)",
                 (int)(rest.name.len < 40 ? rest.name.len : 40), (const char *)rest.name.data);
        return differs(s, what);
    }
    if (was->outcome != e->outcome) {
        snprintf(what, sizeof(what), "the run ended with %s, the recorded one with %s",
                 outcome_names[e->outcome], outcome_names[was->outcome]);
        return differs(s, what);
    }
    if (!add_results(&now, &e->values) || !add_results(&then, &was->results) ||
        now.len != then.len || (now.len && memcmp(now.data, then.data, now.len)))
        return differs(s, "the results");
    if (wasm_fuel_used(s->store) != was->fuel) {
        snprintf(what, sizeof(what), "the run used %" PRIu64 " fuel, the recorded one %" PRIu64,
                 wasm_fuel_used(s->store), was->fuel);
        return differs(s, what);
    }
    if (wasm_store_hash(s->store, hash, &err) < 0)
        return bad_log(s, &err);
    return memcmp(hash, was->hash, sizeof(hash)) ? differs(s, "the memory hash") : CELL_OK;
}

static int run_replay(struct session *s, struct cell_log *log) {
    struct buf room DEFER(buf_done) = BUF(1 << 12);
    const char *grants[CELL_MAX_GRANTS];
    int count = split_grants(s, log->start.grants, &room, grants);
    struct ending e;
    s->replay = log;
    s->input = log->start.input;
    int code = session_load(s, log->start.module, log->start.spec, log->start.pages);
    if (code == CELL_OK)
        code = session_check_grants(s, grants, count);
    if (code == CELL_OK)
        code = run_whole(s, log->start.function, &log->start.args, log->start.fuel, &e);
    if (code == CELL_OK)
        code = compare_end(s, &e, &log->end);
    if (code != CELL_OK)
        return s->store ? CELL_STATE : code;
    if (!s->job->options->json)
        link_err(s->link, "same: results, fuel and memory hash\n", 36);
    tell_ending(s, &e);
    return CELL_OK;
}

int verb_replay(struct link *l, const void *arg) {
    struct session s DEFER(session_done);
    const struct job *job = arg;
    struct cell_log log;
    struct err err;
    session_init(&s, l, job);
    if (cell_log_open(&log, job->bytes.data, job->bytes.len, &err) < 0)
        return bad_log(&s, &err);
    return run_replay(&s, &log);
}
