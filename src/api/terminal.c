/* Terminals over a WebSocket. Binary messages are keyboard input and screen output, text messages
 * are control ({"resize":{"rows":40,"cols":120}}, {"signal":"INT"}). A client that reconnects gets
 * the earlier output from the command's log, so it misses nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "io/ws_server.h"
#include "service/exec/exec.h"

enum { PIECE = 32 << 10, TYPED_MAX = 64 << 10, MESSAGE_MAX = 64 << 10 };

struct terminal {
    struct service *service;
    struct caller who;
    struct ws *ws;
    struct exec *exec;
    struct exec_follower follower;
    uint64_t offset;  /* bytes of output sent so far */
    struct buf typed; /* input that the command has not read yet */
    bool told;        /* the client was told that the command has ended */
};

/* Reports output that the log dropped before this client read it. */
static void tell_gap(struct terminal *t, uint64_t bytes) {
    struct buf text DEFER(buf_done) = BUF(128);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "type", "gap");
    jot_u64(&j, "bytes", bytes);
    jot_end(&j, '}');
    ws_send(t->ws, WS_TEXT, text.data, text.len);
}

static void show_more(struct terminal *t) {
    unsigned char piece[PIECE];
    const struct outlog *log = exec_log(t->exec);
    for (;;) {
        bool over = exec_is_over(t->exec);
        struct outlog_piece p = {.n = 0};
        if (log)
            p = outlog_read(log, 0, t->offset, piece, sizeof(piece));
        if (p.left_out)
            tell_gap(t, p.left_out);
        t->offset = p.n || p.left_out ? p.offset + p.n : t->offset;
        if (p.n && !ws_send(t->ws, WS_BINARY, piece, p.n))
            return;
        if (p.n)
            continue;
        if (over && !t->told) {
            struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
            struct jot j = JOT(&text);
            struct exec_view view;
            exec_view(t->exec, &view);
            jot_object(&j, NULL);
            jot_string(&j, "type", "exit");
            schema_write(&exec_schema, &j, "exec", &view);
            jot_end(&j, '}');
            t->told = true;
            ws_send(t->ws, WS_TEXT, text.data, text.len);
            ws_close(t->ws, 1000, "the command has ended");
        }
        return;
    }
}

static void terminal_show(struct terminal *t) {
    if (!ws_is_full(t->ws))
        show_more(t);
    exec_consumed(t->exec);
}

/* Passes input to the command. Input that the command does not read waits in t->typed, and the
 * socket is paused. */
static void type(struct terminal *t) {
    struct err err;
    if (!t->typed.len || t->told)
        return;
    ssize_t n = exec_write(t->exec, &t->who, exec_stdin_offset(t->exec), t->typed.data,
                           t->typed.len, false, &err);
    if (n < 0)
        n = (ssize_t)t->typed.len; /* the command has ended: drop the input */
    buf_drop(&t->typed, (size_t)n);
    if (t->typed.len)
        ws_pause(t->ws);
    else
        ws_resume(t->ws);
}

static void terminal_changed(void *arg) {
    struct terminal *t = arg;
    type(t);
    terminal_show(t);
}

static void control(struct terminal *t, const char *data, size_t n) {
    json_t *root = json_loadb(data, n, 0, NULL);
    const json_t *size = json_object_get(root, "resize");
    json_int_t rows = json_integer_value(json_object_get(size, "rows"));
    json_int_t cols = json_integer_value(json_object_get(size, "cols"));
    if (rows > 0 && rows <= 1000 && cols > 0 && cols <= 1000)
        exec_resize(t->exec, &t->who, (uint16_t)rows, (uint16_t)cols, NULL);
    const char *name = json_string_value(json_object_get(root, "signal"));
    int number;
    if (name && signal_number(name, &number, NULL) == 0)
        exec_signal(t->exec, &t->who, number, false, NULL);
    json_decref(root);
}

