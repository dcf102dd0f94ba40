/* Calls of WASI (cell/wasi/wasi.h) in a session: their fuel, the log, and the world outside. */
#include <errno.h>
#include <string.h>

#include "base/banned.h"
#include "base/defer.h"
#include "cell/session.h"

/* The writes of a call have a head each: a call with many small buffers needs this much. */
enum { MAX_WRITES = 2 << 20 };

/* --- the world outside --- */

static bool outside_write(void *ctx, bool is_error, const void *bytes, size_t len) {
    struct session *s = ctx;
    if (is_error) {
        link_err(s->link, bytes, len);
        return true;
    }
    struct session *top = session_top(s);
    if (top->job->options->json)
        return buf_add(&top->output, bytes, len);
    link_out(s->link, bytes, len);
    return true;
}

static ssize_t outside_read(void *ctx, void *bytes, size_t len) {
    struct session *s = ctx;
    size_t n = len < s->request.len ? len : s->request.len;
    if (n == 0)
        return link_read(s->link, bytes, len);
    memcpy(bytes, s->request.data, n);
    s->request.data += n;
    s->request.len -= n;
    return (ssize_t)n;
}

static uint64_t outside_clock(void *ctx, bool is_monotonic) {
    struct session *s = ctx;
    return is_monotonic ? link_monotonic_ns(s->link) : link_clock_ns(s->link);
}

static void outside_random(void *ctx, void *bytes, size_t len) {
    struct session *s = ctx;
    for (size_t at = 0; at < len; at += JAIL_MAX_RANDOM)
        link_random(s->link, (uint8_t *)bytes + at,
                    len - at < JAIL_MAX_RANDOM ? len - at : JAIL_MAX_RANDOM);
}

static bool outside_wait(void *ctx, bool for_input, uint64_t timeout_ns) {
    struct session *s = ctx;
    return link_wait(s->link, for_input, timeout_ns);
}

static bool has_grant(const struct cell_options *o, const char *name) {
    for (int i = 0; i < o->grant_count; i++)
        if (strcmp(o->grants[i], name) == 0)
            return true;
    return false;
}

int host_wasi_start(struct session *s, struct err *err) {
    const struct cell_options *o = s->job->options;
    if (s->replay)
        return 0;
    struct wasi_config config = {
        .args = o->words,
        .n_args = (size_t)o->word_count,
        .env = o->env,
        .n_env = (size_t)o->env_count,
        .has_clock = has_grant(o, "clock"),
        .has_random = has_grant(o, "random"),
        .seed = o->seed,
        .is_terminal = {s->job->is_terminal[0], s->job->is_terminal[1] && !o->json},
        .outside = {.ctx = s,
                    .write = outside_write,
                    .read = outside_read,
                    .clock_ns = outside_clock,
                    .random = outside_random,
                    .wait = outside_wait},
    };
    for (int i = 0; i < o->dir_count; i++)
        config.preopens[config.n_preopens++] =
            (struct wasi_preopen){.name = o->dirs[i].name,
                                  .fd = s->link->dirs[i],
                                  .is_read_only = o->dirs[i].is_read_only};
    for (int i = 0; i < o->listen_count; i++)
        config.sockets[config.n_sockets++] = s->link->sockets[i];
    wasi_free(s->wasi);
    s->wasi = wasi_new(&config);
    return s->wasi ? 0 : err_set(err, ERR_LIMIT, "cannot start the program: out of memory");
}

/* --- states --- */

static const char state_magic[8] = "CRLWASI";

bool host_wasi_save(const struct session *s, struct buf *ret) {
    uint8_t size[4] = {0};
    struct buf part DEFER(buf_done) = BUF(JAIL_MAX_BLOB);
    if (!wasi_save(s->wasi, &part) || part.len > UINT32_MAX)
        return false;
    for (unsigned i = 0; i < sizeof(size); i++)
        size[i] = (uint8_t)(part.len >> 8 * i);
    return buf_add(ret, state_magic, sizeof(state_magic)) && buf_add(ret, size, sizeof(size)) &&
           buf_add(ret, part.data, part.len);
}

