#include "cli/remote.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/utf8.h"
#include "cli/session.h"
#include "cli/table.h"
#include "cli/text/aside.h"

enum {
    LINE_MAX_BYTES = 4 << 20,
    MESSAGE_MAX = 1 << 20,
    SCREEN_BYTES = 64 << 10, /* output that is shown again after a reconnect */
};

void remote_done(struct remote *r) {
    ws_client_freep(&r->ws);
    http_client_freep(&r->screen);
    http_client_freep(&r->second);
    http_client_freep(&r->feed);
    buf_done(&r->line);
    buf_done(&r->input);
}

static int take_stream(struct session *s, struct err *err);
static int take_lines(struct session *s, const char *bytes, size_t n, struct err *err);
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

static void put_exec(struct jot *j, const char *name, const struct session *s) {
    char seconds[40];
    jot_object(j, name);
    jot_array(j, "argv");
    for (const char *const *word = s->request.argv; *word; word++)
        jot_string(j, NULL, *word);
    jot_end(j, ']');
    put_env(j, s->request.env);
    if (s->request.cwd)
        jot_string(j, "cwd", s->request.cwd);
    if (s->request.user)
        jot_string(j, "user", s->request.user);
    if (s->request.name)
        jot_string(j, "name", s->request.name);
    if (s->request.timeout_ms) {
        snprintf(seconds, sizeof(seconds), "%.3f", (double)s->request.timeout_ms / 1000);
        jot_raw(j, "timeout", seconds);
    }
    if (s->remote->key[0])
        jot_string(j, "key", s->remote->key);
    if (s->request.terminal) {
        jot_bool(j, "terminal", true);
        jot_object(j, "size");
        jot_u64(j, "rows", s->request.rows ? s->request.rows : 24);
        jot_u64(j, "cols", s->request.cols ? s->request.cols : 80);
        jot_end(j, '}');
    } else if (s->sends) {
        jot_bool(j, "stdin_open", s->request.streams[0] == SESSION_STREAM_SENT);
    } else {
        jot_array(j, "stdio");
        for (int n = 0; n < 3; n++)
            jot_string(j, NULL, s->request.streams[n] == SESSION_STREAM_HANDED ? "fd" : "null");
        jot_end(j, ']');
    }
    jot_end(j, '}');
}

/* Refuses a text that is not UTF-8: JSON would change its bytes. */
static int check_text(const char *what, const char *text, struct err *err) {
    if (utf8_valid(text, strlen(text)))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "%s '%.60s' is not UTF-8", what, text);
    return err_remedy(err, "pass bytes that are not UTF-8 on standard input");
}

static int check_texts(const struct session *s, struct err *err) {
    for (const char *const *word = s->request.argv; *word; word++)
        if (check_text("the argument", *word, err) < 0)
            return -1;
    for (const char *const *env = s->request.env; *env; env++)
        if (check_text("the variable", *env, err) < 0)
            return -1;
    if (s->request.user && check_text("the user", s->request.user, err) < 0)
        return -1;
    return s->request.cwd ? check_text("the directory", s->request.cwd, err) : 0;
}

static int compose(const struct session *s, struct buf *body, struct err *err) {
    const struct remote *r = s->remote;
    struct jot j = JOT(body);
    if (check_texts(s, err) < 0)
        return -1;
    if (r->machine) {
        put_exec(&j, NULL, s);
    } else {
        jot_object(&j, NULL);
        jot_raw(&j, "machine", r->spec->data);
        put_exec(&j, "exec", s);
        jot_end(&j, '}');
    }
    return j.failed ? err_set(err, ERR_LIMIT, "the command line is too long for one request") : 0;
}

/* A terminal has its own connection, and pipes get the output without us: then events are only
 * start and exit. */
static int leave_out_output(const struct session *s, char *target, struct err *err) {
    bool elsewhere = s->request.terminal || !s->sends;
    return client_query(target, "output", elsewhere ? "0" : NULL, err);
}

/* Sends the request. 1: events of the command begin; 0: no answer; -1: refused. */
static int ask_events(struct remote *r, const struct client_request *request, struct err *err) {
    const struct http_head *head = NULL;
    r->line.len = 0;
    if (client_send(r->client, r->client->http, request, err) < 0)
        return err->code == ERR_INVALID
                   ? -1
                   : 0; /* ERR_INVALID: the request is wrong and was not sent */
    if (client_answer(r->client->http, &head, err) == 0)
        return 1;
    return head ? -1 : 0;
}

