/*
 * Requests of the data plane: which procedure it is, its message, and the answers. It runs on the
 * loop, so it must not block.
 */
#include "api/e2b/envd.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/code.h"
#include "api/e2b/envd_inner.h"
#include "api/e2b/transfers.h"
#include "api/e2b/watches.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/text/base64.h"
#include "io/http_uri.h"
#include "service/files.h"
#include "service/volumes/volumes.h"

enum { TICK_MS = 1000, KEEPALIVE_DEFAULT_S = 90, HEAD_MAX = 512, VOLUME_BODY_MAX = 4096 };

struct envd {
    struct loop *loop;
    struct service *service;
    struct loop_timer *clock; /* runs while there are streams */
    struct watches *watches;
    struct code *code;
    struct envd_call *calls;
    size_t busy;
    bool freed;
};

#define PROCESS "/process.Process/"
#define FILESYSTEM "/filesystem.Filesystem/"

static const struct envd_method methods[] = {
    {PROCESS "Start", ENVD_STREAM, true, envd_process_start},
    {PROCESS "Connect", ENVD_STREAM, false, envd_process_connect},
    {PROCESS "List", ENVD_UNARY, false, envd_process_list},
    {PROCESS "SendInput", ENVD_UNARY, false, envd_process_input},
    {PROCESS "StreamInput", ENVD_STREAM, false, envd_process_stream_input, .takes_many = true},
    {PROCESS "CloseStdin", ENVD_UNARY, false, envd_process_close_stdin},
    {PROCESS "SendSignal", ENVD_UNARY, false, envd_process_signal},
    {PROCESS "Update", ENVD_UNARY, false, envd_process_update},
    {FILESYSTEM "Stat", ENVD_UNARY, true, envd_files_stat},
    {FILESYSTEM "ListDir", ENVD_UNARY, true, envd_files_list},
    {FILESYSTEM "MakeDir", ENVD_UNARY, true, envd_files_make_dir},
    {FILESYSTEM "Move", ENVD_UNARY, true, envd_files_move},
    {FILESYSTEM "Remove", ENVD_UNARY, true, envd_files_remove},
    {FILESYSTEM "WatchDir", ENVD_STREAM, true, envd_files_watch},
    {FILESYSTEM "CreateWatcher", ENVD_UNARY, true, envd_files_watcher_new},
    {FILESYSTEM "GetWatcherEvents", ENVD_UNARY, false, envd_files_watcher_poll},
    {FILESYSTEM "RemoveWatcher", ENVD_UNARY, false, envd_files_watcher_remove},
};

static void envd_variables(struct envd_call *c);
static const struct envd_method download = {"GET", ENVD_PLAIN, true, envd_download};
static const struct envd_method variables = {"GET", ENVD_PLAIN, false, envd_variables};
static const struct envd_method upload = {"POST", ENVD_PLAIN, true, envd_upload};

static const struct envd_method *method_of(struct http_text path) {
    for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
        if (http_text_is(path, methods[i].path))
            return &methods[i];
    return NULL;
}

static bool has_prefix(struct http_text t, const char *s) {
    return t.n >= strlen(s) && memcmp(t.s, s, strlen(s)) == 0;
}

/* ---- the end of a call ---- */

static void envd_call_free(struct envd_call *c) {
    struct envd *e = c->envd;
    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    if (c->is_volume)
        service_volume_leave(c->service, c->machine);
    if (c->used[0])
        service_use_over(c->service, c->used);
    json_decref(c->json);
    buf_done(&c->passwd);
    buf_done(&c->group);
    free(c);
    if (--e->busy == 0 && e->freed)
        free(e);
}

void envd_reply(struct envd_call *c, int status, const struct http_pair *fields, const void *body,
                size_t n) {
    http_reply(c->http, status, fields, body, n);
    envd_call_free(c);
}

void envd_drop(struct envd_call *c) {
    http_drop(c->http);
    envd_call_free(c);
}

void envd_close(struct envd_call *c) {
    http_end(c->http);
    envd_call_free(c);
}

static const struct http_pair json_fields[] = {
    {"Content-Type", "application/json"}, {"Cache-Control", "no-store"}, {NULL, NULL}};

void envd_answer(struct envd_call *c, const struct jot *j, const struct buf *text) {
    if (j->failed)
        envd_fail(c, CONNECT_RESOURCE_EXHAUSTED, "the answer is larger than %d MiB",
                  ENVD_ANSWER_MAX >> 20);
    else
        envd_reply(c, 200, json_fields, text->data, text->len);
}

void envd_done(struct envd_call *c) {
    envd_reply(c, 200, json_fields, "{}", 2);
}

