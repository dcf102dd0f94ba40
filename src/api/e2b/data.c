#include "api/e2b/data.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/envd.h"
#include "api/e2b/failures.h"
#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"

enum { CONTROL_PORT = 49983 };

struct e2b_data {
    unsigned refs; /* of its owner, and of requests that wait */
    struct service *service;
    struct envd *envd;
    struct failures failures;
};

struct e2b_data *e2b_data_new(struct loop *loop, struct service *service) {
    struct e2b_data *d = xnew(struct e2b_data);
    *d = (struct e2b_data){.refs = 1, .service = service, .envd = envd_new(loop, service)};
    return d;
}

static void data_unref(struct e2b_data *d) {
    if (--d->refs)
        return;
    envd_free(d->envd);
    free(d);
}

void e2b_data_free(struct e2b_data *d) {
    data_unref(d);
}

size_t e2b_data_busy(const struct e2b_data *d) {
    return envd_busy(d->envd) + d->refs - 1;
}

/* ---- answers ---- */

static void data_answer(struct http_exchange *x, int status, const struct buf *text,
                        const struct http_pair *more) {
    http_reply(x, status,
               HTTP_FIELDS({"Content-Type", "application/json"}, {"Cache-Control", "no-store"},
                           {"X-Content-Type-Options", "nosniff"},
                           more ? *more : (struct http_pair){0}),
               text->data, text->len);
}

static void data_refuse(struct http_exchange *x, int status, const char *message,
                        const struct http_pair *more) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_u64(&j, "code", (uint64_t)status);
    jot_string(&j, "message", message);
    jot_end(&j, '}');
    data_answer(x, status, &text, more);
}

/* The words are those by which clients tell a sandbox that is gone from other failures. */
static void data_gone(struct http_exchange *x, struct http_text label) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_bytes(&j, "sandboxId", label.s, label.n < ID_LABEL_SIZE ? label.n : 0);
    jot_string(&j, "message", "The sandbox was not found");
    jot_u64(&j, "code", 502);
    jot_end(&j, '}');
    data_answer(x, 502, &text, NULL);
}

/* ---- the sandbox ---- */

/* A sandbox that runs, its token, and a caller that acts for its owner. */
struct target {
    char id[ID_SIZE];
    char token[MACHINE_TOKEN_SIZE];
    struct caller owner;
    bool runs, resumes; /* resumes: it is paused, and traffic resumes it */
    uint64_t ttl_ms;    /* its lifetime from then on */
};

static void target_came(void *arg, const struct machine_view *v, const struct err *err) {
    struct target *t = arg;
    struct e2b_sandbox b;
    if (err || !e2b_sandbox_read(v, &b))
        return;
    t->runs = strcmp(b.state, "running") == 0;
    t->resumes = strcmp(b.state, "paused") == 0 && e2b_notes(&b, "resume");
    t->ttl_ms = (uint64_t)json_integer_value(json_object_get(b.own, "ttl_ms"));
    e2b_sandbox_done(&b);
}

static bool find_target(struct e2b_data *d, const struct http_exchange *x, struct http_text label,
                        struct target *ret) {
    struct err err;
    *ret = (struct target){.runs = false};
    if (!id_from_label(label.s, label.n, 'm', ret->id) ||
        service_machine_token(d->service, NULL, ret->id, MACHINE_TOKEN_CONTROL, ret->token, &err) <
            0 ||
        service_caller_by_machine_token(d->service, ret->id, MACHINE_TOKEN_CONTROL, ret->token,
                                        MACHINE_TOKEN_SIZE - 1, x->peer->text, &ret->owner,
                                        &err) < 0)
        return false;
    service_show(d->service, &ret->owner, ret->id, target_came, ret); /* answers at once */
    return ret->runs || ret->resumes;
}

/* ---- the token ---- */

static bool has_token(struct e2b_data *d, const struct http_exchange *x, const struct target *t) {
    struct http_text given = http_field_only(x->head, "X-Access-Token");
    struct caller who;
    struct err err;
    return given.s &&
           service_caller_by_machine_token(d->service, t->id, MACHINE_TOKEN_CONTROL, given.s,
                                           given.n, x->peer->text, &who, &err) == 0;
}

/* A token that is right counts even if the client's address failed often: others may share it. */
static void refuse_token(struct e2b_data *d, struct http_exchange *x, const char *why) {
    uint64_t now_ms = loop_now_ms(http_loop(x));
    uint64_t wait_s = failures_wait_s(&d->failures, x->peer->text, now_ms);
    char seconds[24];
    snprintf(seconds, sizeof(seconds), "%llu", (unsigned long long)wait_s);
    if (wait_s) {
        data_refuse(x, 429, "too many requests with a wrong token",
                    &(struct http_pair){"Retry-After", seconds});
        return;
    }
    failures_add(&d->failures, x->peer->text, now_ms);
    data_refuse(x, 401, why, NULL);
}

