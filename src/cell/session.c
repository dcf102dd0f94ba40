#include "cell/session.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/banned.h"
#include "base/capability.h"
#include "base/defer.h"
#include "cell/json.h"
#include "wasm/text/wat_explain.h"

enum { MAX_MESSAGES = 1 << 20 };

void session_init(struct session *s, struct link *l, const struct job *job) {
    *s = (struct session){
        .link = l,
        .job = job,
        .call = job->options,
        .allowed = job->options->allow,
        .output = BUF(JAIL_MAX_TEXT),
        .log = BUF(JAIL_MAX_BLOB),
        .answer = BUF(JAIL_MAX_TEXT),
        .result = BUF(JAIL_MAX_TEXT),
    };
    const char *input = job->options->input;
    if (input)
        s->input = (struct slice){.data = (const uint8_t *)input, .len = strlen(input)};
}

static void session_free_engine(struct session *s) {
    if (s->store)
        wasm_store_free(s->store);
    if (s->module)
        wasm_module_unref(s->module);
    if (s->engine)
        wasm_engine_free(s->engine);
}

void session_done(struct session *s) {
    if (!s->job->dump) /* what was mapped ends with the process */
        session_free_engine(s);
    wat_module_done(&s->text);
    wasi_free(s->wasi);
    buf_done(&s->output);
    buf_done(&s->log);
    buf_done(&s->answer);
    buf_done(&s->result);
}

struct session *session_top(struct session *s) {
    while (s->caller)
        s = s->caller;
    return s;
}

/* --- messages to the user --- */

static bool add_json_error(struct buf *b, const struct err *err) {
    const char *code = err_code_name(err->code);
    return buf_addf(b, "{\"error\":{\"code\":\"%s\",\"message\":", code) &&
           json_string(b, err->text, strlen(err->text)) && buf_addf(b, ",\"remedy\":") &&
           json_string(b, err->remedy, strlen(err->remedy)) && buf_addf(b, "}");
}

int session_fail(struct session *s, int code, const struct err *err) {
    struct buf b DEFER(buf_done) = BUF(MAX_MESSAGES);
    bool json = s->job->options->json;
    snprintf(s->why, sizeof(s->why), "%s", err->text);
    bool ok = json ? add_json_error(&b, err) && buf_addf(&b, "}\n")
                   : buf_addf(&b, "carrel: %s\n%s%s%s", err->text, err->remedy[0] ? "  " : "",
                              err->remedy, err->remedy[0] ? "\n" : "");
    if (ok)
        (json ? link_out : link_err)(s->link, b.data, b.len);
    return code;
}

static bool add_diagnostics(struct buf *b, const struct session *s, const struct wat_diags *diags) {
    const char *src = (const char *)s->job->bytes.data;
    bool ok = buf_addf(b, ",\"diagnostics\":[");
    for (int i = 0; ok && i < diags->count; i++) {
        const struct wat_diag *d = &diags->list[i];
        struct wat_line l = wat_line_at(src, s->job->bytes.len, d->pos);
        ok = buf_addf(b, "%s{\"file\":", i ? "," : "") &&
             json_string(b, s->job->file, strlen(s->job->file)) &&
             buf_addf(b, ",\"line\":%u,\"column\":%u,\"message\":", l.line, l.col) &&
             json_string(b, d->text, strlen(d->text)) && buf_addf(b, ",\"hint\":") &&
             json_string(b, d->hint, strlen(d->hint)) && buf_addf(b, "}");
    }
    return ok && buf_addf(b, "]");
}

static int tell_diagnostics(struct session *s, const struct wat_diags *diags, int code) {
    struct buf b DEFER(buf_done) = BUF(MAX_MESSAGES);
    bool ok = true;
    if (s->job->options->json) {
        struct err err;
        err_set(&err, code == CELL_LIMIT ? ERR_LIMIT : ERR_INVALID, "%s", diags->list[0].text);
        ok = add_json_error(&b, &err) && add_diagnostics(&b, s, diags) && buf_addf(&b, "}\n");
        if (ok)
            link_out(s->link, b.data, b.len);
        return code;
    }
    for (int i = 0; ok && i < diags->count; i++)
        ok = wat_diag_print(&diags->list[i], s->job->file, (const char *)s->job->bytes.data,
                            s->job->bytes.len, &b);
    if (diags->more)
        ok = ok && buf_addf(&b, "more errors were found; only the first are shown\n");
    link_err(s->link, b.data, b.len);
    return code;
}

