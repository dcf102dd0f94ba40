/*
 * A run that waits for its owner: for an answer to a question, or for the approval of a request
 * that the gate holds. The wait is written to the transcript and shown to the owner, and is not
 * charged to the time budget of the run.
 */
#include <string.h>

#include "base/defer.h"
#include "operator/inner.h"
#include "service/net/approvals.h"

enum { LOOK_MS = 250, HELD_MAX = 64 << 10 };

void hold_begin(struct live_run *l, const char *json) {
    struct run_event e = {.kind = RUN_HELD, .text = json};
    if (!l->run.held)
        (void)live_add(l, &e);
}

void hold_end(struct live_run *l) {
    struct run_event e = {.kind = RUN_FREED};
    if (l->run.held)
        (void)live_add(l, &e);
}

void hold_next(struct live_run *l) {
    for (size_t i = 0; i < MODEL_CALLS_MAX && !l->run.held; i++)
        if (l->acting[i].asked && l->run.phase == RUN_RUNNING)
            hold_begin(l, l->acting[i].question);
}

/* Starts or ends the wait for a request that the gate holds (l->gated). A wait for an answer
 * (l->run.held without l->gated) ends in acts.c. */
static void hold_look(void *arg) {
    struct live_run *l = arg;
    struct buf what DEFER(buf_done) = BUF(HELD_MAX);
    bool waits = l->active && service_pending_of(l->runs->service, l->run.start.machine, &what);
    if (waits && !l->run.held) {
        l->gated = true;
        hold_begin(l, what.data);
        loop_timer_start(l->hold, LOOK_MS, LOOK_MS);
    } else if (!waits && l->gated) {
        l->gated = false;
        loop_timer_stop(l->hold);
        hold_end(l);
        hold_next(l);
    }
}

static void look_at_all(void *arg) {
    struct runs *o = arg;
    struct live_run *l;
    for (size_t at = 0; (l = map_next(&o->live, &at));)
        if (l->active)
            hold_look(l);
}

void hold_start(struct live_run *l) {
    l->hold = loop_timer_new(l->runs->loop, hold_look, l);
}

void hold_stop(struct live_run *l) {
    loop_timer_free(l->hold);
    l->hold = NULL;
}

void holds_watch(struct runs *o) {
    o->watch = (struct event_watch){.changed = look_at_all, .arg = o};
    service_events_watch(o->service, &o->watch);
}

void holds_unwatch(struct runs *o) {
    service_events_unwatch(&o->watch);
}