/* ---- streams ---- */

void envd_begin(struct envd_call *c) {
    const char *type =
        c->method->kind == ENVD_REST ? "application/x-ndjson" : "application/connect+json";
    c->begun = true;
    c->quiet_since_ms = loop_now_ms(c->envd->loop);
    http_begin(c->http, 200, HTTP_FIELDS({"Content-Type", type}, {"Cache-Control", "no-store"}),
               -1);
}

bool envd_line(struct envd_call *c, const char *message, size_t n) {
    c->quiet_since_ms = loop_now_ms(c->envd->loop);
    http_write(c->http, message, n);
    return http_write(c->http, "\n", 1);
}

static bool envd_put(struct envd_call *c, uint8_t flags, const char *message, size_t n) {
    struct buf b DEFER(buf_done) = BUF(n + CONNECT_HEAD);
    if (!connect_put(&b, flags, message, n))
        abort(); /* cannot fail: the buffer was made for it */
    c->quiet_since_ms = loop_now_ms(c->envd->loop);
    return http_write(c->http, b.data, b.len);
}

bool envd_send(struct envd_call *c, const struct jot *j, const struct buf *text) {
    return j->failed || envd_put(c, 0, text->data, text->len);
}

static void envd_finish(struct envd_call *c, const char *message, size_t n) {
    if (!c->begun)
        envd_begin(c);
    envd_put(c, CONNECT_END, message, n);
    http_end(c->http);
    envd_call_free(c);
}

void envd_end_with(struct envd_call *c, const char *message) {
    envd_begin(c);
    envd_put(c, 0, message, strlen(message));
    envd_end(c);
}

void envd_end(struct envd_call *c) {
    envd_finish(c, "{}", 2);
}

/* ---- errors ---- */

static void put_error(struct jot *j, const char *name, enum connect_code code, const char *text) {
    jot_object(j, name);
    jot_string(j, "code", connect_code_name(code));
    jot_string(j, "message", text);
    jot_end(j, '}');
}

static void envd_fail_text(struct envd_call *c, enum connect_code code, const char *text) {
    struct buf out DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&out);
    if (c->method->kind == ENVD_STREAM) {
        jot_object(&j, NULL);
        put_error(&j, "error", code, text);
        jot_end(&j, '}');
        envd_finish(c, out.data, out.len);
        return;
    }
    if (c->method->kind == ENVD_PLAIN || c->method->kind == ENVD_REST) {
        envd_refuse(c, connect_code_status(code), "%s", text);
        return;
    }
    put_error(&j, NULL, code, text);
    envd_reply(c, connect_code_status(code), json_fields, out.data, out.len);
}

void envd_fail(struct envd_call *c, enum connect_code code, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    envd_fail_text(c, code, text);
}

void envd_fail_with(struct envd_call *c, const struct err *err) {
    envd_fail_text(c, connect_code_of(err->code), err->text);
}

static void refuse_exchange(struct http_exchange *x, int status, const char *text) {
    struct buf out DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&out);
    jot_object(&j, NULL);
    jot_i64(&j, "code", status);
    jot_string(&j, "message", text);
    jot_end(&j, '}');
    http_reply(x, status, json_fields, out.data, out.len);
}

static enum connect_code code_of_status(int status) {
    return status == 413 || status == 431   ? CONNECT_RESOURCE_EXHAUSTED
           : status == 408 || status == 504 ? CONNECT_DEADLINE_EXCEEDED
           : status == 501                  ? CONNECT_UNIMPLEMENTED
           : status == 503                  ? CONNECT_UNAVAILABLE
           : status >= 500                  ? CONNECT_INTERNAL
                                            : CONNECT_INVALID_ARGUMENT;
}

void envd_refused(struct http_exchange *x, int status, const char *why) {
    const struct envd_method *m = method_of(x->head->path);
    struct buf out DEFER(buf_done) = BUF(4096), framed DEFER(buf_done) = BUF(4096 + CONNECT_HEAD);
    struct jot j = JOT(&out);
    enum connect_code code = code_of_status(status);
    if (!m) {
        refuse_exchange(x, status, why);
    } else if (m->kind == ENVD_UNARY) {
        put_error(&j, NULL, code, why);
        http_reply(x, connect_code_status(code), json_fields, out.data, out.len);
    } else {
        jot_object(&j, NULL);
        put_error(&j, "error", code, why);
        jot_end(&j, '}');
        connect_put(&framed, CONNECT_END, out.data, out.len);
        http_reply(x, 200, HTTP_FIELDS({"Content-Type", "application/connect+json"}), framed.data,
                   framed.len);
    }
}

