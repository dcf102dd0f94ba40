#include "api/carriage.h"

#include <stdlib.h>

#include "base/alloc.h"

enum { REST_MAX = 1 << 20 };

struct carriage *carriage_new(struct call *c, const struct carriage_job *kind, const char *type) {
    struct carriage *t = xnew(struct carriage);
    *t = (struct carriage){.call = c, .kind = kind, .type = type, .rest = BUF(REST_MAX)};
    c->user = t;
    return t;
}

struct call *carriage_free(struct carriage *t) {
    struct call *c = t->call;
    c->on_gone = c->on_drain = NULL;
    buf_done(&t->rest);
    free(t);
    return c;
}

static void carriage_gone(struct call *c) {
    struct carriage *t = c->user;
    t->kind->cancel(t->job);
    call_abandon(carriage_free(t));
}

/* ---- from a client ---- */

static void carriage_push(struct carriage *t) {
    size_t n = t->kind->feed(t->job, t->rest.data ? t->rest.data : "", t->rest.len, t->body_ended);
    buf_drop(&t->rest, n);
    if (t->body_ended)
        return;
    if (t->rest.len)
        call_body_pause(t->call);
    else
        call_body_resume(t->call);
}

void carriage_room(void *arg) {
    struct carriage *t = arg;
    if (t->rest.len || t->body_ended)
        carriage_push(t);
}

static void carriage_piece(struct call *c, const char *bytes, size_t n) {
    struct carriage *t = c->user;
    struct err err;
    t->body_ended = n == 0;
    if (n && !buf_add(&t->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the body of the request arrives faster than it can be stored");
        t->kind->cancel(t->job);
        call_error(carriage_free(t), &err);
        return;
    }
    carriage_push(t);
}

/* ---- to a client ---- */

void carriage_data(void *arg, const void *bytes, size_t n) {
    struct carriage *t = arg;
    if (!t->call->streaming)
        call_begin(t->call, 200, t->type, NULL);
    if (!call_write(t->call, bytes, n))
        t->kind->hold(t->job, true);
}

static void carriage_drained(struct call *c) {
    struct carriage *t = c->user;
    t->kind->hold(t->job, false);
}

void carriage_sent(struct carriage *t, const struct err *err) {
    struct call *c = carriage_free(t);
    if (!err)
        call_end(c);
    else if (c->streaming)
        call_abandon(c); /* without its end, the client does not take it for complete */
    else
        call_error(c, err);
}

void carriage_begin(struct carriage *t, void *job, const struct err *err) {
    struct call *c = t->call;
    t->job = job;
    if (!job) {
        call_error(carriage_free(t), err);
        return;
    }
    c->on_gone = carriage_gone;
    if (t->kind->feed)
        call_body(c, INT64_MAX, carriage_piece);
    else
        c->on_drain = carriage_drained;
}
