/*
 * Start and Connect of process.Process: a command, and the stream of what it prints until its end.
 *
 * A command outlives its stream. It prints no further than its slowest stream has read, and a
 * client that connects later gets only what is printed from then on.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/envd_inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/parse.h"
#include "base/text/base64.h"
#include "service/exec/exec.h"

enum { PIECE = 32 << 10, ARGS_MAX = 4096, TIMEOUT_MAX_S = 86400 * 365 };

/* ---- the stream ---- */

struct stream {
    struct envd_call *call;
    struct exec *exec;
    struct exec_follower follower;
    struct outlog_cursor cursor;
    bool terminal;
    bool running; /* stream_go_on() runs: what it calls may call it again */
};

static void stream_free(struct stream *t) {
    exec_unfollow(&t->follower);
    exec_unref(t->exec);
    free(t);
}

static void stream_gone(struct envd_call *c) {
    stream_free(c->state);
    envd_drop(c);
}

/* Opens the object of an event: {"event":{NAME:{ */
static void event_begin(struct jot *j, const char *name) {
    jot_object(j, NULL);
    jot_object(j, "event");
    jot_object(j, name);
}

static bool event_send(struct stream *t, struct jot *j, const struct buf *text) {
    jot_end(j, '}');
    jot_end(j, '}');
    jot_end(j, '}');
    return envd_send(t->call, j, text);
}

static void send_start(struct stream *t, uint64_t pid) {
    struct buf text DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&text);
    event_begin(&j, "start");
    jot_u64(&j, "pid", pid);
    event_send(t, &j, &text);
}

static bool send_output(struct stream *t, const struct outlog_piece *p, const void *bytes) {
    struct buf text DEFER(buf_done) = BUF(BASE64_SIZE(PIECE) + 256);
    char *data DEFER_FREE = xmalloc(BASE64_SIZE(p->n));
    struct jot j = JOT(&text);
    base64_encode(bytes, p->n, data);
    event_begin(&j, "data");
    jot_string(&j, t->terminal ? "pty" : p->stream ? "stderr" : "stdout", data);
    return event_send(t, &j, &text);
}

/* As the program language of E2B's envd names signals. */
static const char *const signal_names[] = {
    [1] = "hangup",
    [2] = "interrupt",
    [3] = "quit",
    [4] = "illegal instruction",
    [5] = "trace/breakpoint trap",
    [6] = "aborted",
    [7] = "bus error",
    [8] = "floating point exception",
    [9] = "killed",
    [10] = "user defined signal 1",
    [11] = "segmentation fault",
    [12] = "user defined signal 2",
    [13] = "broken pipe",
    [14] = "alarm clock",
    [15] = "terminated",
};

static bool has_exited(const struct exec_view *v) {
    return v->end == EXEC_END_EXIT;
}

static void send_end(struct stream *t, const struct exec_view *v) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    char status[64];
    bool exited = has_exited(v);
    size_t names = sizeof(signal_names) / sizeof(*signal_names);
    if (exited)
        snprintf(status, sizeof(status), "exit status %d", (int)v->status);
    else if (v->signal && v->signal < names)
        snprintf(status, sizeof(status), "signal: %s", signal_names[v->signal]);
    else
        snprintf(status, sizeof(status), "signal: %u", v->signal ? (unsigned)v->signal : 9);
    event_begin(&j, "end");
    if (!exited || v->status)
        jot_i64(&j, "exitCode", exited ? v->status : -1);
    if (exited)
        jot_bool(&j, "exited", true);
    jot_string(&j, "status", status);
    if (!exited || v->status)
        jot_string(&j, "error", status);
    event_send(t, &j, &text);
}

/* The last message. The end of a machine cuts the stream, by which a client knows it. */
static void stream_end(struct stream *t, const struct exec_view *v) {
    struct envd_call *c = t->call;
    bool lost = strcmp(v->state, "unknown") == 0;
    if (!lost)
        send_end(t, v);
    stream_free(t);
    if (lost)
        envd_drop(c);
    else
        envd_end(c);
}

/*
 * A command that exited may have left processes that still print. What they print belongs to it,
 * but after a signal nobody waits for them.
 */
static bool stream_is_over(const struct stream *t, struct exec_view *ret) {
    if (!exec_is_over(t->exec))
        return false;
    exec_view(t->exec, ret);
    return !has_exited(ret) || exec_log_is_closed(t->exec);
}

