#include "service/rest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/asleep.h"

struct rest_wait {
    struct rest_wait *next;
    struct live *live;
    service_done_fn *go;
    void *arg;
    bool failed;
    struct err err;
};

/* ---- who may wake a machine ---- */

static bool is_owner(const struct live *l, const struct caller *who) {
    return strcmp(who->owner, l->row.owner) == 0;
}

enum state_by rest_by(const struct live *l, const struct caller *who) {
    return who->is_idle ? STATE_BY_IDLE : is_owner(l, who) ? STATE_BY_OWNER : STATE_BY_ADMIN;
}

/* Checks whether a request of this caller may wake the machine. */
static int rest_allows(const struct live *l, const struct caller *who, struct err *err) {
    const char *state = machine_state_name(l->row.state);
    enum state_by by = l->row.state_by;
    if (allow(who, SCOPE_RUN, err) < 0)
        return -1;
    if (by == STATE_BY_IDLE ||
        (by == STATE_BY_ADMIN ? who->scopes & SCOPE_ADMIN : is_owner(l, who)))
        return 0;
    if (by == STATE_BY_ADMIN)
        err_set(err, ERR_DENIED,
                "machine '%s' was %s by an administrator, so it wakes only for an administrator",
                l->row.id, state);
    else if (by == STATE_BY_OWNER)
        err_set(err, ERR_DENIED,
                "machine '%s' was %s by its owner '%s', so it wakes only for that owner", l->row.id,
                state, l->row.owner);
    else
        err_set(err, ERR_DENIED, "machine '%s' is %s, and wakes only for its owner '%s'", l->row.id,
                state, l->row.owner);
    return err_remedy(err, "resume it first: carrel resume %s", l->row.id);
}

/* ---- requests that wait ---- */

static void rest_run(void *arg) {
    struct live *l = arg;
    struct rest_wait *first = TAKE(l->rest);
    for (struct rest_wait *w = first, *next; w; w = next) {
        next = w->next;
        w->go(w->arg, w->failed ? &w->err : NULL);
        live_unref(w->live);
        free(w);
    }
}

void rest_settled(struct live *l) {
    l->rest_call.fn = rest_run;
    l->rest_call.arg = l;
    if (l->rest)
        loop_defer(l->service->loop, &l->rest_call);
}

void rest_release(struct live *l) {
    loop_call_cancel(l->service->loop, &l->rest_call);
    for (struct rest_wait *w = TAKE(l->rest), *next; w; w = next) {
        next = w->next;
        live_unref(w->live);
        free(w);
    }
}

static void rest_add(struct rest_wait *w) {
    struct rest_wait **last = &w->live->rest;
    while (*last)
        last = &(*last)->next;
    *last = w;
}

static struct rest_wait *rest_new(struct live *l, service_done_fn *go, void *arg) {
    struct rest_wait *w = xnew(struct rest_wait);
    *w = (struct rest_wait){.live = l, .go = go, .arg = arg};
    live_ref(l);
    return w;
}

void rest_join(struct live *l, service_done_fn *go, void *arg) {
    rest_add(rest_new(l, go, arg));
}

void rest_join_first(struct live *l, service_done_fn *go, void *arg) {
    struct rest_wait *w = rest_new(l, go, arg);
    w->next = l->rest;
    l->rest = w;
}

bool service_wait(struct service *s, const struct caller *who, const char *ref, service_done_fn *go,
                  void *arg) {
    struct err err;
    struct live *l = live_find(s, who, ref, LIVE_ANY, &err);
    if (!l || !l->changing || l->ending)
        return false;
    rest_join(l, go, arg);
    return true;
}

static void rest_resumed(void *arg, const struct machine_view *view, const struct err *err) {
    struct rest_wait *w = arg;
    (void)view;
    w->failed = err != NULL;
    if (err)
        w->err = *err;
    rest_add(w);
    rest_settled(w->live);
}

static int rest_begin(struct live *l, const struct caller *who, service_done_fn *go, void *arg,
                      struct err *err) {
    bool sleeps = live_is_asleep(l);
    if (l->row.state == MACHINE_RUNNING && !l->resting && !sleeps)
        return l->machine ? 0 : live_state_error(l, err);
    if (l->row.state != MACHINE_PAUSED && l->row.state != MACHINE_STOPPED && !l->resting && !sleeps)
        return live_state_error(l, err);
    if (!l->resting && !sleeps && rest_allows(l, who, err) < 0)
        return -1;
    struct rest_wait *w = rest_new(l, go, arg);
    if (l->changing)
        rest_add(w);
    else
        service_resume(l->service, who, l->row.id, rest_resumed, w);
    return 1;
}

int rest_wake(struct live *l, const struct caller *who, service_done_fn *go, void *arg,
              struct err *err) {
    bool lost = l->row.state == MACHINE_STOPPED && l->row.end_reason[0];
    return lost ? live_state_error(l, err) : rest_begin(l, who, go, arg, err);
}

/* ---- waking as an operation ---- */

struct wake_call {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    service_machine_fn *done;
    void *arg;
};

static void wake_try(void *arg, const struct err *failed) {
    struct wake_call *c = arg;
    struct machine_view view;
    struct err err;
    struct live *l = failed ? NULL : live_find(c->service, &c->who, c->machine, LIVE_ANY, &err);
    int turn = l ? rest_begin(l, &c->who, wake_try, c, &err) : -1;
    if (turn > 0)
        return;
    if (turn == 0)
        live_view(l, &view);
    c->done(c->arg, turn == 0 ? &view : NULL, turn == 0 ? NULL : failed ? failed : &err);
    free(c);
}

void service_wake(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg) {
    struct err err;
    struct live *l = live_find(s, who, ref, LIVE_ANY, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct wake_call *c = xnew(struct wake_call);
    *c = (struct wake_call){.service = s, .who = *who, .done = done, .arg = arg};
    snprintf(c->machine, sizeof(c->machine), "%s", l->row.id);
    wake_try(c, NULL);
}