static int open_stream(struct session *s, const int *fds, size_t count, struct err *err) {
    struct remote *r = s->remote;
    struct buf body DEFER(buf_done) = BUF(2 << 20);
    char target[CLIENT_TARGET_SIZE];
    if (compose(s, &body, err) < 0 ||
        (r->machine ? client_target(target, err, "/v1/machines/%s/execs", r->machine)
                    : client_target(target, err, "/v1/run?%s=1", r->keep ? "keep" : "hold")) < 0 ||
        leave_out_output(s, target, err) < 0)
        return -1;
    const struct client_request request = {.method = "POST",
                                           .target = target,
                                           .body = &body,
                                           .accept = "application/x-ndjson",
                                           .fds = fds,
                                           .nfds = count};
    return ask_events(r, &request, err);
}

/* Opens the terminal of the command on a separate connection. */
static int open_screen(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    char attach[CLIENT_TARGET_SIZE], offset[24];
    snprintf(offset, sizeof(offset), "%" PRIu64, r->shown);
    if (client_target(attach, err, "/v1/machines/%s/pty?exec=%s&offset=%s&wait=1", r->id, r->exec,
                      offset) < 0)
        return -1;
    const char *hint = TAKE(s->hint);
    if (hint)
        fprintf(stderr, "carrel: %s\r\n", hint);
    ws_client_freep(&r->ws);
    http_client_freep(&r->screen);
    r->screen = client_again(r->client, err);
    if (r->screen)
        r->ws = client_websocket(r->client, r->screen, attach, MESSAGE_MAX, err);
    return r->ws ? take_messages(s, err) : -1;
}

/* Attaches to a running command, beginning with the last output on its screen. */
static int come_back(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    char target[CLIENT_TARGET_SIZE];
    json_t *x DEFER(json_decrefp) = NULL;
    const struct client_request q = {.method = "GET", .target = target};
    if (client_target(target, err, "/v1/machines/%s/execs/%s", r->machine, r->exec) < 0 ||
        client_call(r->client, &q, &x, err) < 0)
        return -1;
    if (!json_is_true(json_object_get(x, "terminal")))
        return err_set(err, ERR_INVALID, "command '%s' has no terminal", r->exec);
    uint64_t all = (uint64_t)client_number(x, "stdout_bytes");
    r->shown = all > SCREEN_BYTES ? all - SCREEN_BYTES : 0;
    snprintf(r->id, sizeof(r->id), "%s", client_text(x, "machine"));
    return open_screen(s, err);
}

/* ---- reconnecting ---- */

/* True if the command continues without our connection. If its machine was made only for it, both
 * end with the connection. */
static bool goes_on(const struct session *s) {
    return !s->ends_machine;
}

int remote_lost(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    if (!goes_on(s))
        return err_set(err, ERR_UNKNOWN, "the daemon ended while the command was running");
    r->lost = true;
    r->search.start = CLIENT_IF_MACHINES;
    client_lost(&r->search);
    return 0;
}

static void found(struct remote *r) {
    r->lost = false;
    r->search = (struct client_search){0};
}

static int no_return(const struct remote *r, struct err *err) {
    return r->exec[0]
               ? err_remedy(err, "the command continues; to see how it ends: carrel logs %s", r->id)
               : -1;
}

static int await_daemon(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    if (remote_lost(s, err) < 0)
        return -1;
    return client_await(r->client, &r->search, err) < 0 ? no_return(r, err) : 0;
}

/* Opens the terminal again after a lost connection; the command has continued. */
static int open_again(struct session *s, struct err *err) {
    while (await_daemon(s, err) == 0) {
        if (open_screen(s, err) == 0) {
            found(s->remote);
            return 0;
        }
        if (err->code == ERR_GONE || err->code == ERR_DENIED || err->code == ERR_NOT_FOUND)
            break;
        usleep(CLIENT_AGAIN_MS * 1000);
    }
    return err_wrap(err, "cannot reconnect to command '%s'", s->remote->exec);
}

