#include "service/pause.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/asleep.h"
#include "service/cells.h"
#include "service/change.h"
#include "service/exec/live.h"
#include "service/exec/stored.h"
#include "service/net/live.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"

enum { PAUSE_AGAIN_MS = 2000, PAUSE_LOOK_MS = 50, PAUSE_LOOKS = 100, PAUSE_TRIES = 5 };

struct pausing {
    struct live *live;
    struct loop_call call;
    struct loop_timer *timer;
    loop_fn *next; /* what the timer calls */
    enum state_by by;
    unsigned tries; /* how often a program ended when it was to be stored */
    unsigned looks; /* how often the machine was in use */
    machine_done_fn *done;
    void *arg;
};

bool live_is_stored(const struct live *l) {
    return l->dormant && l->row.state == MACHINE_PAUSED;
}

static void pausing_finish(struct pausing *p, const struct err *err) {
    machine_done_fn *done = p->done;
    void *arg = p->arg;
    struct live *l = p->live;
    loop_timer_free(p->timer);
    free(p);
    done(arg, err);
    live_unref(l);
}

/* ---- in memory ---- */

/*
 * A machine whose programs are stored is paused, and its row says so, even if its box cannot be
 * frozen.
 */
static void pausing_frozen(void *arg, const struct err *err) {
    struct pausing *p = arg;
    bool is_paused = execs_are_stored(p->live) && p->live->machine && !p->live->ending;
    if (err && is_paused && err->code != ERR_UNSUPPORTED)
        log_line(LOG_WARN, "service", "freeze the box of a paused machine: %s id=%s", err->text,
                 p->live->row.id);
    pausing_finish(p, is_paused ? NULL : err);
}

static void pausing_freeze(struct pausing *p, const struct err *why) {
    struct live *l = p->live;
    struct err gone;
    if (why && !l->ending)
        log_line(LOG_WARN, "service", "the programs of a paused machine stay in memory: %s id=%s",
                 why->text, l->row.id);
    if (l->machine && !l->ending) {
        l->service->driver->freeze(l->machine, true, pausing_frozen, p);
        return;
    }
    err_set(&gone, ERR_GONE, "machine '%s' is ending", l->row.id);
    pausing_finish(p, &gone);
}

/* ---- the files ---- */

static void pausing_timer(void *arg) {
    struct pausing *p = arg;
    p->next(p);
}

static void pausing_later(struct pausing *p, loop_fn *next, uint64_t delay_ms) {
    p->next = next;
    loop_timer_start(p->timer, delay_ms, 0);
}

static void pausing_end_box(void *arg);

static void pausing_box_gone(void *arg, const struct err *err) {
    struct pausing *p = arg;
    struct live *l = p->live;
    if (err && err->code != ERR_NOT_FOUND) {
        log_line(LOG_WARN, "service", "end the box of a machine: %s id=%s", err->text, l->row.id);
        pausing_later(p, pausing_end_box, PAUSE_AGAIN_MS);
        return;
    }
    barrier_open(l);
    steps_reset(l);
    pausing_finish(p, NULL);
}

static void pausing_end_box(void *arg) {
    struct pausing *p = arg;
    p->live->service->driver->destroy(p->live->service->host, p->live->row.id, pausing_box_gone, p);
}

static void pausing_shelved(void *arg, const struct err *err) {
    struct pausing *p = arg;
    struct live *l = p->live;
    if (err || l->ending) {
        barrier_open(l);
        pausing_freeze(p, err);
        return;
    }
    l->machine->on_end = NULL;
    net_detach(l);
    machine_free(TAKE(l->machine));
    l->dormant = true;
    pausing_end_box(p);
}

/*
 * Runs after the requests that waited for the step: one of them may use the machine now. Such
 * requests end soon, so this looks again for five seconds.
 */
