#include "api/e2b/target.h"

#include <stdlib.h>
#include <string.h>

#include "api/e2b/inner.h"
#include "base/alloc.h"
#include "base/defer.h"

static void target_came(void *arg, const struct machine_view *v, const struct err *err) {
    struct e2b_target *t = arg;
    struct e2b_sandbox b;
    if (err || !e2b_sandbox_read(v, &b))
        return;
    t->runs = strcmp(b.state, "running") == 0;
    t->resumes = strcmp(b.state, "paused") == 0 && e2b_notes(&b, "resume");
    t->is_private = e2b_notes(&b, "private");
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

struct waking {
    struct service *service;
    struct e2b_target target;
    service_done_fn *done;
    void *arg;
};

static void waking_end(void *arg, const struct machine_view *v, const struct err *err) {
    struct waking *w DEFER_FREE = arg;
    (void)v;
    w->done(w->arg, err);
}

static void waking_woken(void *arg, const struct machine_view *v, const struct err *err) {
    struct waking *w = arg;
    const struct update_request update = {.ttl = {w->target.ttl_ms, true}};
    if (err)
        waking_end(w, v, err);
    else
        service_update(w->service, &w->target.owner, w->target.id, &update, waking_end, w);
}

void e2b_target_wake(struct service *s, const struct e2b_target *t, service_done_fn *done,
                     void *arg) {
    struct waking *w = xnew(struct waking);
    *w = (struct waking){s, *t, done, arg};
    service_wake(s, &t->owner, t->id, waking_woken, w);
}
