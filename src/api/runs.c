/* Runs of the operator: start, watch, answer, resume and cancel. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/inner.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "io/sse.h"
#include "operator/operator.h"

enum { LIST_DEFAULT = 50, LIST_MAX = 200, PIECE_MAX = 32 << 20 };

static void answer_run(void *arg, const struct run_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, c->route->status, &run_schema, view);
}

void api_run_start(struct call *c) {
    operator_start(api_operator(c->api), &c->who, c->request, answer_run, c);
}

void api_run_show(struct call *c) {
    operator_show(api_operator(c->api), &c->who, c->params[0], answer_run, c);
}

void api_run_cancel(struct call *c) {
    operator_cancel(api_operator(c->api), &c->who, c->params[0], answer_run, c);
}

void api_run_resume(struct call *c) {
    const struct run_resume_request *r = c->request;
    operator_resume(api_operator(c->api), &c->who, c->params[0], &r->keys, &r->back, answer_run, c);
}

void api_run_answer(struct call *c) {
    operator_answer(api_operator(c->api), &c->who, c->params[0], c->request, answer_run, c);
}

static void runs_add_row(void *arg, const void *view) {
    schema_write(&run_schema, arg, NULL, view);
}

void api_run_list(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    uint64_t limit = LIST_DEFAULT;
    struct err err;
    jot_object(&j, NULL);
    jot_array(&j, "runs");
    if (call_number(c, "limit", 1, LIST_MAX, &limit, &err) < 0 ||
        operator_list(api_operator(c->api), &c->who, limit, runs_add_row, &j, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

void api_run_export(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(4 * PIECE_MAX);
    struct err err;
    if (operator_export(api_operator(c->api), &c->who, c->params[0], &text, &err) < 0)
        call_error(c, &err);
    else
        call_text(c, 200, "application/json", text.data, text.len);
}

/* ---- transcript ---- */

struct reading {
    struct call *call;
    struct run_follower follower;
    uint64_t at; /* offset in the transcript */
    bool events, follow;
};

static void reading_free(struct reading *r) {
    operator_unfollow(&r->follower);
    free(r);
}

/* Each line is one event. Its id is the offset after the line, from which a client resumes. */
static bool send_events(struct reading *r, const struct buf *lines) {
    struct buf out DEFER(buf_done) = BUF(2 * PIECE_MAX);
    const char *at = lines->data;
    for (const char *end; (end = memchr(at, '\n', lines->len - (size_t)(at - lines->data)));) {
        char id[24];
        snprintf(id, sizeof(id), "%" PRIu64, r->at + (uint64_t)(end + 1 - lines->data));
        const struct sse_event e = {.id = id, .data = at, .n = (size_t)(end - at)};
        if (!sse_put(&out, &e))
            break;
        at = end + 1;
        if (at == lines->data + lines->len)
            break;
    }
    return call_write(r->call, out.data, out.len);
}

static void go_on(struct reading *r) {
    struct call *c = r->call;
    for (;;) {
        struct buf lines DEFER(buf_done) = BUF(PIECE_MAX);
        struct err err;
        if (operator_read(api_operator(c->api), &c->who, c->params[0], r->at, &lines, &err) < 0 ||
            !lines.len)
            break;
        bool room = r->events ? send_events(r, &lines) : call_write(c, lines.data, lines.len);
        r->at += lines.len;
        if (!room)
            return; /* on_drain continues */
    }
    if (r->follow && r->follower.at)
        return;
    reading_free(r);
    call_end(c);
}

static void runs_changed(void *arg) {
    go_on(arg);
}

static void drained(struct call *c) {
    go_on(c->user);
}

static void runs_gone(struct call *c) {
    reading_free(c->user);
    call_end(c);
}

static void read_run(struct call *c, bool events) {
    struct buf none DEFER(buf_done) = BUF(PIECE_MAX);
    uint64_t at = 0;
    struct err err;
    if (call_stream_start(c, "after", &at, &err) < 0 ||
        operator_read(api_operator(c->api), &c->who, c->params[0], at, &none, &err) < 0) {
        call_error(c, &err);
        return;
    }
    struct reading *r = xnew(struct reading);
    *r = (struct reading){
        .call = c, .at = at, .events = events, .follower = {runs_changed, r, NULL, NULL}};
    r->follow = call_query(c, "follow") ? call_flag(c, "follow") : events;
    c->user = r;
    c->on_gone = runs_gone;
    c->on_drain = drained;
    call_begin(c, 200, c->route->type, NULL);
    if (events)
        call_write(c, ": carrel\n\n", 10);
    if (r->follow)
        (void)operator_follow(api_operator(c->api), c->params[0], &r->follower);
    go_on(r);
}

void api_run_events(struct call *c) {
    read_run(c, true);
}

void api_run_transcript(struct call *c) {
    read_run(c, false);
}