void envd_refuse(struct envd_call *c, int status, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (c->method->kind == ENVD_REST) /* clients show the whole body */
        http_reply(c->http, status, HTTP_FIELDS({"Content-Type", "text/plain; charset=utf-8"}),
                   text, strlen(text));
    else
        refuse_exchange(c->http, status, text);
    envd_call_free(c);
}

/* ---- from the request to the handler ---- */

void envd_file(struct envd_call *c, uint16_t type, const void *msg, const char *path,
               void (*done)(void *arg, const struct frame *frame, const struct err *err),
               void *arg) {
    service_file(c->service, &c->who, c->machine, type, msg, path, done, arg);
}

/* The user in "Authorization: Basic", whose password is empty. 0: none. -1: malformed. */
static int basic_user(const struct http_head *head, char ret[ENVD_NAME_SIZE]) {
    struct http_text field = http_field_only(head, "Authorization");
    char text[ENVD_NAME_SIZE * 2];
    size_t n;
    if (!field.s)
        return 0;
    if (field.n < 6 || field.n > ENVD_NAME_SIZE ||
        !http_text_is_like((struct http_text){field.s, 6}, "Basic ") ||
        !base64_decode(field.s + 6, field.n - 6, text, &n))
        return -1;
    const char *colon = memchr(text, ':', n);
    snprintf(ret, ENVD_NAME_SIZE, "%.*s", (int)(colon ? colon - text : (ptrdiff_t)n), text);
    return ret[0] ? 1 : 0;
}

static void envd_handle(struct envd_call *c);

static void envd_awake(void *arg, const struct err *err) {
    struct envd_call *c = arg;
    if (err)
        envd_fail_with(c, err);
    else
        envd_handle(c);
}

static void envd_handle(struct envd_call *c) {
    char user[ENVD_NAME_SIZE];
    if (!c->is_volume && /* its machine has been entered */
        service_use(c->service, &c->who, c->machine, true, envd_awake, c, c->used))
        return;
    if (!c->method->needs_user) {
        c->method->handle(c);
        return;
    }
    size_t n;
    int given = c->method->kind == ENVD_PLAIN
                    ? http_query_get(c->http->head->query, "username", user, sizeof(user), &n)
                    : basic_user(c->http->head, user);
    if (given < 0)
        envd_fail(c, CONNECT_UNAUTHENTICATED, "the request names no user of the sandbox");
    else
        envd_as_user(c, given && user[0] ? user : NULL, c->method->handle);
}

static void envd_gone(struct http_exchange *x) {
    struct envd_call *c = x->user;
    if (c->on_gone)
        c->on_gone(c);
}

static void envd_drained(struct http_exchange *x) {
    struct envd_call *c = x->user;
    if (c->on_drain)
        c->on_drain(c);
}

static void envd_own(struct envd_call *c) {
    http_hold(c->http);
    c->http->on_gone = envd_gone;
    c->http->on_drain = envd_drained;
}

/* All messages of the client, in a list. */
static int read_messages(struct envd_call *c, const char *bytes, size_t n, struct err *err) {
    struct http_text rest = {bytes, n}, message;
    int got;
    c->json = json_array();
    while ((got = connect_next(&rest, ENVD_BODY_MAX, &message, err)) > 0) {
        json_t *one = json_loadb(message.s, message.n, 0, NULL);
        if (json_array_append_new(c->json, json_is_object(one) ? json_incref(one) : NULL) < 0)
            got = err_set(err, ERR_INVALID, "a message is not a JSON object");
        json_decref(one);
        if (got < 0)
            return -1;
    }
    if (got == 0 && rest.n)
        return err_set(err, ERR_INVALID, "the body ends within the envelope of a message");
    return got;
}

static int read_message(struct envd_call *c, const char *bytes, size_t n, struct err *err) {
    struct http_text message = {bytes, n};
    json_error_t why;
    if (c->method->takes_many)
        return read_messages(c, bytes, n, err);
    if (c->method->kind == ENVD_STREAM && connect_only(message, ENVD_BODY_MAX, &message, err) < 0)
        return -1;
    c->json = json_loadb(message.n ? message.s : "{}", message.n ? message.n : 2, 0, &why);
    if (!json_is_object(c->json))
        return err_set(err, ERR_INVALID, "the message is not a JSON object: %.100s",
                       c->json ? "it is another value" : why.text);
    return 0;
}

static void message_came(struct http_exchange *x, const char *bytes, size_t n) {
    struct envd_call *c = x->user;
    struct err err;
    envd_own(c);
    if (read_message(c, bytes, n, &err) < 0)
        envd_fail_with(c, &err);
    else
        envd_handle(c);
}

