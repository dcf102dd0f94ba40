/*
 * Commands: start, list, feed, signal and kill. A command outlives the request that started it,
 * except in `POST /v1/run`, whose machine ends with the call.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/output.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "base/parse.h"

enum { OUTPUT_DEFAULT = 1 << 20 };

static bool wants_stream(struct call *c) {
    return call_accepts(c, "application/x-ndjson") || call_accepts(c, "text/event-stream");
}

static bool wants_no_output(struct call *c) {
    return call_query(c, "output") && !call_flag(c, "output");
}

/* ---- start ---- */

static void answer_exec(struct call *c, struct exec *x, const struct exec_request *r) {
    struct exec_view view;
    bool hold = call_flag(c, "hold");
    call_close_fds(c);
    if (r->background) {
        exec_view(x, &view);
        call_view(c, 201, &exec_schema, &view);
        exec_unref(x);
    } else if (hold || wants_stream(c)) {
        output_events(c, x,
                      &(struct output_from){.follow = true,
                                            .hold = hold,
                                            .silent = r->stdio.count || wants_no_output(c)});
    } else {
        output_result(c, x, r->output_max.is ? r->output_max.value : OUTPUT_DEFAULT);
    }
}

static void exec_sent(void *arg, struct exec *x, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        answer_exec(c, x, c->request);
}

void api_exec(struct call *c) {
    service_exec(c->service, &c->who, c->params[0], c->request, c->hash, c->fds, c->nfds, exec_sent,
                 c);
}

/* ---- /v1/run: a machine for one command ---- */

static void run_over(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err; /* the service has logged the error */
}

/* Destroys the machine after the call has ended or its client has disconnected. */
static void run_end(struct call *c) {
    service_destroy(c->service, &c->who, c->machine, run_over, NULL);
}

static void run_sent(void *arg, struct exec *x, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        answer_exec(c, x, &((struct run_request *)c->request)->exec);
}

static void run_made(void *arg, const struct machine_view *view, const struct err *err) {
    struct call *c = arg;
    struct run_request *r = c->request;
    size_t handed = service_request_fds(&c->who, &r->machine);
    struct err gone;
    if (err) {
        call_error(c, err);
        return;
    }
    snprintf(c->machine, sizeof(c->machine), "%s", view->id);
    if (view->warnings)
        c->warnings = xstrdup(view->warnings);
    if (r->machine.ephemeral)
        c->on_end = run_end;
    if (call_is_gone(c)) {
        err_set(&gone, ERR_GONE, "the client disconnected");
        call_error(c, &gone);
        return;
    }
    service_exec(c->service, &c->who, c->machine, &r->exec, c->hash, c->fds + handed,
                 c->nfds - handed, run_sent, c);
}

void api_run(struct call *c) {
    struct run_request *r = c->request;
    size_t handed = service_request_fds(&c->who, &r->machine);
    struct err err;
    if (r->exec.background || c->nfds < handed) {
        err_set(&err, ERR_INVALID,
                r->exec.background ? "/v1/run does not support 'background': create a machine and "
                                     "run the command in it"
                                   : "the request lacks the descriptors of granted directories or "
                                     "files");
        call_error(c, &err);
        return;
    }
    bool keep = call_flag(c, "keep");
    r->exec.kill_left |= !keep;
    r->machine.ephemeral = !keep;
    r->machine.early = true;
    service_create(c->service, &c->who, &r->machine, c->hash, c->fds, handed, run_made, c);
}

/* ---- list, show and output ---- */

static void execs_add_row(void *arg, const void *view) {
    schema_write(&exec_schema, arg, NULL, view);
}

