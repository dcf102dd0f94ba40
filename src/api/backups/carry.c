/* Backups that leave the daemon, and come from another one. */
#include <stdlib.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "service/backups/backups.h"

enum { REST_MAX = 1 << 20 };

struct carrying {
    struct call *call;
    struct backup_export *out;
    struct backup_bring *in;
    struct buf rest; /* received bytes that the import has not taken */
    bool body_ended;
};

static struct carrying *carrying_new(struct call *c) {
    struct carrying *t = xnew(struct carrying);
    *t = (struct carrying){.call = c, .rest = BUF(REST_MAX)};
    c->user = t;
    return t;
}

static struct call *carrying_free(struct carrying *t) {
    struct call *c = t->call;
    c->on_gone = c->on_drain = NULL;
    buf_done(&t->rest);
    free(t);
    return c;
}

static void carrying_gone(struct call *c) {
    struct carrying *t = c->user;
    if (t->out)
        backup_export_cancel(t->out);
    else
        backup_bring_cancel(t->in);
    carrying_free(t);
    call_abandon(c);
}

/* ---- to a client ---- */

static void carry_data(void *arg, const void *bytes, size_t n) {
    struct carrying *t = arg;
    if (!t->call->streaming)
        call_begin(t->call, 200, "application/x-tar", HTTP_FIELDS({"Cache-Control", "no-store"}));
    if (!call_write(t->call, bytes, n))
        backup_export_hold(t->out, true);
}

static void carry_drained(struct call *c) {
    struct carrying *t = c->user;
    backup_export_hold(t->out, false);
}

static void carry_sent(void *arg, const char *json, const struct err *err) {
    struct call *c = carrying_free(arg);
    (void)json;
    if (!err)
        call_end(c);
    else if (c->streaming)
        call_abandon(c); /* without its end, the client does not take it for complete */
    else
        call_error(c, err);
}

void api_backup_export(struct call *c) {
    struct carrying *t = carrying_new(c);
    const struct backup_events events = {.arg = t, .data = carry_data, .ended = carry_sent};
    struct err err;
    t->out = service_backup_export(c->service, &c->who, c->params[0], call_query(c, "packs"),
                                   &events, &err);
    if (!t->out) {
        call_error(carrying_free(t), &err);
        return;
    }
    c->on_gone = carrying_gone;
    c->on_drain = carry_drained;
}

/* ---- from a client ---- */

static void carry_push(struct carrying *t) {
    size_t n =
        backup_bring_feed(t->in, t->rest.data ? t->rest.data : "", t->rest.len, t->body_ended);
    buf_drop(&t->rest, n);
    if (t->body_ended)
        return;
    if (t->rest.len)
        call_body_pause(t->call);
    else
        call_body_resume(t->call);
}

static void carry_room(void *arg) {
    struct carrying *t = arg;
    if (t->rest.len || t->body_ended)
        carry_push(t);
}

static void carry_piece(struct call *c, const char *bytes, size_t n) {
    struct carrying *t = c->user;
    struct err err;
    t->body_ended = n == 0;
    if (n && !buf_add(&t->rest, bytes, n)) {
        err_set(&err, ERR_LIMIT, "the backup arrives faster than it can be stored");
        backup_bring_cancel(t->in);
        call_error(carrying_free(t), &err);
        return;
    }
    carry_push(t);
}

static void carry_came(void *arg, const char *json, const struct err *err) {
    call_told(carrying_free(arg), json, err);
}

void api_backup_import(struct call *c) {
    struct carrying *t = carrying_new(c);
    const struct backup_events events = {.arg = t, .room = carry_room, .ended = carry_came};
    struct err err;
    t->in = service_backup_import(c->service, &c->who, &events, &err);
    if (!t->in) {
        call_error(carrying_free(t), &err);
        return;
    }
    c->on_gone = carrying_gone;
    call_body(c, INT64_MAX, carry_piece);
}