/* Until the body is complete the HTTP server owns the exchange and sends its own error. */
static void message_failed(struct http_exchange *x) {
    envd_call_free(x->user);
}

/* Clients call it so that proxies between do not take a silent stream for a dead one. */
static uint64_t keepalive_ms(const struct http_head *head) {
    struct http_text field = http_field_only(head, "Keepalive-Ping-Interval");
    char text[16];
    uint64_t seconds = KEEPALIVE_DEFAULT_S;
    if (field.s && field.n < sizeof(text)) {
        snprintf(text, sizeof(text), "%.*s", (int)field.n, field.s);
        if (parse_u64(text, 1, 3600, &seconds, NULL) < 0)
            seconds = KEEPALIVE_DEFAULT_S;
    }
    return seconds * 1000;
}

static struct envd_call *envd_call_new(struct envd *e, struct http_exchange *x,
                                       const struct envd_sandbox *sandbox) {
    struct envd_call *c = xnew(struct envd_call);
    *c = (struct envd_call){.envd = e,
                            .service = e->service,
                            .http = x,
                            .who = *sandbox->who,
                            .as_image = sandbox->as_image,
                            .keepalive_ms = keepalive_ms(x->head),
                            .next = e->calls,
                            .at = &e->calls};
    snprintf(c->machine, sizeof(c->machine), "%s", sandbox->machine);
    if (c->next)
        c->next->at = &c->next;
    e->calls = c;
    e->busy++;
    x->user = c;
    loop_timer_start(e->clock, TICK_MS, TICK_MS);
    return c;
}

/* Refuses what cannot be a message before its body is read. True: it was answered. */
static bool refuse_message(struct envd_call *c) {
    const struct http_head *head = c->http->head;
    struct http_text type = http_field_only(head, "Content-Type");
    const char *wanted =
        c->method->kind == ENVD_STREAM ? "application/connect+json" : "application/json";
    if (!type.s || !has_prefix(type, wanted)) {
        envd_reply(c, 415, HTTP_FIELDS({"Accept-Post", wanted}), NULL, 0);
        return true;
    }
    if (head->framing == HTTP_SIZED && head->length > ENVD_BODY_MAX) {
        http_hold(c->http);
        envd_fail(c, CONNECT_RESOURCE_EXHAUSTED, "the message is larger than %d MiB",
                  ENVD_BODY_MAX >> 20);
        return true;
    }
    return false;
}

/* The message of a procedure, or the body of JSON of another request. */
static void take_message(struct envd_call *c, size_t max) {
    c->http->on_gone = message_failed;
    c->http->payer = http_payer(c->who.owner);
    http_collect(c->http, max, message_came);
}

static void take_procedure(struct envd *e, struct http_exchange *x, const struct envd_method *m,
                           const struct envd_sandbox *sandbox) {
    struct envd_call *c = envd_call_new(e, x, sandbox);
    c->method = m;
    if (!refuse_message(c))
        take_message(c, ENVD_BODY_MAX + CONNECT_HEAD);
}

/* The handler reads the body itself, at its pace. */
static void take_file(struct envd *e, struct http_exchange *x, const struct envd_method *m,
                      const struct envd_sandbox *sandbox) {
    struct envd_call *c = envd_call_new(e, x, sandbox);
    c->method = m;
    envd_own(c);
    envd_handle(c);
}

/* NULL: the request may go on. */
static const char *why_unsigned(const struct http_exchange *x, const struct envd_sandbox *sandbox) {
    static const char *const reasons[] = {
        [TRANSFER_SIGNED] = NULL,
        [TRANSFER_UNSIGNED] = "missing signature query parameter",
        [TRANSFER_FORGED] = "invalid signature",
        [TRANSFER_EXPIRED] = "signature is already expired",
    };
    if (sandbox->authorised)
        return NULL;
    return http_field_find(x->head, "X-Access-Token")
               ? "unauthorized access, the header X-Access-Token is wrong"
               : reasons[transfer_right_of(x, sandbox->token)];
}

static void take_files(struct envd *e, struct http_exchange *x,
                       const struct envd_sandbox *sandbox) {
    const char *why = why_unsigned(x, sandbox);
    if (why)
        refuse_exchange(x, 401, why);
    else if (http_text_is(x->head->method, "GET"))
        take_file(e, x, &download, sandbox);
    else if (http_text_is(x->head->method, "POST"))
        take_file(e, x, &upload, sandbox);
    else
        http_reply(x, 405, HTTP_FIELDS({"Allow", "GET, POST"}), NULL, 0);
}

