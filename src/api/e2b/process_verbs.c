/* The procedures of process.Process that are not streams: list, input, signal, size. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/envd_inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/text/base64.h"
#include "service/exec/exec.h"

/* How long an end is told to a client that connects late. */
enum { ENDED_KNOWN_MS = 30000, LIST_MAX = 8 << 20 };

/* ---- finding a command ---- */

struct tag_search {
    const char *tag;
    char id[ID_SIZE];
};

static void tag_row(void *arg, const void *view) {
    const struct exec_view *v = view;
    struct tag_search *s = arg;
    if (v->name && strcmp(v->name, s->tag) == 0)
        snprintf(s->id, sizeof(s->id), "%s", v->id);
}

/* Calls `row` for each running command of the machine. */
static int each_running(struct envd_call *c, service_row_fn *row, void *arg, struct err *err) {
    char cursor[CURSOR_SIZE] = "", next[CURSOR_SIZE];
    do {
        const struct list_request r = {.states = "running", .cursor = cursor[0] ? cursor : NULL};
        if (service_exec_list(c->service, &c->who, c->machine, &r, row, arg, next, err) < 0)
            return -1;
        memcpy(cursor, next, sizeof(cursor));
    } while (cursor[0]);
    return 0;
}

static struct exec *find_tag(struct envd_call *c, const char *tag, struct err *err) {
    struct tag_search s = {.tag = tag};
    if (each_running(c, tag_row, &s, err) < 0)
        return NULL;
    if (s.id[0])
        return service_exec_find(c->service, &c->who, c->machine, s.id, err);
    err_set(err, ERR_NOT_FOUND, "process with tag %.100s not found", tag);
    return NULL;
}

static struct exec *find_pid(struct envd_call *c, json_int_t pid, bool ended, struct err *err) {
    struct exec_view v;
    struct exec *x = pid > 0 && pid <= INT32_MAX
                         ? service_exec_by_pid(c->service, &c->who, c->machine, (uint32_t)pid, err)
                         : NULL;
    if (x)
        exec_view(x, &v);
    if (x && (!exec_is_over(x) || (ended && (int64_t)v.ended_ms + ENDED_KNOWN_MS > wall_ms())))
        return x;
    if (x)
        exec_unref(x);
    err_set(err, ERR_NOT_FOUND, "process with pid %lld not found", (long long)pid);
    return NULL;
}

static struct exec *find_named(struct envd_call *c, const json_t *process, bool ended,
                               struct err *err) {
    const json_t *pid = json_object_get(process, "pid"), *tag = json_object_get(process, "tag");
    if (json_is_string(tag))
        return find_tag(c, json_string_value(tag), err);
    if (json_is_integer(pid))
        return find_pid(c, json_integer_value(pid), ended, err);
    err_set(err, ERR_INVALID, "the field 'process' names neither pid nor tag");
    return NULL;
}

struct exec *envd_process_find(struct envd_call *c, bool ended, struct err *err) {
    return find_named(c, json_object_get(c->json, "process"), ended, err);
}

/* ---- List ---- */

static void list_row(void *arg, const void *view) {
    const struct exec_view *v = view;
    struct jot *j = arg;
    json_t *argv = v->argv ? json_loads(v->argv, 0, NULL) : NULL;
    const char *cmd = json_string_value(json_array_get(argv, 0));
    if (v->pid) {
        jot_object(j, NULL);
        jot_object(j, "config");
        jot_string(j, "cmd", cmd ? cmd : "");
        jot_array(j, "args");
        for (size_t i = 1; i < json_array_size(argv); i++)
            jot_string(j, NULL, json_string_value(json_array_get(argv, i)));
        jot_end(j, ']');
        if (v->cwd)
            jot_string(j, "cwd", v->cwd);
        jot_end(j, '}');
        jot_u64(j, "pid", v->pid);
        if (v->name)
            jot_string(j, "tag", v->name);
        jot_end(j, '}');
    }
    json_decref(argv);
}

