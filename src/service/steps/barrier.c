/*
 * The gate of a machine (service/steps/inner.h): who wants to change something waits while a step
 * is taken, while something that was done is not written down, and until it is known what an
 * earlier daemon began.
 */
#include <stdlib.h>

#include "base/defer.h"
#include "service/steps/inner.h"

/* So often its guest is asked for its commands before who waits is refused. */
enum { TRIES_UNTOLD = 4 };

/* Somebody who waits to change something. */
struct gate_call {
    struct gate_call *next;
    loop_fn *go;
    void *arg;
};

bool gate_is_unheard(const struct live *l) {
    return l->machine && !l->reach.heard;
}

static bool is_closed(const struct live *l) {
    const struct steps *p = &l->steps;
    return p->held || p->taking || p->wanted || commit_waits(&l->lane) || gate_is_unheard(l);
}

bool gate_wait(struct live *l, loop_fn *go, void *arg) {
    struct steps *p = &l->steps;
    if (!is_closed(l) || l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED)
        return false;
    struct gate_call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct gate_call){NULL, go, arg};
    *p->gate_last = c;
    p->gate_last = &c->next;
    return true;
}

bool gate_wait_root(struct live *l, loop_fn *go, void *arg) {
    const struct steps *p = &l->steps;
    bool moves = p->held || (p->taking && !p->still);
    return moves && !commit_is_late(&l->lane) && gate_wait(l, go, arg);
}

bool gate_wait_settled(struct live *l, loop_fn *go, void *arg) {
    return !gate_is_unheard(l) && !commit_is_late(&l->lane) && gate_wait(l, go, arg);
}

int gate_check(const struct live *l, struct err *err) {
    if (gate_is_unheard(l) && l->reach.tries >= TRIES_UNTOLD) {
        err_set(err, ERR_BUSY, "what was begun in machine '%s' is not known: %s", l->row.id,
                l->reach.why);
        return err_remedy(err, "it is asked for again; destroy it if you can do without it");
    }
    return commit_is_late(&l->lane) ? commit_full(err) : 0;
}

int gate_enter(struct live *l, loop_fn *go, void *arg, struct err *err) {
    return gate_check(l, err) < 0 ? -1 : gate_wait(l, go, arg);
}

/* They may close it again: those behind them wait on. */
static void let_through(struct live *l) {
    struct steps *p = &l->steps;
    live_ref(l);
    while (p->gate && !is_closed(l)) {
        struct gate_call *c DEFER_FREE = p->gate;
        p->gate = c->next;
        if (!p->gate)
            p->gate_last = &p->gate;
        c->go(c->arg);
    }
    live_unref(l);
}

void gate_let_all(struct live *l) {
    struct gate_call *c = TAKE(l->steps.gate);
    l->steps.gate_last = &l->steps.gate;
    live_ref(l);
    while (c) {
        struct gate_call *one DEFER_FREE = c;
        c = c->next;
        one->go(one->arg);
    }
    live_unref(l);
}

void gate_release(struct live *l) {
    for (struct gate_call *g = TAKE(l->steps.gate), *next; g; g = next) {
        next = g->next;
        free(g);
    }
}

void gate_close(struct live *l) {
    l->steps.held = true;
}

/* Whoever may go on does: the next step, or who waits. */
static void gate_go_on(struct live *l) {
    if (l->steps.wanted)
        loop_defer(l->service->loop, &l->steps.start);
    else
        let_through(l);
}

void gate_open(struct live *l) {
    l->steps.held = false;
    gate_go_on(l);
}

void gate_heard(struct live *l) {
    gate_go_on(l);
}

/* ---- what was done and is not written down ---- */

static void lane_filled(void *arg) {
    live_ref(arg);
}

static void lane_emptied(void *arg) {
    struct live *l = arg;
    gate_go_on(l);
    live_unref(l);
}

static void lane_released(void *arg) {
    live_unref(arg);
}

/* Who waits at the gate hears why it takes longer: gate_check(). */
static void lane_late(void *arg) {
    gate_let_all(arg);
}

void gate_init(struct live *l) {
    l->steps.gate_last = &l->steps.gate;
    l->lane = (struct commit_lane){.filled = lane_filled,
                                   .emptied = lane_emptied,
                                   .late = lane_late,
                                   .released = lane_released,
                                   .arg = l};
}