int host_wasi_resume(struct session *s, struct slice *state, struct err *err) {
    const size_t head = sizeof(state_magic) + 4;
    if (state->len < head || memcmp(state->data, state_magic, sizeof(state_magic)) != 0)
        return err_set(err, ERR_INVALID, "the state has no descriptors of WASI");
    const uint8_t *p = state->data + sizeof(state_magic);
    size_t len = p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
    if (len > state->len - head)
        return err_set(err, ERR_INVALID, "the state is cut off");
    if (host_wasi_start(s, err) < 0 ||
        (!s->job->is_untouched && wasi_load(s->wasi, state->data + head, len, err) < 0))
        return -1;
    *state = (struct slice){.data = state->data + head + len, .len = state->len - head - len};
    return 0;
}

/* --- calls --- */

static int answer_call(struct session *s, const struct wasi_func *f, struct wasi_call *c,
                       struct cell_call *call, struct buf *writes, struct err *err) {
    if (s->recording || s->replay)
        call->taken = wasi_taken(f, c);
    if (s->replay) {
        if (host_use_recorded(s, call, writes, err) < 0)
            return -1;
        if (!wasi_rewrite(c, writes->data, writes->len))
            return err_set(err, ERR_INVALID, "a recorded answer does not fit into memory");
        return 0;
    }
    wasi_run(s->wasi, f, c);
    call->results = (struct cell_values){.count = 1, .list = {wasm_i32(c->error)}};
    call->given = (struct slice){.data = (const uint8_t *)writes->data, .len = writes->len};
    if (c->is_log_full || (s->recording && !cell_log_call(&s->log, call)))
        return err_set(err, ERR_LIMIT, "the log of the recorded run is larger than 1 GiB");
    return 0;
}

/* In a replay the functions do not run, so the two that end a program are found by their name. */
static bool ends_program(const struct session *s, const struct wasm_event *ev,
                         const struct wasi_call *c, struct ending *ret) {
    bool is_exit = strcmp(ev->name, "proc_exit") == 0, is_raise = !strcmp(ev->name, "proc_raise");
    struct wasi_call again = *c;
    if (s->replay && (is_exit || is_raise)) {
        again.writes = NULL;
        wasi_run(
            NULL,
            wasi_find(ev->module, strlen(ev->module), ev->name, strlen(ev->name), ev->n_values),
            &again);
    }
    if (!again.has_exited)
        return false;
    *ret = (struct ending){.outcome = WASM_DONE, .has_exited = true, .exit_code = again.exit_code};
    wasm_cancel(s->store);
    return true;
}

static bool reads_standard_input(const struct wasm_event *ev) {
    return strcmp(ev->name, "fd_read") == 0 && ev->n_values && ev->values[0].i32 == 0;
}

static bool stops_here(const struct session *s, const struct wasm_event *ev) {
    return s->stop_at == STOP_AT_INPUT ? reads_standard_input(ev) : s->stop_at == STOP_AT_CALL;
}

int host_wasi_answer(struct session *s, const struct wasi_func *f, const struct wasm_event *ev,
                     struct ending *ret, struct err *err) {
    struct buf writes DEFER(buf_done) = BUF(MAX_WRITES);
    struct wasi_call c = {.args = ev->values,
                          .is_unstable = strcmp(ev->module, "wasi_unstable") == 0,
                          .writes = s->recording ? &writes : NULL};
    char name[64];
    if (stops_here(s, ev)) {
        *ret = (struct ending){.outcome = WASM_SLICE, .suspended = true};
        return 1;
    }
    if (s->link->pause && !s->caller && reads_standard_input(ev) && !s->request.len &&
        !link_wait_input(s->link))
        return HOST_PAUSES;
    snprintf(name, sizeof(name), "%s.%s", ev->module, ev->name);
    c.memory = host_memory(s, &c.size);
    uint64_t cost = wasi_cost(f, &c);
    if (!wasm_fuel_spend(s->store, cost)) {
        *ret = (struct ending){.outcome = WASM_OUT_OF_FUEL, .needed = cost};
        return 1;
    }
    c.fuel_used = wasm_fuel_used(s->store);
    struct cell_call call = {.sequence = ev->sequence,
                             .name = {.data = (const uint8_t *)name, .len = strlen(name)},
                             .args = {.count = ev->n_values}};
    if (ev->n_values)
        memcpy(call.args.list, ev->values, ev->n_values * sizeof(*ev->values));
    if (answer_call(s, f, &c, &call, &writes, err) < 0)
        return -1;
    if (ends_program(s, ev, &c, ret))
        return 1;
    uint32_t n = strcmp(ev->name, "proc_exit") == 0 ? 0 : 1;
    if (call.results.count < n)
        return err_set(err, ERR_INVALID, "a recorded answer has no result");
    return wasm_answer(s->store, call.results.list, n, err);
}