/* ---- requests ---- */

static bool is_control(struct http_text port) {
    char text[8];
    snprintf(text, sizeof(text), "%d", CONTROL_PORT);
    return !port.s || http_text_is(port, text);
}

static bool is_signed_path(const struct http_exchange *x) {
    return http_text_is(x->head->path, "/files") && !http_field_find(x->head, "X-Access-Token");
}

static void refuse_unsigned(struct e2b_data *d, struct http_exchange *x) {
    refuse_token(d, x,
                 envd_has_signature(x) ? "invalid signature" : "missing signature query parameter");
}

static void gone_target(struct http_exchange *x, const struct target *t) {
    char label[ID_LABEL_SIZE];
    id_to_label(t->id, label);
    data_gone(x, (struct http_text){label, strlen(label)});
}

/* The sandbox runs. */
static void serve_target(struct e2b_data *d, struct http_exchange *x, const struct target *t) {
    bool has = has_token(d, x, t);
    if (http_text_is(x->head->path, "/health"))
        http_reply(x, 204, NULL, NULL, 0);
    else if (has || (is_signed_path(x) && envd_is_signed_by(x, t->token)))
        envd_take(d->envd, x, &(struct envd_sandbox){&t->owner, t->id, t->token, has});
    else if (is_signed_path(x))
        refuse_unsigned(d, x);
    else
        refuse_token(d, x, "unauthorized access, please provide a valid access token");
}

/* ---- sandboxes that traffic resumes ---- */

/* A request that waits until its sandbox runs. */
struct resuming {
    struct e2b_data *data;
    struct http_exchange *http;
    struct target target;
};

static void resuming_end(void *arg, const struct machine_view *v, const struct err *err) {
    struct resuming *r DEFER_FREE = arg;
    (void)v;
    if (http_is_gone(r->http))
        http_drop(r->http);
    else if (err)
        gone_target(r->http, &r->target);
    else
        serve_target(r->data, r->http, &r->target);
    data_unref(r->data);
}

static void resuming_woken(void *arg, const struct machine_view *v, const struct err *err) {
    struct resuming *r = arg;
    const struct update_request update = {.ttl = {r->target.ttl_ms, true}};
    if (err)
        resuming_end(r, v, err);
    else
        service_update(r->data->service, &r->target.owner, r->target.id, &update, resuming_end, r);
}

/* Only a client that has the token or a signature resumes it: a look at its health does not. */
static void resume_target(struct e2b_data *d, struct http_exchange *x, const struct target *t) {
    if (!has_token(d, x, t) && !(is_signed_path(x) && envd_is_signed_by(x, t->token))) {
        gone_target(x, t);
        return;
    }
    struct resuming *r = xnew(struct resuming);
    *r = (struct resuming){d, x, *t};
    d->refs++;
    http_hold(x);
    service_wake(d->service, &t->owner, t->id, resuming_woken, r);
}

static void take_target(struct e2b_data *d, struct http_exchange *x, struct http_text label) {
    struct target target;
    if (!find_target(d, x, label, &target))
        data_gone(x, label);
    else if (target.runs)
        serve_target(d, x, &target);
    else
        resume_target(d, x, &target);
}

/* A signed path without the name of its sandbox. */
static bool signed_here(void *arg, const char *token) {
    return envd_is_signed_by(arg, token);
}

static void serve_signed(struct e2b_data *d, struct http_exchange *x) {
    char id[ID_SIZE], label[ID_LABEL_SIZE];
    bool may = !failures_wait_s(&d->failures, x->peer->text, loop_now_ms(http_loop(x)));
    if (!may || !service_machine_by_token(d->service, MACHINE_TOKEN_CONTROL, signed_here, x, id)) {
        refuse_unsigned(d, x);
        return;
    }
    id_to_label(id, label);
    take_target(d, x, (struct http_text){label, strlen(label)});
}

bool e2b_data_take(struct e2b_data *d, struct http_exchange *x) {
    struct http_text label = http_field_only(x->head, "E2b-Sandbox-Id");
    if (!http_field_find(x->head, "E2b-Sandbox-Id")) {
        bool mine = is_signed_path(x) && envd_has_signature(x);
        if (mine)
            serve_signed(d, x);
        return mine;
    }
    if (!label.s || !is_control(http_field_only(x->head, "E2b-Sandbox-Port")))
        data_gone(x, label);
    else
        take_target(d, x, label);
    return true;
}