static void stream_go_on(struct stream *t) {
    unsigned char piece[PIECE];
    struct exec_view view;
    if (t->running)
        return;
    t->running = true;
    for (;;) {
        bool over = stream_is_over(t, &view); /* before reading: what came before the end is read */
        const struct outlog *log = exec_log(t->exec);
        struct outlog_piece p = {0};
        if (log)
            p = outlog_next(log, &t->cursor, piece, sizeof(piece));
        if (!p.n && !p.left_out && over) {
            stream_end(t, &view);
            return;
        }
        if (!p.n && !p.left_out)
            break;
        if (p.n && !send_output(t, &p, piece))
            break;
    }
    t->running = false;
    exec_consumed(t->exec);
}

static void stream_changed(void *arg) {
    struct stream *t = arg;
    if (!http_is_full(t->call->http))
        stream_go_on(t);
}

static void stream_drained(struct envd_call *c) {
    stream_go_on(c->state);
}

/* Takes over the reference to the command. */
static void stream_start(struct envd_call *c, struct exec *x, bool from_start) {
    struct exec_view view;
    exec_view(x, &view);
    struct stream *t = xnew(struct stream);
    t->call = c;
    t->exec = x;
    t->terminal = view.terminal;
    const struct outlog *log = exec_log(x);
    for (int i = 0; i < 2 && log && !from_start; i++)
        t->cursor.at[i] = outlog_extent(log, i).produced;
    t->follower = (struct exec_follower){
        .changed = stream_changed,
        .arg = t,
        .wants_output = true,
        .consumed = {&t->cursor.at[0], &t->cursor.at[1]},
    };
    c->state = t;
    c->on_gone = stream_gone;
    c->on_drain = stream_drained;
    c->keepalive = "{\"event\":{\"keepalive\":{}}}";
    envd_begin(c);
    send_start(t, view.pid);
    exec_follow(x, &t->follower);
    stream_go_on(t);
}

/* ---- Start ---- */

struct starting {
    struct envd_call *call;
    struct exec_request request;
    const char **argv, **env;
    char cwd[ENVD_PATH_SIZE];
    uint8_t hash[SHA256_BYTES];
};

static void starting_free(struct starting *s) {
    free(s->argv);
    free(s->env);
    free(s);
}

static void command_started(void *arg, struct exec *x, const struct err *err) {
    struct starting *s = arg;
    struct envd_call *c = s->call;
    struct exec_view view;
    starting_free(s);
    if (err) {
        envd_fail_with(c, err);
        return;
    }
    exec_view(x, &view);
    if (view.error) {
        envd_fail(c, CONNECT_INVALID_ARGUMENT, "%s", view.error);
        exec_unref(x);
    } else if (http_is_gone(c->http)) {
        exec_needs_no_reader(x);
        exec_unref(x);
        envd_drop(c);
    } else {
        stream_start(c, x, true);
    }
}

static void start_command(struct starting *s) {
    struct envd_call *c = s->call;
    s->request.cwd = s->cwd[0] ? s->cwd : NULL;
    service_exec(c->service, &c->who, c->machine, &s->request, s->hash, NULL, 0, command_started,
                 s);
}

static void cwd_seen(void *arg, const struct frame *frame, const struct err *err) {
    struct starting *s = arg;
    struct envd_call *c = s->call;
    struct msg_entry e;
    if (!err && msg_get_entry(frame, &e) == 0 && (e.mode & 0170000) == 0040000) {
        start_command(s);
        return;
    }
    envd_fail(c, CONNECT_INVALID_ARGUMENT, "cwd '%.200s' does not exist", s->cwd);
    starting_free(s);
}

static void look_for_cwd(struct starting *s) {
    const struct msg_path m = {
        .uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .path = {s->cwd, (uint32_t)strlen(s->cwd)}};
    envd_file(s->call, MSG_STAT, &m, NULL, cwd_seen, s);
}