/* Asks for the events again, from the last position. */
static int open_events(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    char target[CLIENT_TARGET_SIZE], out[24], errors[24];
    const struct client_request q = {
        .method = "GET", .target = target, .accept = "application/x-ndjson"};
    snprintf(out, sizeof(out), "%" PRIu64, r->seen[0]);
    snprintf(errors, sizeof(errors), "%" PRIu64, r->seen[1]);
    if (client_target(target, err, "/v1/machines/%s/execs/%s/events?stdout=%s&stderr=%s", r->id,
                      r->exec, out, errors) < 0 ||
        leave_out_output(s, target, err) < 0)
        return -1;
    int there = ask_events(r, &q, err);
    return there < 0 ? err_wrap(err, "cannot reconnect to command '%s'", r->exec) : there;
}

int remote_return(struct session *s, struct err *err) {
    struct remote *r = s->remote;
    if (r->interrupted) {
        err_set(err, ERR_UNKNOWN, "interrupted while waiting for the daemon to come back");
        return no_return(r, err);
    }
    int there = client_look(r->client, &r->search, err);
    if (there < 0)
        return no_return(r, err);
    if (there > 0)
        there = open_events(s, err);
    if (there <= 0)
        return there;
    found(r);
    return take_stream(s, err) < 0 ? -1 : far_feed_again(s, err);
}

/* Waits for the id of the command; 0: the daemon died before it sent the id. */
static int await_start(struct session *s, struct err *err) {
    struct http_client *http = s->remote->client->http;
    const char *bytes;
    size_t n;
    while (!s->remote->exec[0]) {
        int more = http_client_read(http, &bytes, &n, err);
        if (more <= 0)
            return 0;
        if (take_lines(s, bytes, n, err) < 0)
            return -1;
    }
    return 1;
}

static enum exec_end answer_end(const json_t *exec) {
    return exec_end_of(client_text(exec, "state"), client_text(exec, "reason"));
}

/* True if the daemon died before the command began. */
static bool never_began(struct session *s) {
    struct remote *r = s->remote;
    char target[CLIENT_TARGET_SIZE];
    json_t *x DEFER(json_decrefp) = NULL;
    struct err err;
    const struct client_request q = {.method = "GET", .target = target};
    return client_target(target, &err, "/v1/machines/%s/execs/%s", r->id, r->exec) == 0 &&
           remote_call(r, &q, &x, &err) == 0 && answer_end(x) == EXEC_END_FAILED;
}

static void new_request(struct session *s) {
    struct remote *r = s->remote;
    snprintf(r->key, sizeof(r->key), "%s", id_new('k').text);
    r->exec[0] = '\0';
    s->result = (struct session_result){0};
}

/*
 * Repeats the request until the command has an id. The key of the request makes sure that repeated
 * requests start only one command. A command that never began is started again.
 */
static int start_command(struct session *s, const int *fds, size_t count, struct err *err) {
    if (goes_on(s))
        new_request(s);
    for (bool again = false;;) {
        int named = open_stream(s, fds, count, err);
        if (named > 0)
            named = await_start(s, err);
        if (named < 0)
            return -1;
        if (named > 0 && !(again && never_began(s)))
            return 0;
        if (named > 0)
            new_request(s);
        else if (await_daemon(s, err) < 0)
            return -1;
        again = named == 0;
    }
}

int remote_start(struct session *s, const int *fds, uint32_t count, struct err *err) {
    struct remote *r = s->remote;
    int all[HTTP_CLIENT_FDS_MAX];
    if (r->dir_count + count > HTTP_CLIENT_FDS_MAX)
        return err_set(err, ERR_LIMIT, "too many granted directories and files for one request");
    for (size_t i = 0; i < r->dir_count; i++)
        all[i] = r->dirs[i];
    for (size_t i = 0; i < count; i++)
        all[r->dir_count + i] = fds[i];
    r->line = BUF(LINE_MAX_BYTES);
    if (r->exec[0])
        return come_back(s, err);
    if (start_command(s, all, r->dir_count + count, err) < 0)
        return -1;
    found(r);
    if (s->request.terminal)
        return open_screen(s, err);
    /* Bytes that came with the head of the answer are buffered already: poll() does not report
     * them. */
    return take_stream(s, err);
}

/* ---- events ---- */