void api_exec_list(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    struct list_request r = {.states = call_query(c, "state"),
                             .cursor = call_query(c, "cursor"),
                             .all = call_flag(c, "all")};
    char next[CURSOR_SIZE];
    struct err err;
    jot_object(&j, NULL);
    jot_array(&j, "execs");
    if (call_number(c, "limit", 1, STORE_PAGE_MAX, &r.limit, &err) < 0 ||
        service_exec_list(c->service, &c->who, c->params[0], &r, execs_add_row, &j, next, &err) <
            0) {
        call_error(c, &err);
        return;
    }
    jot_end(&j, ']');
    if (next[0])
        jot_string(&j, "next", next);
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

/* Returns a reference to the command that the path names. NULL: the call was answered. */
static struct exec *execs_named(struct call *c) {
    struct err err;
    struct exec *x = service_exec_find(c->service, &c->who, c->params[0], c->params[1], &err);
    if (!x)
        call_error(c, &err);
    return x;
}

void api_exec_show(struct call *c) {
    struct exec *x = execs_named(c);
    struct exec_view view;
    if (!x)
        return;
    exec_view(x, &view);
    call_view(c, 200, &exec_schema, &view);
    exec_unref(x);
}

static int read_range(struct call *c, struct output_range *ret, struct err *err) {
    const char *stream = call_query(c, "stream");
    *ret = (struct output_range){.follow = call_flag(c, "follow")};
    if (stream && strcmp(stream, "stderr") == 0)
        ret->stream = 1;
    else if (stream && strcmp(stream, "stdout") != 0)
        return err_set(err, ERR_INVALID, "parameter 'stream' must be stdout or stderr");
    return call_number(c, "offset", 0, INT64_MAX, &ret->offset, err) < 0
               ? -1
               : call_number(c, "limit", 1, INT64_MAX, &ret->limit, err);
}

void api_exec_output(struct call *c) {
    struct output_range range;
    struct err err;
    struct exec *x = execs_named(c);
    if (!x)
        return;
    if (read_range(c, &range, &err) == 0 &&
        exec_output_check(x, range.stream, range.offset, &err) == 0) {
        output_bytes(c, x, &range);
        return;
    }
    exec_unref(x);
    call_error(c, &err);
}

void api_exec_events(struct call *c) {
    struct output_from from = {.follow = !call_query(c, "follow") || call_flag(c, "follow"),
                               .silent = wants_no_output(c)};
    struct err err;
    struct exec *x = execs_named(c);
    if (!x)
        return;
    if (call_number(c, "stdout", 0, INT64_MAX, &from.offset[0], &err) == 0 &&
        call_number(c, "stderr", 0, INT64_MAX, &from.offset[1], &err) == 0) {
        output_events(c, x, &from);
        return;
    }
    exec_unref(x);
    call_error(c, &err);
}

/* ---- standard input ---- */

/* A request body that becomes standard input. The body is paused while the command does not read.
 */
struct feeding {
    struct call *call;
    struct exec *exec;
    struct exec_follower follower;
    uint64_t offset;
    bool eof; /* close standard input after the body */
    bool ended;
    struct buf rest; /* received, but not yet written to the command */
};

enum { FEED_REST_MAX = 1 << 20 };

static void feeding_free(struct feeding *f) {
    exec_unfollow(&f->follower);
    exec_unref(f->exec);
    buf_done(&f->rest);
    free(f);
}

static void feed(struct feeding *f) {
    struct call *c = f->call;
    struct err err;
    bool last = f->ended && f->eof;
    ssize_t n = exec_write(f->exec, &c->who, f->offset, f->rest.data ? f->rest.data : "",
                           f->rest.len, last, &err);
    if (n < 0) {
        feeding_free(f);
        call_error(c, &err);
        return;
    }
    f->offset += (uint64_t)n;
    buf_drop(&f->rest, (size_t)n);
    if (f->rest.len) {
        call_body_pause(c);
    } else if (f->ended) {
        feeding_free(f);
        call_done(c);
    } else {
        call_body_resume(c);
    }
}

static void feed_changed(void *arg) {
    struct feeding *f = arg;
    if (f->rest.len)
        feed(f);
}

static void feed_piece(struct call *c, const char *bytes, size_t n) {
    struct feeding *f = c->user;
    struct err err;
    if (n == 0) {
        f->ended = true;
    } else if (!buf_add(&f->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the command does not read its standard input");
        feeding_free(f);
        call_error(c, &err);
        return;
    }
    feed(f);
}

static void feed_gone(struct call *c) {
    feeding_free(c->user);
    call_abandon(c);
}

void api_exec_stdin(struct call *c) {
    struct exec *x = execs_named(c);
    struct err err;
    if (!x)
        return;
    struct feeding *f = xnew(struct feeding);
    *f = (struct feeding){.call = c,
                          .exec = x,
                          .follower = {.changed = feed_changed, .arg = f},
                          .offset = exec_stdin_offset(x),
                          .eof = call_flag(c, "eof"),
                          .rest = BUF(FEED_REST_MAX)};
    exec_follow(x, &f->follower);
    c->user = f;
    if (call_number(c, "offset", 0, INT64_MAX, &f->offset, &err) < 0) {
        feeding_free(f);
        call_error(c, &err);
        return;
    }
    c->on_gone = feed_gone;
    call_body(c, INT64_MAX, feed_piece);
}

/* ---- signals ---- */

static void told_guest(void *arg, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_done(c);
}

static const struct {
    const char *name;
    int number;
} signals[] = {
    {"HUP", SIGHUP},   {"INT", SIGINT},   {"QUIT", SIGQUIT}, {"ABRT", SIGABRT}, {"KILL", SIGKILL},
    {"USR1", SIGUSR1}, {"USR2", SIGUSR2}, {"PIPE", SIGPIPE}, {"ALRM", SIGALRM}, {"TERM", SIGTERM},
    {"CHLD", SIGCHLD}, {"CONT", SIGCONT}, {"STOP", SIGSTOP}, {"TSTP", SIGTSTP}, {"WINCH", SIGWINCH},
};

int signal_number(const char *text, int *ret, struct err *err) {
    uint64_t number;
    const char *name = strncmp(text, "SIG", 3) == 0 ? text + 3 : text;
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++)
        if (strcmp(signals[i].name, name) == 0) {
            *ret = signals[i].number;
            return 0;
        }
    if (parse_u64(text, 1, 64, &number, NULL) < 0)
        return err_set(err, ERR_INVALID, "unknown signal '%s'", text);
    *ret = (int)number;
    return 0;
}

static void execs_settle(struct call *c, struct exec *x, int r, const struct err *err) {
    if (r < 0)
        call_error(c, err);
    else
        call_done(c);
    exec_unref(x);
}

void api_exec_signal(struct call *c) {
    const struct signal_request *r = c->request;
    struct exec *x = execs_named(c);
    struct err err;
    int number = 0;
    if (!x)
        return;
    if (signal_number(r->signal, &number, &err) < 0)
        call_error(c, &err);
    else
        exec_signal_wait(x, &c->who, number, r->main_only, told_guest, c);
    exec_unref(x);
}

void api_exec_resize(struct call *c) {
    const struct pty_request *r = c->request;
    struct exec *x = execs_named(c);
    struct err err;
    if (!x)
        return;
    uint16_t rows = r->rows.is ? (uint16_t)r->rows.value : 24;
    uint16_t cols = r->cols.is ? (uint16_t)r->cols.value : 80;
    execs_settle(c, x, exec_resize(x, &c->who, rows, cols, &err), &err);
}

void api_exec_kill(struct call *c) {
    struct exec *x = execs_named(c);
    if (!x)
        return;
    exec_kill(x, &c->who, told_guest, c);
    exec_unref(x);
}
