/*
 * The far end of a session that is the daemon: our pipes are handed in with the request, the
 * answer is a stream of events; a terminal is a WebSocket.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "cli/remote.h"
#include "cli/session.h"
#include "cli/table.h"

enum { LINE_MAX_BYTES = 4 << 20, MESSAGE_MAX = 1 << 20 };

void remote_done(struct remote *r) {
    ws_client_freep(&r->ws);
    http_client_freep(&r->second);
    buf_done(&r->line);
}

static int take_stream(struct session *s, struct err *err);
static int take_messages(struct session *s, struct err *err);

/* ---- the request ---- */

static void put_env(struct jot *j, const char *const *env) {
    jot_object(j, "env");
    for (; *env; env++) {
        char name[256];
        const char *eq = strchr(*env, '=');
        if (!eq || (size_t)(eq - *env) >= sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)(eq - *env), *env);
        jot_string(j, name, eq + 1);
    }
    jot_end(j, '}');
}

static void put_exec(struct jot *j, const struct session *s) {
    char user[16], seconds[40];
    snprintf(user, sizeof(user), "%u", s->exec.uid);
    jot_object(j, NULL);
    jot_array(j, "argv");
    for (const char *const *word = s->exec.argv.v; *word; word++)
        jot_string(j, NULL, *word);
    jot_end(j, ']');
    put_env(j, s->exec.env.v);
    jot_string(j, "cwd", s->exec.cwd.s);
    jot_string(j, "user", user);
    if (s->exec.timeout_ms) {
        snprintf(seconds, sizeof(seconds), "%.3f", (double)s->exec.timeout_ms / 1000);
        jot_raw(j, "timeout", seconds);
    }
    if (s->terminal) {
        jot_bool(j, "terminal", true);
        jot_bool(j, "background", true);
        jot_object(j, "size");
        jot_u64(j, "rows", s->exec.rows ? s->exec.rows : 24);
        jot_u64(j, "cols", s->exec.cols ? s->exec.cols : 80);
        jot_end(j, '}');
    } else {
        jot_array(j, "stdio");
        for (int n = 0; n < 3; n++)
            jot_string(j, NULL, s->exec.stdio[n] == MSG_STDIO_FD ? "fd" : "null");
        jot_end(j, ']');
    }
    jot_end(j, '}');
}

static int start_terminal(struct session *s, const char *target, const struct buf *body,
                          struct err *err) {
    struct remote *r = s->remote;
    char attach[CLIENT_TARGET_SIZE];
    json_t *x DEFER(json_free) = NULL;
    const struct client_request request = {.method = "POST", .target = target, .body = body};
    const struct http_pair fields[] = {
        {r->client->bearer[0] ? "Authorization" : NULL, r->client->bearer}, {NULL, NULL}};
    if (client_call(r->client, &request, &x, err) < 0)
        return -1;
    snprintf(r->exec, sizeof(r->exec), "%s", client_text(x, "id"));
    if (client_target(attach, err, "/v1/machines/%s/pty?exec=%s", r->machine, r->exec) < 0)
        return -1;
    r->ws = ws_client_open(r->client->http, attach, fields, MESSAGE_MAX, err);
    return r->ws ? take_messages(s, err) : -1;
}

static int start(struct session *s, const int *fds, uint32_t count, struct err *err) {
    struct remote *r = s->remote;
    struct buf body DEFER(buf_done) = BUF(2 << 20);
    struct jot j = JOT(&body);
    const struct http_head *head;
    char target[CLIENT_TARGET_SIZE];
    r->line = BUF(LINE_MAX_BYTES);
    put_exec(&j, s);
    if (j.failed)
        return err_set(err, ERR_LIMIT, "the command is too long");
    if (client_target(target, err, "/v1/machines/%s/execs", r->machine) < 0)
        return -1;
    if (s->terminal)
        return start_terminal(s, target, &body, err);
    const struct client_request request = {.method = "POST",
                                           .target = target,
                                           .body = &body,
                                           .accept = "application/x-ndjson",
                                           .fds = fds,
                                           .nfds = count};
    if (client_send(r->client, r->client->http, &request, err) < 0 ||
        client_answer(r->client->http, &head, err) < 0)
        return -1;
    /* What came with the head is here already, and poll() would not tell. */
    return take_stream(s, err);
}

/* ---- what comes back ---- */

static void take_exec(struct session *s, const json_t *x) {
    const json_t *usage = json_object_get(x, "usage");
    struct msg_exit *e = &s->result.exit;
    const char *reason = client_text(x, "reason");
    long long sig = client_number(x, "signal"), status = client_number(x, "status");
    *e = (struct msg_exit){.status = (uint32_t)(sig ? sig : status),
                           .flags = sig ? MSG_EXIT_SIGNALED : 0,
                           .user_us = (uint64_t)client_number(usage, "user_us"),
                           .system_us = (uint64_t)client_number(usage, "system_us"),
                           .max_rss_kb = (uint64_t)client_number(usage, "max_rss_kb"),
                           .wall_us = (uint64_t)client_number(usage, "wall_us")};
    if (strcmp(reason, "timeout") == 0)
        e->flags |= MSG_EXIT_TIMED_OUT;
    if (strcmp(reason, "memory") == 0)
        snprintf(s->reason, sizeof(s->reason), "killed: the memory limit was reached");
    if (strcmp(client_text(x, "state"), "failed") == 0)
        snprintf(s->reason, sizeof(s->reason), "%s", reason);
    s->exited = true;
    s->output_open = false;
}