static void pausing_shelve(void *arg) {
    struct pausing *p = arg;
    struct live *l = p->live;
    struct err err;
    if (l->machine && !l->ending && !l->watched && !commit_waits(&l->lane) &&
        !machine_is_asked(l->machine) && !execs_running(l) && steps_are_at_rest(l)) {
        barrier_close(l);
        steps_shelve(l, pausing_shelved, p);
        return;
    }
    if (l->machine && !l->ending && !l->watched && p->looks++ < PAUSE_LOOKS) {
        pausing_later(p, pausing_shelve, PAUSE_LOOK_MS);
        return;
    }
    err_set(&err, ERR_BUSY, "the machine is in use");
    pausing_freeze(p, &err);
}

static void pausing_refreshed(void *arg, const struct step_row *row, const struct err *err) {
    struct pausing *p = arg;
    (void)row;
    if (err) {
        pausing_freeze(p, err);
        return;
    }
    p->call = (struct loop_call){.fn = pausing_shelve, .arg = p};
    loop_defer(p->live->service->loop, &p->call);
}

/* ---- the programs ---- */

/* As for a sleep: layers that another machine uses are on the disk of the box. */
static bool pausing_may_store(struct live *l) {
    const struct service *s = l->service;
    return execs_can_store(l) && !l->ending && !l->ephemeral && !l->unwritten && l->reach.heard &&
           s->conf->durable_after_ms && !s->store_full && !l->watched && !asleep_is_shared(l);
}

static void pausing_store(void *arg);

/* A program that ended just now is no reason to keep the others in memory. */
static void pausing_stored(void *arg, const struct err *err) {
    struct pausing *p = arg;
    if (err && err->code == ERR_GONE && p->tries++ < PAUSE_TRIES && pausing_may_store(p->live)) {
        pausing_later(p, pausing_store, PAUSE_LOOK_MS);
        return;
    }
    const struct step_cause cause = {
        .kind = STEP_REFRESH, .what = "to pause", .status = -1, .killed = true};
    if (err || p->live->ending || !p->live->machine)
        pausing_freeze(p, err);
    else
        steps_take(p->live, &cause, pausing_refreshed, p);
}

static void pausing_store(void *arg) {
    struct pausing *p = arg;
    if (pausing_may_store(p->live))
        execs_store(p->live, p->by, pausing_stored, p);
    else
        pausing_freeze(p, NULL);
}

void pause_machine(struct live *l, enum state_by by, machine_done_fn *done, void *arg) {
    struct pausing *p = xnew(struct pausing);
    *p = (struct pausing){.live = l, .by = by, .done = done, .arg = arg};
    p->timer = loop_timer_new(l->service->loop, pausing_timer, p);
    live_ref(l);
    pausing_store(p);
}

/* ---- a box for the files of a paused machine ---- */

static void peek_frozen(void *arg, const struct err *err) {
    struct change *c = arg;
    change_finish(c, err && err->code != ERR_UNSUPPORTED ? err : NULL);
}

static void peek_woken(void *arg, const struct err *err) {
    struct change *c = arg;
    struct live *l = c->live;
    if (err || l->ending || !l->machine)
        change_finish(c, err);
    else
        l->service->driver->freeze(l->machine, true, peek_frozen, c);
}

static void peek_late(void *arg, const struct err *why) {
    (void)arg, (void)why; /* the box is kept: it is saved once there is room */
}

bool pause_peek(struct live *l, service_done_fn *go, void *arg) {
    struct caller who = {.scopes = SCOPE_READ | SCOPE_RUN};
    if (!live_is_stored(l) || !live_is_cell(l))
        return false;
    snprintf(who.owner, sizeof(who.owner), "%s", l->row.owner);
    snprintf(who.client, sizeof(who.client), "wake on use");
    rest_join(l, go, arg);
    if (l->changing)
        return true;
    struct change *c = change_begin(l->service, &who, l->row.id, "machine.wake", CHANGE_WAKES,
                                    ignore_machine, NULL);
    if (c)
        live_wake(l, peek_woken, peek_late, c);
    else
        rest_settled(l);
    return true;
}
