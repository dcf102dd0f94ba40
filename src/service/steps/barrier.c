/*
 * The queue of requests that wait at the barrier (barrier.h). Changes that are not committed to the
 * database yet keep the barrier closed.
 */
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"

/* How often the guest is asked for its commands before waiting requests are refused. */
enum { TRIES_UNTOLD = 4 };

/* A request that waits to change the machine. */
struct barrier_call {
    struct barrier_call *next;
    loop_fn *go;
    void *arg;
};

bool barrier_is_unheard(const struct live *l) {
    return l->machine && !l->reach.heard;
}

static bool is_closed(const struct live *l) {
    const struct live_steps *p = l->steps;
    return p->held || p->taking || p->wanted || commit_waits(&l->lane) || barrier_is_unheard(l);
}

bool barrier_wait(struct live *l, loop_fn *go, void *arg) {
    struct live_steps *p = l->steps;
    if (!is_closed(l) || l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED)
        return false;
    struct barrier_call *c = xnew(struct barrier_call);
    *c = (struct barrier_call){NULL, go, arg};
    *p->waiting_last = c;
    p->waiting_last = &c->next;
    return true;
}

bool barrier_wait_root(struct live *l, loop_fn *go, void *arg) {
    const struct live_steps *p = l->steps;
    bool moves = p->held || (p->taking && !p->still);
    return moves && !commit_is_late(&l->lane) && barrier_wait(l, go, arg);
}

bool barrier_wait_settled(struct live *l, loop_fn *go, void *arg) {
    return !barrier_is_unheard(l) && !commit_is_late(&l->lane) && barrier_wait(l, go, arg);
}

int barrier_check(const struct live *l, struct err *err) {
    if (barrier_is_unheard(l) && l->reach.tries >= TRIES_UNTOLD) {
        err_set(err, ERR_BUSY, "the state of machine '%s' is not known yet: %s", l->row.id,
                l->reach.why);
        return err_remedy(err, "wait, the daemon keeps trying; or delete the machine: carrel rm %s",
                          l->row.id);
    }
    return commit_is_late(&l->lane) ? commit_why_late(&l->lane, err) : 0;
}

int barrier_enter(struct live *l, loop_fn *go, void *arg, struct err *err) {
    return barrier_check(l, err) < 0 ? -1 : barrier_wait(l, go, arg);
}

/* A request that continues may close the barrier again: the requests after it keep waiting. */
static void let_through(struct live *l) {
    struct live_steps *p = l->steps;
    live_ref(l);
    while (p->waiting && !is_closed(l)) {
        struct barrier_call *c DEFER_FREE = p->waiting;
        p->waiting = c->next;
        if (!p->waiting)
            p->waiting_last = &p->waiting;
        c->go(c->arg);
    }
    live_unref(l);
}

void barrier_let_all(struct live *l) {
    struct barrier_call *c = TAKE(l->steps->waiting);
    l->steps->waiting_last = &l->steps->waiting;
    live_ref(l);
    while (c) {
        struct barrier_call *one DEFER_FREE = c;
        c = c->next;
        one->go(one->arg);
    }
    live_unref(l);
}

void barrier_release(struct live *l) {
    for (struct barrier_call *g = TAKE(l->steps->waiting), *next; g; g = next) {
        next = g->next;
        free(g);
    }
}

void barrier_close(struct live *l) {
    l->steps->held = true;
}

/* Starts the next step, or lets waiting requests through. */
static void barrier_go_on(struct live *l) {
    if (l->steps->wanted)
        loop_defer(l->service->loop, &l->steps->start);
    else
        let_through(l);
}

void barrier_open(struct live *l) {
    l->steps->held = false;
    barrier_go_on(l);
}

void barrier_heard(struct live *l) {
    barrier_go_on(l);
}

/* ---- changes that are not committed yet ---- */

static void lane_filled(void *arg) {
    live_ref(arg);
}

static void lane_emptied(void *arg) {
    struct live *l = arg;
    barrier_go_on(l);
    live_unref(l);
}

static void lane_released(void *arg) {
    live_unref(arg);
}

/* Waiting requests run now and are refused by barrier_check(), which says why. */
static void lane_late(void *arg) {
    barrier_let_all(arg);
    rest_settled(arg);
}

void barrier_init(struct live *l) {
    l->steps->waiting_last = &l->steps->waiting;
    l->lane = (struct commit_lane){.filled = lane_filled,
                                   .emptied = lane_emptied,
                                   .late = lane_late,
                                   .released = lane_released,
                                   .arg = l};
}