static int read_argv(struct starting *s, const json_t *config, struct err *err) {
    const json_t *args = json_object_get(config, "args");
    const char *cmd = json_string_value(json_object_get(config, "cmd"));
    size_t n = json_array_size(args);
    if (!cmd || !*cmd)
        return err_set(err, ERR_INVALID, "the field 'process.cmd' is missing");
    if (n > ARGS_MAX)
        return err_set(err, ERR_INVALID, "more than %d arguments", ARGS_MAX);
    s->argv = xcalloc(n + 1, sizeof(*s->argv));
    s->argv[0] = cmd;
    for (size_t i = 0; i < n; i++) {
        s->argv[i + 1] = json_string_value(json_array_get(args, i));
        if (!s->argv[i + 1])
            return err_set(err, ERR_INVALID, "the field 'process.args' must hold texts");
    }
    s->request.argv = (struct texts){s->argv, n + 1};
    return 0;
}

/* The home directory is that of the passwd file, also where the image says something else. */
static int read_env(struct starting *s, const json_t *config, struct err *err) {
    json_t *envs = json_object_get(config, "envs"), *value;
    const char *name;
    size_t n = 0;
    s->env = xcalloc(2 * json_object_size(envs) + 2, sizeof(*s->env));
    json_object_foreach(envs, name, value) {
        if (!json_is_string(value) || !*name || strchr(name, '='))
            return err_set(err, ERR_INVALID, "the variable '%.100s' has no text", name);
        s->env[n++] = name;
        s->env[n++] = json_string_value(value);
    }
    if (!json_object_get(envs, "HOME")) {
        s->env[n++] = "HOME";
        s->env[n++] = s->call->user.home;
    }
    s->request.env = (struct texts){s->env, n};
    return 0;
}

static int read_terminal(struct starting *s, const json_t *pty, struct err *err) {
    const json_t *size = json_object_get(pty, "size");
    json_int_t rows = json_integer_value(json_object_get(size, "rows"));
    json_int_t cols = json_integer_value(json_object_get(size, "cols"));
    if (!pty)
        return 0;
    if (rows < 0 || rows > UINT16_MAX || cols < 0 || cols > UINT16_MAX)
        return err_set(err, ERR_INVALID, "the size of the terminal is out of range");
    s->request.terminal = true;
    s->request.pty.rows = (struct given){(uint64_t)rows, rows > 0};
    s->request.pty.cols = (struct given){(uint64_t)cols, cols > 0};
    return 0;
}

/* The time limit of a request is that of its command, too. */
static int read_timeout(struct starting *s, struct err *err) {
    struct http_text field = http_field_only(s->call->http->head, "Connect-Timeout-Ms");
    char text[16];
    uint64_t ms;
    if (!field.s)
        return 0;
    snprintf(text, sizeof(text), "%.*s", field.n < sizeof(text) ? (int)field.n : 0, field.s);
    if (parse_u64(text, 0, TIMEOUT_MAX_S * 1000ull, &ms, NULL) < 0)
        return err_set(err, ERR_INVALID, "the header 'Connect-Timeout-Ms' is not a time");
    s->request.timeout = (struct given){ms, ms > 0};
    return 0;
}

static int read_cwd(struct starting *s, const json_t *config, bool *ret_given, struct err *err) {
    const char *cwd = json_string_value(json_object_get(config, "cwd"));
    *ret_given = cwd && *cwd;
    if (!*ret_given && s->call->as_image)
        return 0; /* the directory of the template */
    return envd_path(*ret_given ? cwd : "~", s->call->user.home, s->cwd, err);
}

void envd_process_start(struct envd_call *c) {
    const json_t *config = json_object_get(c->json, "process");
    const json_t *input = json_object_get(c->json, "stdin");
    struct starting *s = xnew(struct starting);
    struct err err;
    bool has_cwd;
    s->call = c;
    s->request.background = true;
    s->request.paced = true;
    s->request.user = c->user.name;
    s->request.name = json_string_value(json_object_get(c->json, "tag"));
    if (read_argv(s, config, &err) < 0 || read_env(s, config, &err) < 0 ||
        read_terminal(s, json_object_get(c->json, "pty"), &err) < 0 || read_timeout(s, &err) < 0 ||
        read_cwd(s, config, &has_cwd, &err) < 0) {
        starting_free(s);
        envd_fail_with(c, &err);
        return;
    }
    s->request.stdin_open = !s->request.terminal && !json_is_false(input);
    if (has_cwd)
        look_for_cwd(s);
    else
        start_command(s);
}

/* ---- Connect ---- */

void envd_process_connect(struct envd_call *c) {
    struct err err;
    struct exec *x = envd_process_find(c, true, &err);
    if (x)
        stream_start(c, x, false);
    else
        envd_fail_with(c, &err);
}