void envd_take(struct envd *e, struct http_exchange *x, const struct envd_sandbox *sandbox) {
    const struct envd_method *m = method_of(x->head->path);
    if (http_text_is(x->head->path, "/files"))
        take_files(e, x, sandbox);
    else if (!sandbox->authorised)
        refuse_exchange(x, 401, "unauthorized access, the header X-Access-Token is wrong");
    else if (http_text_is(x->head->path, "/envs") && http_text_is(x->head->method, "GET"))
        take_file(e, x, &variables, sandbox);
    else if (!m)
        refuse_exchange(x, 404, "this path does not exist in a sandbox");
    else if (!http_text_is(x->head->method, "POST"))
        http_reply(x, 405, HTTP_FIELDS({"Allow", "POST"}), NULL, 0);
    else
        take_procedure(e, x, m, sandbox);
}

/* Clients send the token only with the code that is to run. */
void envd_take_code(struct envd *e, struct http_exchange *x, const struct envd_sandbox *sandbox) {
    const struct envd_method *m = code_method(x->head->method, x->head->path);
    if (!m) {
        refuse_exchange(x, 404, "the code interpreter has no such request");
        return;
    }
    struct envd_call *c = envd_call_new(e, x, sandbox);
    c->method = m;
    take_message(c, ENVD_BODY_MAX + CONNECT_HEAD);
}

void envd_take_volume(struct envd *e, struct http_exchange *x, const struct caller *who,
                      const char *machine, const struct envd_method *m, bool has_body) {
    struct envd_call *c =
        envd_call_new(e, x, &(struct envd_sandbox){.who = who, .machine = machine});
    c->method = m;
    c->is_volume = true;
    snprintf(c->user.home, sizeof(c->user.home), "/");
    if (has_body) {
        take_message(c, VOLUME_BODY_MAX);
        return;
    }
    envd_own(c);
    envd_handle(c);
}

/* GET /envs: the variables of all commands of the sandbox. */
static void envd_variables(struct envd_call *c) {
    struct err err;
    char *json DEFER_FREE = service_machine_env(c->service, &c->who, c->machine, &err);
    if (json)
        envd_reply(c, 200, json_fields, json, strlen(json));
    else
        envd_fail_with(c, &err);
}

/* ---- all streams ---- */

static void state_came(void *arg, const struct machine_view *v, const struct err *err) {
    bool *runs = arg;
    *runs = !err && strcmp(v->state, "running") == 0;
}

static bool machine_runs(struct envd_call *c) {
    bool runs = false;
    service_show(c->service, &c->who, c->machine, state_came, &runs); /* answers at once */
    return runs;
}

static void envd_keep(struct envd_call *c) {
    if (c->method->kind == ENVD_REST)
        envd_line(c, c->keepalive, strlen(c->keepalive));
    else
        envd_put(c, 0, c->keepalive, strlen(c->keepalive));
}

/*
 * Streams of a machine that was paused or stopped are cut: by that a client knows it. Their
 * handlers free no other call.
 */
static void envd_tick(void *arg) {
    struct envd *e = arg;
    uint64_t now = loop_now_ms(e->loop);
    if (!watches_tick(e->watches) && !e->calls)
        loop_timer_stop(e->clock);
    for (struct envd_call *c = e->calls, *next; c; c = next) {
        next = c->next;
        if (!c->begun)
            continue;
        if (!machine_runs(c))
            c->on_gone(c);
        else if (now - c->quiet_since_ms >= c->keepalive_ms && !http_is_full(c->http))
            envd_keep(c);
    }
}

struct envd *envd_new(struct loop *loop, struct service *service) {
    struct envd *e = xnew(struct envd);
    e->loop = loop;
    e->service = service;
    e->watches = watches_new(loop, service);
    e->code = code_new(loop, service);
    e->clock = loop_timer_new(loop, envd_tick, e);
    return e;
}

void envd_free(struct envd *e) {
    if (!e)
        return;
    for (struct envd_call *c = e->calls, *next; c; c = next) {
        next = c->next;
        if (c->on_gone)
            c->on_gone(c);
    }
    watches_free(TAKE(e->watches));
    loop_timer_free(TAKE(e->clock));
    code_free(TAKE(e->code));
    e->freed = true;
    if (!e->busy)
        free(e);
}

struct code *envd_code(struct envd *e) {
    return e->code;
}

struct watches *envd_watches(struct envd *e) {
    return e->watches;
}

size_t envd_busy(const struct envd *e) {
    return e->busy;
}