static void take_exec(struct session *s, const json_t *x) {
    const json_t *usage = json_object_get(x, "usage");
    struct session_result *r = &s->result;
    *r = (struct session_result){
        .end = answer_end(x),
        .status = (int)client_number(x, "status"),
        .signal = (uint32_t)client_number(x, "signal"),
        .user_us = (uint64_t)client_number(usage, "user_us"),
        .system_us = (uint64_t)client_number(usage, "system_us"),
        .max_rss_kb = (uint64_t)client_number(usage, "max_rss_kb"),
        .wall_us = (uint64_t)client_number(usage, "wall_us"),
        .fuel = json_object_get(usage, "fuel") ? (uint64_t)client_number(usage, "fuel") : 0,
        .check_step = json_is_true(json_object_get(x, "check_step"))};
    if (r->end == EXEC_END_FAILED)
        snprintf(r->reason, sizeof(r->reason), "%s", client_text(x, "reason"));
    s->output_open = false;
}

static void take_start(struct session *s, const json_t *event) {
    struct remote *r = s->remote;
    s->output_ends = json_is_true(json_object_get(event, "copied"));
    const char *warnings = client_text(event, "warnings");
    snprintf(r->exec, sizeof(r->exec), "%s", client_text(event, "exec"));
    snprintf(r->id, sizeof(r->id), "%s", client_text(event, "machine"));
    if (*warnings && !r->quiet)
        fprintf(stderr, "carrel: warning: %s%s\n", warnings, s->request.terminal ? "\r" : "");
}

/* Adds the output bytes that the daemon dropped to the offset; true: some were dropped. */
static bool take_gap(struct remote *r, const json_t *event) {
    uint64_t bytes = (uint64_t)client_number(event, "bytes");
    int stream = strcmp(client_text(event, "stream"), "stderr") == 0;
    r->seen[stream] = (uint64_t)client_number(event, "offset") + bytes;
    r->shown += bytes;
    return bytes;
}

static int take_event(struct session *s, const char *line, size_t n, struct err *err) {
    json_t *event DEFER(json_decrefp) = json_loadb(line, n, 0, NULL);
    const char *type = client_text(event, "type");
    const json_t *x = json_object_get(event, "exec");
    if (strcmp(type, "start") == 0)
        take_start(s, event);
    else if (strcmp(type, "exit") == 0 && answer_end(x) == EXEC_END_UNKNOWN)
        return err_set(err, ERR_UNKNOWN, "the exit status of the command is not known: %s",
                       client_text(x, "reason"));
    else if (strcmp(type, "exit") == 0)
        take_exec(s, x);
    else if (strcmp(type, "stdout") == 0)
        return far_output(s, event, STDOUT_FILENO, err);
    else if (strcmp(type, "stderr") == 0)
        return far_output(s, event, STDERR_FILENO, err);
    else if (strcmp(type, "gap") == 0 && take_gap(s->remote, event))
        fprintf(stderr,
                "\r\ncarrel: %lld bytes of output were dropped: the command wrote too fast\r\n",
                client_number(event, "bytes"));
    else if (json_object_get(event, "error"))
        return err_set(err, ERR_INTERNAL, "%s",
                       client_text(json_object_get(event, "error"), "message"));
    return 0;
}

static int take_lines(struct session *s, const char *bytes, size_t n, struct err *err) {
    struct buf *line = &s->remote->line;
    if (!buf_add(line, bytes, n))
        return err_set(err, ERR_LIMIT, "the daemon sent an event of the command that is too long");
    char *at = line->data, *end;
    for (; (end = memchr(at, '\n', line->len - (size_t)(at - line->data))); at = end + 1)
        if (take_event(s, at, (size_t)(end - at), err) < 0)
            return -1;
    buf_drop(line, (size_t)(at - line->data));
    return 0;
}

static int take_stream(struct session *s, struct err *err) {
    struct http_client *http = s->remote->client->http;
    const char *bytes;
    size_t n;
    int more = 1;
    http_client_set_timeout(http, 0); /* read only what has arrived */
    while ((more = http_client_read(http, &bytes, &n, err)) > 0)
        if (take_lines(s, bytes, n, err) < 0)
            return -1;
    http_client_set_timeout(http, -1);
    if (more < 0 && err->code == ERR_TIMEOUT)
        return 0;
    if (!session_ended(s))
        return remote_lost(s, err);
    s->remote->over = true;
    return 0;
}