void session_place(const struct session *s, size_t offset, char *out, size_t size) {
    if (!s->is_text) {
        snprintf(out, size, "%s: byte 0x%zx", s->job->file, offset);
        return;
    }
    struct wat_line l = wat_line_at((const char *)s->job->bytes.data, s->job->bytes.len,
                                    wat_locate(&s->text, (uint32_t)offset));
    snprintf(out, size, "%s:%u:%u", s->job->file, l.line, l.col);
}

void session_func_name(const struct session *s, uint32_t func, char *out, size_t size) {
    size_t len;
    const char *name = wasm_module_func_name(s->module, func, &len);
    if (name)
        snprintf(out, size, "$%.*s", (int)(len < 80 ? len : 80), name);
    else
        snprintf(out, size, "func %u", func);
}

/* --- loading --- */

static int code_of_fault(enum wasm_fault fault) {
    return fault == WASM_TOO_BIG ? CELL_LIMIT : CELL_INVALID;
}

/* Adds all errors that the validator finds; at least `first`, with which it refused the module. */
static void explain_all(struct session *s, const struct wasm_diag *first, struct wat_diags *diags) {
    const char *src = (const char *)s->job->bytes.data;
    struct wasm_diag list[WAT_MAX_DIAGS + 1];
    uint32_t n = wasm_module_faults(s->engine, s->text.binary.data, s->text.binary.len,
                                    (enum wasm_level)s->job->options->spec, list,
                                    sizeof(list) / sizeof(*list));
    for (uint32_t i = 0; i < n; i++)
        wat_explain(&list[i], &s->text, src, s->job->bytes.len, diags);
    if (n == 0)
        wat_explain(first, &s->text, src, s->job->bytes.len, diags);
}

static int tell_refused(struct session *s, const struct wasm_diag *diag) {
    struct wat_diags diags = {0};
    struct err err;
    char text[220];
    if (s->is_text) {
        explain_all(s, diag, &diags);
        return tell_diagnostics(s, &diags, code_of_fault(diag->fault));
    }
    wat_describe(diag, NULL, text, sizeof(text));
    err_set(&err, diag->fault == WASM_TOO_BIG ? ERR_LIMIT : ERR_INVALID,
            "%s is not a valid module: byte 0x%zx: %s", s->job->file, diag->offset, text);
    char hint[sizeof(err.remedy)];
    if (wat_advise(diag, hint, sizeof(hint)))
        err_remedy(&err, "%s", hint);
    return session_fail(s, code_of_fault(diag->fault), &err);
}

static int encode(struct session *s, struct slice *bytes, int spec) {
    struct wat_diags diags = {0};
    s->is_text = bytes->len < 4 || memcmp(bytes->data, "\0asm", 4) != 0;
    if (!s->is_text)
        return CELL_OK;
    if (wat_encode((const char *)bytes->data, bytes->len, spec, &s->text, &diags) < 0)
        return tell_diagnostics(s, &diags, CELL_INVALID);
    *bytes =
        (struct slice){.data = (const uint8_t *)s->text.binary.data, .len = s->text.binary.len};
    return CELL_OK;
}

static int out_of_memory(struct session *s) {
    struct err err;
    err_set(&err, ERR_LIMIT, "cannot load the program: out of memory");
    return session_fail(s, CELL_LIMIT, &err);
}

uint64_t cell_budget(uint64_t pages) {
    const uint64_t most = (INT64_MAX >> 16) - 16;
    return ((pages < most ? pages : most) + 16) << 16;
}

int session_load(struct session *s, struct slice bytes, int spec, uint64_t pages) {
    struct wasm_config config = {
        .alloc = s->alloc, .memory_pages = pages, .store_bytes = cell_budget(pages)};
    s->pages = pages;
    struct wasm_diag diag = {0};
    int code = encode(s, &bytes, spec);
    if (code != CELL_OK)
        return code;
    s->engine = wasm_engine_new(&config);
    if (!s->engine)
        return out_of_memory(s);
    if (wasm_module_load(s->engine, bytes.data, bytes.len, (enum wasm_level)spec, &s->module,
                         &diag) < 0)
        return tell_refused(s, &diag);
    return CELL_OK;
}

/* --- grants --- */

static bool is_of(const struct wasm_import *in, const char *module) {
    return in->module_size == strlen(module) && !memcmp(in->module, module, in->module_size);
}