static int take_event(struct session *s, const char *line, size_t n, struct err *err) {
    json_t *event DEFER(json_free) = json_loadb(line, n, 0, NULL);
    const char *type = client_text(event, "type");
    const json_t *x = json_object_get(event, "exec");
    if (strcmp(type, "start") == 0)
        snprintf(s->remote->exec, sizeof(s->remote->exec), "%s", client_text(event, "exec"));
    else if (strcmp(type, "exit") == 0 && strcmp(client_text(x, "state"), "unknown") == 0)
        return err_set(err, ERR_UNKNOWN, "how it ended is not known: %s", client_text(x, "reason"));
    else if (strcmp(type, "exit") == 0)
        take_exec(s, x);
    else if (json_object_get(event, "error"))
        return err_set(err, ERR_INTERNAL, "%s",
                       client_text(json_object_get(event, "error"), "message"));
    return 0;
}

static int take_lines(struct session *s, const char *bytes, size_t n, struct err *err) {
    struct buf *line = &s->remote->line;
    if (!buf_add(line, bytes, n))
        return err_set(err, ERR_LIMIT, "an event is too long");
    char *at = line->data, *end;
    for (; (end = memchr(at, '\n', line->len - (size_t)(at - line->data))); at = end + 1)
        if (take_event(s, at, (size_t)(end - at), err) < 0)
            return -1;
    line->len -= (size_t)(at - line->data);
    memmove(line->data, at, line->len);
    return 0;
}

static int take_stream(struct session *s, struct err *err) {
    struct http_client *http = s->remote->client->http;
    const char *bytes;
    size_t n;
    int more = 1;
    http_client_set_timeout(http, 0); /* what is here, and no more */
    while (!s->exited && (more = http_client_read(http, &bytes, &n, err)) > 0)
        if (take_lines(s, bytes, n, err) < 0)
            return -1;
    http_client_set_timeout(http, -1);
    if (more < 0 && err->code == ERR_TIMEOUT)
        return 0;
    if (more == 0)
        return err_set(err, ERR_UNKNOWN, "the daemon ended before the command");
    return more < 0 ? -1 : 0;
}

static int take_messages(struct session *s, struct err *err) {
    struct ws_event e;
    int more;
    while ((more = ws_client_next(s->remote->ws, 0, &e, err)) > 0) {
        if (e.opcode == WS_BINARY) {
            int w = write_all(STDOUT_FILENO, e.data, e.n);
            if (w < 0)
                return err_num(err, w, "write output");
        } else if (e.opcode == WS_TEXT) {
            if (take_event(s, e.data, e.n, err) < 0)
                return -1;
        } else if (e.opcode == WS_CLOSE) {
            s->output_open = false;
            return s->exited ? 0 : err_set(err, ERR_UNKNOWN, "the terminal was closed");
        }
    }
    return more;
}

static int take(struct session *s, struct err *err) {
    return s->terminal ? take_messages(s, err) : take_stream(s, err);
}

static int far_fd(const struct session *s) {
    return http_client_fd(s->remote->client->http);
}

static short far_events(const struct session *s) {
    (void)s;
    return POLLIN;
}

/* ---- what we say meanwhile ---- */

static void post(struct session *s, const char *verb, const struct buf *body) {
    struct remote *r = s->remote;
    struct client again = *r->client;
    char target[CLIENT_TARGET_SIZE];
    struct err err;
    const struct client_request request = {.method = "POST", .target = target, .body = body};
    if (!r->exec[0] ||
        client_target(target, &err, "/v1/machines/%s/execs/%s/%s", r->machine, r->exec, verb) < 0)
        return;
    if (!r->second)
        r->second = client_again(r->client, &err);
    again.http = r->second;
    if (r->second)
        client_call(&again, &request, NULL, &err); /* too late is no error */
}

static void send_signal(struct session *s, uint32_t number) {
    struct buf body DEFER(buf_done) = BUF(128);
    if (buf_addf(&body, "{\"signal\":\"%u\",\"main_only\":true}", number))
        post(s, "signal", &body);
}

static void resize(struct session *s, uint16_t rows, uint16_t cols) {
    struct buf body DEFER(buf_done) = BUF(128);
    if (rows && cols && buf_addf(&body, "{\"rows\":%u,\"cols\":%u}", rows, cols))
        post(s, "resize", &body);
}

static bool may_type(const struct session *s) {
    return !s->exited;
}

static int type(struct session *s, const char *bytes, size_t n, struct err *err) {
    return n ? ws_client_send(s->remote->ws, WS_BINARY, bytes, n, err)
             : ws_client_send(s->remote->ws, WS_BINARY, "\4", 1, err); /* end of input: ^D */
}

const struct far_driver far_daemon = {
    .start = start,
    .fd = far_fd,
    .events = far_events,
    .take = take,
    .signal = send_signal,
    .resize = resize,
    .may_type = may_type,
    .type = type,
};
