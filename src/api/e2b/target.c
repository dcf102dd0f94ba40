#include "api/e2b/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"

static void target_came(void *arg, const struct machine_view *v, const struct err *err) {
    struct e2b_target *t = arg;
    struct e2b_sandbox b;
    if (err || !e2b_sandbox_read(v, &b))
        return;
    t->runs = strcmp(b.state, "running") == 0;
    t->resumes = strcmp(b.state, "paused") == 0 && e2b_notes(&b, "resume");
    t->is_private = e2b_notes(&b, "private");
    t->as_image = e2b_notes(&b, E2B_AS_IMAGE);
    t->on_ttl = e2b_on_ttl(&b);
    t->ttl_ms = (uint64_t)json_integer_value(json_object_get(b.own, "ttl_ms"));
    e2b_sandbox_done(&b);
}

bool e2b_target_find(struct service *s, struct http_text label, const char *client,
                     struct e2b_target *ret) {
    struct err err;
    *ret = (struct e2b_target){.runs = false};
    if (!id_from_label(label.s, label.n, 'm', ret->id) ||
        service_machine_token(s, NULL, ret->id, MACHINE_TOKEN_CONTROL, ret->token, &err) < 0 ||
        service_caller_by_machine_token(s, ret->id, MACHINE_TOKEN_CONTROL, ret->token,
                                        MACHINE_TOKEN_SIZE - 1, client, &ret->owner, &err) < 0)
        return false;
    service_show(s, &ret->owner, ret->id, target_came, ret); /* answers at once */
    return ret->runs || ret->resumes;
}

bool e2b_target_has_token(struct service *s, const struct e2b_target *t, enum machine_token_use use,
                          struct http_text token) {
    struct caller who;
    struct err err;
    return token.s && service_caller_by_machine_token(s, t->id, use, token.s, token.n,
                                                      t->owner.client, &who, &err) == 0;
}

/* ---- the end of a pause ---- */

struct resuming {
    struct service *service;
    struct caller who;
    char id[ID_SIZE];
    const char *on_ttl;
    uint64_t ttl_ms;
    service_done_fn *done;
    void *arg;
};

static void resuming_set_end(struct resuming *r, service_machine_fn *done) {
    const struct update_request update = {.ttl = {r->ttl_ms, true}, .on_ttl = r->on_ttl};
    service_update(r->service, &r->who, r->id, &update, done, r);
}

static void resuming_end(struct resuming *r, const struct err *err) {
    r->done(r->arg, err);
    free(r);
}

static void resuming_woken(void *arg, const struct machine_view *v, const struct err *err) {
    struct resuming *r = arg;
    const struct update_request no_end = {.ttl = {0, true}};
    (void)v;
    if (err) /* it stays paused */
        service_update(r->service, &r->who, r->id, &no_end, e2b_ignore, NULL);
    resuming_end(r, err);
}

/* A request that resumes it at the same time gives it the same end. */
static void resuming_given_end(void *arg, const struct machine_view *v, const struct err *err) {
    (void)v;
    resuming_end(arg, err && err->code != ERR_BUSY ? err : NULL);
}

static void resuming_joined(void *arg, const struct machine_view *v, const struct err *err) {
    struct resuming *r = arg;
    (void)v;
    if (err)
        resuming_end(r, err);
    else
        resuming_set_end(r, resuming_given_end);
}

/* During another operation only waking waits. */
static void resuming_wake(void *arg, const struct machine_view *v, const struct err *err) {
    struct resuming *r = arg;
    (void)v;
    if (err && err->code != ERR_BUSY)
        resuming_end(r, err);
    else
        service_wake(r->service, &r->who, r->id, err ? resuming_joined : resuming_woken, r);
}

/* The lifetime first: after a crash a sandbox that runs has an end. */
void e2b_resume(struct service *s, const struct caller *who, const char *id, const char *on_ttl,
                uint64_t ttl_ms, service_done_fn *done, void *arg) {
    struct resuming *r = xnew(struct resuming);
    *r = (struct resuming){
        .service = s, .who = *who, .on_ttl = on_ttl, .ttl_ms = ttl_ms, .done = done, .arg = arg};
    snprintf(r->id, sizeof(r->id), "%s", id);
    resuming_set_end(r, resuming_wake);
}

void e2b_target_wake(struct service *s, const struct e2b_target *t, service_done_fn *done,
                     void *arg) {
    e2b_resume(s, &t->owner, t->id, t->on_ttl, t->ttl_ms, done, arg);
}