void envd_process_list(struct envd_call *c) {
    struct buf text DEFER(buf_done) = BUF(LIST_MAX);
    struct jot j = JOT(&text);
    struct err err;
    jot_object(&j, NULL);
    jot_array(&j, "processes");
    if (each_running(c, list_row, &j, &err) < 0) {
        envd_fail_with(c, &err);
        return;
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    envd_answer(c, &j, &text);
}

/* ---- input ---- */

/* Input on its way to a command, which may read it slowly. */
struct input {
    struct envd_call *call;
    struct exec *exec;
    struct exec_follower follower;
    char *bytes;
    size_t n, at;
};

static void input_free(struct input *in) {
    exec_unfollow(&in->follower);
    exec_unref(in->exec);
    free(in->bytes);
    free(in);
}

/* The client left: what the command did not take is dropped. */
static void input_gone(struct envd_call *c) {
    input_free(c->state);
    envd_drop(c);
}

static void input_push(struct input *in) {
    struct envd_call *c = in->call;
    struct err err;
    ssize_t n = exec_write(in->exec, &c->who, exec_stdin_offset(in->exec), in->bytes + in->at,
                           in->n - in->at, false, &err);
    if (n >= 0 && (in->at += (size_t)n) < in->n)
        return;
    bool over = exec_is_over(in->exec);
    input_free(in);
    if (n >= 0 && c->method->kind == ENVD_STREAM)
        envd_end_with(c, "{}");
    else if (n >= 0)
        envd_done(c);
    else
        envd_fail(c, over ? CONNECT_NOT_FOUND : CONNECT_INTERNAL, "%s", err.text);
}

static void input_changed(void *arg) {
    input_push(arg);
}

/* Decodes base64 with or without padding. NULL: it is not base64. */
static char *decode(const char *text, size_t *ret_n) {
    size_t n = strlen(text), pad = (4 - n % 4) % 4;
    char *padded DEFER_FREE = xmalloc(n + pad + 1);
    memcpy(padded, text, n);
    memcpy(padded + n, "===", pad);
    char *bytes = xmalloc(n + pad + 1);
    if (base64_decode(padded, n + pad, bytes, ret_n))
        return bytes;
    free(bytes);
    return NULL;
}

/* Sends the bytes, which it frees, to the process. is_pty: to its terminal. */
static void input_send(struct envd_call *c, const json_t *process, char *bytes, size_t n,
                       bool is_pty) {
    struct err err;
    struct exec_view v;
    struct exec *x = find_named(c, process, false, &err);
    if (!x) {
        free(bytes);
        envd_fail_with(c, &err);
        return;
    }
    exec_view(x, &v);
    struct input *in = xnew(struct input);
    *in = (struct input){.call = c,
                         .exec = x,
                         .bytes = bytes,
                         .n = n,
                         .follower = {.changed = input_changed, .arg = in}};
    exec_follow(x, &in->follower);
    if (v.terminal != is_pty) {
        input_free(in);
        envd_fail(c, CONNECT_INTERNAL,
                  v.terminal ? "the process has a terminal: send the input as pty"
                             : "the process has no terminal: send the input as stdin");
        return;
    }
    c->state = in;
    c->on_gone = input_gone;
    input_push(in);
}

/* Decodes the member `input` of a message. NULL: it is not valid. */
static char *read_input(const json_t *message, size_t *ret_n, bool *ret_pty, struct err *err) {
    const json_t *input = json_object_get(message, "input");
    const char *pipe = json_string_value(json_object_get(input, "stdin"));
    const char *pty = json_string_value(json_object_get(input, "pty"));
    *ret_pty = pty;
    char *bytes = !pipe == !pty ? NULL : decode(pipe ? pipe : pty, ret_n);
    if (!bytes)
        err_set(err, ERR_INVALID,
                !pipe == !pty ? "the field 'input' needs either stdin or pty"
                              : "the input is not base64");
    return bytes;
}

void envd_process_input(struct envd_call *c) {
    struct err err;
    size_t n;
    bool is_pty;
    char *bytes = read_input(c->json, &n, &is_pty, &err);
    if (bytes)
        input_send(c, json_object_get(c->json, "process"), bytes, n, is_pty);
    else
        envd_fail_with(c, &err);
}

/* Adds the input of a message. -1 with *err: it is not valid. */
static int stream_add(const json_t *message, struct buf *all, int *pty, struct err *err) {
    const json_t *data = json_object_get(message, "data");
    bool is_pty;
    size_t n;
    if (!data)
        return json_object_get(message, "keepalive")
                   ? 0
                   : err_set(err, ERR_INVALID, "a message has neither data nor keepalive");
    char *bytes DEFER_FREE = read_input(data, &n, &is_pty, err);
    if (!bytes)
        return -1;
    if (*pty >= 0 && *pty != is_pty)
        return err_set(err, ERR_INVALID, "the messages have both stdin and pty");
    *pty = is_pty;
    return buf_add(all, bytes, n) ? 0 : err_set(err, ERR_LIMIT, "the input is too long");
}

/* The first message names the process, the others have its input. */
void envd_process_stream_input(struct envd_call *c) {
    struct buf all DEFER(buf_done) = BUF(ENVD_BODY_MAX);
    const json_t *start = json_object_get(json_array_get(c->json, 0), "start");
    struct err err;
    int pty = -1, status = 0;
    if (!start)
        status = err_set(&err, ERR_INVALID, "the first message has no field 'start'");
    for (size_t i = 1; !status && i < json_array_size(c->json); i++)
        status = stream_add(json_array_get(c->json, i), &all, &pty, &err);
    if (status < 0) {
        envd_fail_with(c, &err);
        return;
    }
    char *bytes = xmalloc(all.len + 1);
    if (all.len)
        memcpy(bytes, all.data, all.len);
    input_send(c, json_object_get(start, "process"), bytes, all.len, pty > 0);
}

void envd_process_close_stdin(struct envd_call *c) {
    struct err err;
    struct exec *x = envd_process_find(c, false, &err);
    struct exec_view v;
    if (!x) {
        envd_fail_with(c, &err);
        return;
    }
    exec_view(x, &v);
    if (v.terminal)
        envd_fail(c, CONNECT_FAILED_PRECONDITION,
                  "the process has a terminal: send the byte 4 (end of transmission) instead");
    else if (exec_write(x, &c->who, exec_stdin_offset(x), "", 0, true, &err) < 0)
        envd_fail(c, CONNECT_INTERNAL, "%s", err.text);
    else
        envd_done(c);
    exec_unref(x);
}

/* ---- signals and size ---- */

static int signal_of(const json_t *signal) {
    static const struct {
        const char *name;
        int number;
    } known[] = {{"SIGNAL_SIGTERM", SIGTERM}, {"SIGNAL_SIGKILL", SIGKILL}};
    const char *name = json_string_value(signal);
    for (size_t i = 0; i < 2; i++)
        if ((name && strcmp(name, known[i].name) == 0) ||
            (json_is_integer(signal) && json_integer_value(signal) == known[i].number))
            return known[i].number;
    return 0;
}

static void signal_sent(void *arg, const struct err *err) {
    if (err)
        envd_fail_with(arg, err);
    else
        envd_done(arg);
}

void envd_process_signal(struct envd_call *c) {
    int number = signal_of(json_object_get(c->json, "signal"));
    struct err err;
    struct exec *x = envd_process_find(c, false, &err);
    if (!x) {
        envd_fail_with(c, &err);
    } else if (!number) {
        envd_fail(c, CONNECT_UNIMPLEMENTED, "only SIGNAL_SIGTERM and SIGNAL_SIGKILL can be sent");
        exec_unref(x);
    } else {
        exec_signal_wait(x, &c->who, number, true, signal_sent, c);
        exec_unref(x);
    }
}

void envd_process_update(struct envd_call *c) {
    const json_t *size = json_object_get(json_object_get(c->json, "pty"), "size");
    json_int_t rows = json_integer_value(json_object_get(size, "rows"));
    json_int_t cols = json_integer_value(json_object_get(size, "cols"));
    struct err err;
    struct exec *x = envd_process_find(c, false, &err);
    if (!x) {
        envd_fail_with(c, &err);
        return;
    }
    if (!size)
        envd_done(c);
    else if (rows <= 0 || rows > UINT16_MAX || cols <= 0 || cols > UINT16_MAX)
        envd_fail(c, CONNECT_INVALID_ARGUMENT, "the size of the terminal is out of range");
    else if (exec_resize(x, &c->who, (uint16_t)rows, (uint16_t)cols, &err) < 0)
        envd_fail(c, CONNECT_INTERNAL, "%s", err.text);
    else
        envd_done(c);
    exec_unref(x);
}