/* Functions of WASI need no grant: what they reach does, such as a directory. */
static bool is_granted(const struct session *s, const struct wasm_import *in,
                       const char *const *grants, int count) {
    uint32_t capability;
    if (host_has_capability(in, &capability))
        return (s->allowed & capability) == capability;
    if (in->type.kind == WASM_FUNC &&
        wasi_find(in->module, in->module_size, in->name, in->name_size, in->type.func.n_params))
        return true;
    if (in->type.kind != WASM_FUNC || !is_of(in, HOST_MODULE) ||
        !host_known(in->name, in->name_size))
        return false;
    for (int i = 0; i < count; i++)
        if (strlen(grants[i]) == in->name_size && !memcmp(grants[i], in->name, in->name_size))
            return true;
    return false;
}

/* Writes the command that gives the program everything it imports of carrel.1. */
static void remedy_capability(const struct session *s, struct err *err) {
    const struct cell_options *o = s->job->options;
    uint32_t bits = s->allowed, bit;
    char list[CAPABILITIES_SIZE];
    struct wasm_import in;
    for (uint32_t i = 0; i < wasm_module_imports(s->module); i++) {
        wasm_module_import(s->module, i, &in);
        if (host_has_capability(&in, &bit))
            bits |= bit;
    }
    capabilities_text(bits, list);
    if (o->is_given)
        err_remedy(err, "list it in field 'allow': %s", list);
    else if (o->in_machine)
        err_remedy(err, "grant it: carrel set %.60s --allow %s",
                   o->machine ? o->machine : "MACHINE", list);
    else
        err_remedy(err, "grant it with --allow %s", list);
}

static int deny(struct session *s, const struct wasm_import *in) {
    struct err err;
    uint32_t capability;
    int module = (int)(in->module_size < 80 ? in->module_size : 80);
    int name = (int)(in->name_size < 80 ? in->name_size : 80);
    err_set(&err, ERR_DENIED, "the module imports %.*s.%.*s, which was not granted", module,
            in->module, name, in->name);
    if (host_has_capability(in, &capability)) {
        remedy_capability(s, &err);
        return session_fail(s, CELL_DENIED, &err);
    }
    if (s->job->options->in_machine) {
        err_remedy(&err,
                   "programs in cell machines have WASI preview 1 and carrel.1, and nothing else");
        return session_fail(s, CELL_DENIED, &err);
    }
    if (is_of(in, HOST_MODULE) && host_known(in->name, in->name_size))
        err_remedy(&err, "grant it with --grant %.*s", name, in->name);
    else
        err_remedy(&err, "this host function does not exist; WASI preview 1, carrel.1 and "
                         "carrel.{" HOST_NAMES "} do");
    return session_fail(s, CELL_DENIED, &err);
}

int session_check_grants(struct session *s, const char *const *grants, int count) {
    struct err err;
    for (int i = 0; i < count; i++) {
        if (host_known(grants[i], strlen(grants[i])))
            continue;
        err_set(&err, ERR_INVALID, "--grant %s: host function carrel.%s does not exist", grants[i],
                grants[i]);
        return session_fail(s, CELL_USAGE, &err);
    }
    for (uint32_t i = 0; i < wasm_module_imports(s->module); i++) {
        struct wasm_import in;
        wasm_module_import(s->module, i, &in);
        s->has_capabilities = s->has_capabilities || is_of(&in, HOST_CAPABILITIES);
        if (!is_granted(s, &in, grants, count))
            return deny(s, &in);
        s->has_wasi = s->has_wasi || wasi_is_module(in.module, in.module_size);
    }
    if (s->has_capabilities && !s->replay && s->input.data &&
        !host_is_json(s->input.data, s->input.len)) {
        err_set(&err, ERR_INVALID, "--args is not JSON, which programs with carrel.1 require");
        return session_fail(s, CELL_USAGE, &err);
    }
    return CELL_OK;
}

static int define_imports(struct session *s, struct err *err) {
    for (uint32_t i = 0; i < wasm_module_imports(s->module); i++) {
        struct wasm_import in;
        wasm_module_import(s->module, i, &in);
        if (host_define(s, &in, err) < 0)
            return -1;
    }
    return 0;
}

/* --memory is one limit for all memories, tables, objects and code of a program. */
static void limit_remedy(const struct session *s, struct err *err) {
    err_remedy(err,
               "%s is %" PRIu64 " pages of 64 KiB, for memories, tables, objects and code "
               "together; raise it",
               s->job->options->in_machine ? "--mem" : "--memory", s->pages);
}