static int take_messages(struct session *s, struct err *err) {
    struct ws_event e;
    int more;
    while ((more = ws_client_next(s->remote->ws, 0, &e, err)) > 0) {
        if (e.opcode == WS_BINARY) {
            int w = write_all(STDOUT_FILENO, e.data, e.n);
            if (w == -EIO && s->detaches) { /* our terminal was closed */
                s->result.end = EXEC_END_DETACHED;
                return 0;
            }
            if (w < 0)
                return err_num(err, w, "cannot write the output of the command");
            s->remote->shown += e.n;
            if (s->aside)
                aside_output(s->aside, e.data, e.n);
        } else if (e.opcode == WS_TEXT) {
            if (take_event(s, e.data, e.n, err) < 0)
                return -1;
        } else if (e.opcode == WS_CLOSE) {
            if (!session_ended(s) && goes_on(s))
                return open_again(s, err);
            s->output_open = false;
            s->remote->over = true;
            return session_ended(s)
                       ? 0
                       : err_set(err, ERR_UNKNOWN,
                                 "the daemon closed the terminal before the command ended");
        }
    }
    return more < 0 && goes_on(s) ? open_again(s, err) : more;
}

int remote_take(struct session *s, struct err *err) {
    return s->request.terminal ? take_messages(s, err) : take_stream(s, err);
}

int remote_fd(const struct session *s) {
    if (s->remote->over || s->remote->lost)
        return -1;
    return http_client_fd(s->request.terminal ? s->remote->screen : s->remote->client->http);
}

/* ---- signals and input ---- */

int remote_ask(struct remote *r, const struct client_request *request, const struct http_head **ret,
               struct err *err) {
    if (!r->second)
        r->second = client_again(r->client, err);
    return !r->second || client_send(r->client, r->second, request, err) < 0
               ? -1
               : client_answer(r->second, ret, err);
}

int remote_call(struct remote *r, const struct client_request *request, json_t **ret,
                struct err *err) {
    struct client again = *r->client;
    if (!r->second)
        r->second = client_again(r->client, err);
    again.http = r->second;
    return r->second ? client_call(&again, request, ret, err) : -1;
}

static bool machine_is_paused(struct remote *r) {
    char target[CLIENT_TARGET_SIZE];
    json_t *m DEFER(json_decrefp) = NULL;
    struct err err; /* ignored: the machine may have ended */
    const struct client_request q = {.method = "GET", .target = target};
    return client_target(target, &err, "/v1/machines/%s", r->id) == 0 &&
           remote_call(r, &q, &m, &err) == 0 && strcmp(client_text(m, "state"), "paused") == 0;
}

bool remote_signal(struct session *s, uint32_t number) {
    struct remote *r = s->remote;
    struct buf body DEFER(buf_done) = BUF(128);
    char target[CLIENT_TARGET_SIZE];
    struct err err; /* ignored: the command may have ended */
    const struct client_request request = {.method = "POST", .target = target, .body = &body};
    if (!r->exec[0] || !buf_addf(&body, "{\"signal\":\"%u\",\"main_only\":true}", number) ||
        client_target(target, &err, "/v1/machines/%s/execs/%s/signal", r->id, r->exec) < 0)
        return false;
    return remote_call(r, &request, NULL, &err) == 0 && machine_is_paused(r);
}

void remote_resize(struct session *s, uint16_t rows, uint16_t cols) {
    struct buf text DEFER(buf_done) = BUF(128);
    struct err err; /* ignored: the terminal may be closing */
    if (s->remote->ws && rows && cols &&
        buf_addf(&text, "{\"resize\":{\"rows\":%u,\"cols\":%u}}", rows, cols))
        ws_client_send(s->remote->ws, WS_TEXT, text.data, text.len, &err);
}

static int type_now(struct session *s, const char *bytes, size_t n, struct err *err) {
    return n ? ws_client_send(s->remote->ws, WS_BINARY, bytes, n, err)
             : ws_client_send(s->remote->ws, WS_BINARY, "\4", 1, err); /* end of input: ^D */
}

int remote_type(struct session *s, const char *bytes, size_t n, struct err *err) {
    if (type_now(s, bytes, n, err) == 0)
        return 0;
    return goes_on(s) && open_again(s, err) == 0 ? type_now(s, bytes, n, err) : -1;
}