static void on_message(struct ws *ws, enum ws_opcode kind, const char *data, size_t n) {
    struct terminal *t = ws_user(ws);
    if (!service_caller_stands(t->service, &t->who))
        ws_close(ws, 1008, "the token was revoked");
    else if (kind == WS_TEXT)
        control(t, data, n);
    else if (!buf_add(&t->typed, data, n))
        ws_close(ws, 1009, "input arrives faster than the command reads it");
    else
        type(t);
}

static void on_drain(struct ws *ws) {
    terminal_show(ws_user(ws));
}

static void on_close(struct ws *ws, int code) {
    struct terminal *t = ws_user(ws);
    (void)code;
    exec_unfollow(&t->follower);
    exec_unref(t->exec);
    buf_done(&t->typed);
    free(t);
}

static const struct ws_handler handler = {.on_message = on_message,
                                          .on_drain = on_drain,
                                          .on_close = on_close,
                                          .message_max = MESSAGE_MAX};

/* Turns the connection into the terminal of a new or existing command. */
static void attach(struct call *c, struct exec *x) {
    struct err err;
    if (call_is_gone(c)) {
        exec_unref(x);
        call_abandon(c);
        return;
    }
    struct terminal *t = xnew(struct terminal);
    *t = (struct terminal){
        .service = c->service,
        .who = c->who,
        .exec = x,
        .typed = BUF(TYPED_MAX + MESSAGE_MAX),
        .follower = {.changed = terminal_changed, .arg = t, .wants_output = true}};
    if (call_number(c, "offset", 0, INT64_MAX, &t->offset, &err) < 0) {
        exec_unref(x);
        free(t);
        call_error(c, &err);
        return;
    }
    if (call_query(c, "wait"))
        t->follower.consumed[0] = &t->offset;
    t->ws = call_upgrade(c, &handler, t);
    if (!t->ws) {
        exec_unref(x);
        free(t);
        return;
    }
    exec_follow(x, &t->follower);
    terminal_show(t);
}

/* A request that waits until its command has started; a step of the machine may delay it. */
struct opening {
    struct call *call;
    struct exec_request request;
    const char *env[2];
};

static void started(void *arg, struct exec *x, const struct err *err) {
    struct opening *o DEFER_FREE = arg;
    if (err)
        call_error(o->call, err);
    else
        attach(o->call, x);
}

/* Starts a shell, or the command in the query. */
static void terminal_start(struct call *c) {
    static const char *const shell[] = {
        "/bin/sh", "-c", "if [ -x /bin/bash ]; then exec /bin/bash -l; fi; exec /bin/sh -l"};
    const char *command = call_query(c, "command"), *term = call_query(c, "term");
    struct opening *o = xnew(struct opening);
    *o = (struct opening){.call = c, .env = {"TERM", term}};
    struct exec_request *r = &o->request;
    *r = (struct exec_request){
        .terminal = true,
        .background = true,
        .cwd = call_query(c, "cwd"),
        .user = call_query(c, "user"),
        .command = command,
        .argv = command ? (struct texts){0} : (struct texts){(const char **)shell, 3},
        .env = term ? (struct texts){o->env, 2} : (struct texts){0},
    };
    struct err err;
    if (call_number(c, "rows", 1, 1000, &r->pty.rows.value, &err) < 0 ||
        call_number(c, "cols", 1, 1000, &r->pty.cols.value, &err) < 0)
        started(o, NULL, &err);
    else
        service_exec(c->service, &c->who, c->params[0], r, c->hash, NULL, 0, started, o);
}

void api_terminal(struct call *c) {
    const char *id = call_query(c, "exec");
    struct err err;
    struct exec *x;
    struct exec_view view;
    if (!c->http->head->upgrade) {
        call_needs_upgrade(c);
        return;
    }
    if (!id) {
        terminal_start(c);
        return;
    }
    x = service_exec_find(c->service, &c->who, c->params[0], id, &err);
    if (!x) {
        call_error(c, &err);
        return;
    }
    exec_view(x, &view);
    if (!view.terminal) {
        err_set(&err, ERR_INVALID, "command '%s' has no terminal", id);
        exec_unref(x);
        call_error(c, &err);
        return;
    }
    attach(c, x);
}