int session_link(struct session *s) {
    struct err err;
    s->store = wasm_store_new(s->engine);
    if (!s->store)
        return out_of_memory(s);
    if (define_imports(s, &err) < 0 || (s->has_wasi && host_wasi_start(s, &err) < 0))
        return session_fail(s, CELL_INVALID, &err);
    if (wasm_instance_new(s->store, s->module, NULL, 0, &s->instance, &err) < 0) {
        if (err.code == ERR_LIMIT)
            limit_remedy(s, &err);
        return session_fail(s, err.code == ERR_LIMIT ? CELL_LIMIT : CELL_INVALID, &err);
    }
    return CELL_OK;
}

/* --- running --- */

static void session_keep(struct ending *ret, const struct wasm_event *ev) {
    *ret = (struct ending){.outcome = ev->outcome, .text = ev->text, .needed = ev->needed};
    if (ev->outcome != WASM_DONE && ev->outcome != WASM_THROWN)
        return;
    ret->values.count = ev->n_values < CELL_LOG_VALUES ? ev->n_values : CELL_LOG_VALUES;
    if (ret->values.count)
        memcpy(ret->values.list, ev->values, ret->values.count * sizeof(*ev->values));
}

/* Fuel between two updates of the meter: a few milliseconds. */
enum { METER_SLICE = 1 << 20, SLICES_PER_SECOND = 20, PACE_AHEAD_NS = 1000000000 };

/* Returns the fuel that is left until --suspend-at, or until the meter is updated. */
static uint64_t next_slice(const struct session *s) {
    const struct cell_options *o = s->job->options;
    uint64_t used = wasm_fuel_used(s->store), paced = o->fuel_rate / SLICES_PER_SECOND + 1;
    uint64_t slice = o->meter ? METER_SLICE : UINT64_MAX;
    if (o->fuel_rate && slice > paced)
        slice = paced;
    if (!o->has_suspend_at)
        return slice;
    uint64_t left = o->suspend_at > used ? o->suspend_at - used : 0;
    return left < slice ? left : slice;
}

/* Waits until the fuel that was used so far fits the limit of fuel per second. */
static void session_pace(struct session *s, uint64_t used) {
    const struct cell_options *o = s->job->options;
    if (!o->fuel_rate)
        return;
    uint64_t now = link_monotonic_ns(s->link);
    if (!s->began_ns)
        s->began_ns = now;
    uint64_t due = (uint64_t)((unsigned __int128)used * 1000000000 / o->fuel_rate);
    if (now - s->began_ns > due + PACE_AHEAD_NS) /* time without work does not add up */
        s->began_ns = now - due - PACE_AHEAD_NS;
    if (due > now - s->began_ns)
        link_wait(s->link, false, due - (now - s->began_ns));
}

void session_meter(struct session *s) {
    const struct cell_options *o = s->job->options;
    uint64_t used = s->fuel_outside + wasm_fuel_used(s->store) - s->fuel_before;
    if (o->meter)
        atomic_store_explicit(o->meter, used, memory_order_relaxed);
    session_pace(s, used);
}

int session_drive(struct session *s, struct ending *ret) {
    struct err err;
    for (;;) {
        uint64_t slice = next_slice(s);
        if (slice == 0) {
            *ret = (struct ending){.outcome = WASM_SLICE, .suspended = true};
            return CELL_OK;
        }
        if (session_must_pause(s))
            session_pause(s);
        const struct wasm_event *ev = wasm_run(s->store, slice);
        session_meter(s);
        if (ev->outcome == WASM_SLICE)
            continue;
        if (ev->outcome != WASM_HOST)
            return session_keep(ret, ev), CELL_OK;
        int answered;
        while ((answered = host_answer(s, ev, ret, &err)) == HOST_PAUSES)
            session_pause(s);
        if (answered < 0)
            return session_fail(s, s->replay ? CELL_STATE : CELL_INTERNAL, &err);
        if (answered > 0)
            return CELL_OK;
    }
}

int session_call(struct session *s, struct slice function, const struct cell_values *args,
                 struct ending *ret) {
    struct wasm_extern f;
    struct err err;
    if (!wasm_export(s->instance, (const char *)function.data, function.len, &f) ||
        f.kind != WASM_FUNC) {
        err_set(&err, ERR_NOT_FOUND, "module %s exports no function '%.*s'", s->job->file,
                (int)(function.len < 80 ? function.len : 80), (const char *)function.data);
        err_remedy(&err, "`carrel cell check` lists the exported functions");
        return session_fail(s, CELL_INVALID, &err);
    }
    if (wasm_call(s->store, f, args->list, args->count, &err) < 0)
        return session_fail(s, CELL_INVALID, &err);
    return session_drive(s, ret);
}
