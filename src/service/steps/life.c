/* The state of the steps of a machine: creation, adoption by a new daemon, end, release. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/steps/barrier.h"
#include "service/steps/call_inner.h"
#include "service/steps/durable.h"
#include "service/steps/inner.h"

struct service_steps *service_steps_new(void) {
    return xnew(struct service_steps);
}

void service_steps_free(struct service_steps *p) {
    free(p);
}

void steps_fallbacks(const struct service *s, uint64_t ret[FELL_COUNT]) {
    memcpy(ret, s->steps->fallbacks, sizeof(s->steps->fallbacks));
}

static void steps_set_up(struct live *l) {
    *l->steps = (struct live_steps){.layer = 1, .start = {.fn = steps_begin_next, .arg = l}};
    l->steps->wanted_last = &l->steps->wanted;
    barrier_init(l);
}

void steps_init(struct live *l) {
    l->steps = xnew(struct live_steps);
    steps_set_up(l);
}

uint32_t steps_layer(const struct live *l) {
    return l->steps->layer;
}

const char *steps_stack(const struct live *l) {
    return l->steps->stack;
}

uint64_t steps_count(const struct live *l) {
    return l->steps->count;
}

void steps_set_count(struct live *l, uint64_t count) {
    l->steps->count = count;
}

bool steps_copy_runs(const struct live *l) {
    return l->steps->still;
}

bool steps_are_at_rest(const struct live *l) {
    const struct live_steps *p = l->steps;
    return !p->taking && !p->held && !p->still && !p->merging && !p->pruning &&
           !p->durable.saving && !p->shelving;
}

/* Repeats a step that an earlier daemon began; the step may be done already. */
static void finish_begun(struct live *l, struct step_row *row) {
    struct step_call *c = step_call_new(l, &(struct step_cause){.kind = row->kind});
    step_row_done(&c->row);
    c->row = *row;
    row->what = row->stack = NULL;
    if (c->row.kind == STEP_SNAP) { /* the caller of the snapshot got no answer, or was refused */
        c->row.kind = STEP_KEPT;
        c->row.name[0] = '\0';
    }
    c->uncertain = true;
    l->steps->taking = c;
    step_ask_root(c);
}

static void still_or_not(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err && err->code != ERR_UNSUPPORTED)
        log_line(LOG_ERROR, "service", "unfreeze a machine: %s id=%s", err->text, l->row.id);
    live_unref(l);
}

/*
 * A pause, resume or copy by an earlier daemon may be done but not saved. The row decides whether
 * the machine is frozen.
 */
static void freeze_as_written(struct live *l) {
    if (!l->machine || (l->row.state != MACHINE_RUNNING && l->row.state != MACHINE_PAUSED))
        return;
    live_ref(l);
    l->service->driver->freeze(l->machine, l->row.state == MACHINE_PAUSED, still_or_not, l);
}

/* Deletes a copied step whose caller got no answer. */
static int write_dropped(void *arg, struct err *err) {
    struct step_call *c = arg;
    struct store *store = c->live->service->store;
    return c->row.kind == STEP_SNAP ? store_step_delete(store, c->row.id, err)
                                    : store_step_update(store, &c->row, err);
}

static void dropped_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    if (failed)
        log_line(LOG_ERROR, "service", "finish an interrupted step: %s id=%s", failed->text,
                 c->live->row.id);
    step_call_free(c);
}

static void drop_copy(struct live *l, struct step_row *row) {
    struct step_call *c = step_call_new(l, &(struct step_cause){.kind = row->kind});
    step_row_done(&c->row);
    c->row = *row;
    row->what = row->stack = NULL;
    c->row.state = STEP_DONE;
    c->row.layer = c->row.has_point = 0;
    free(TAKE(c->row.stack));
    snprintf(c->row.reason, sizeof(c->row.reason), "the daemon ended while the step was taken");
    const struct commit commit = {write_dropped, dropped_written, NULL, c};
    commit_run(l->service->commits, &l->lane, &commit);
}

static int adopt_begun(struct live *l, struct step_row *row, bool of_rewind, struct err *err) {
    if (row->layer >= LAYER_COPIED)
        drop_copy(l, row);
    else if (row->kind == STEP_REWIND)
        return rewind_adopt(l, row, err);
    else if (row->kind != STEP_KEPT || !of_rewind) /* the rewind finishes its own kept step */
        finish_begun(l, row);
    return 0;
}

int steps_adopt(struct live *l, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    freeze_as_written(l);
    if (steps_load(l, err) < 0 ||
        store_step_list(l->service->store, l->row.id, 0, true, STORE_PAGE_MAX, &list, err) < 0)
        return err_wrap(err, "cannot read the steps of the machine");
    l->steps->unpruned = true; /* so that the machine's disk is measured */
    l->steps->stale = true;    /* unknown, so assume that layers were merged */
    bool rewinds = false;
    for (size_t i = 0; i < list.count && !l->steps->taking; i++) {
        enum step_kind kind = list.rows[i].kind;
        if (adopt_begun(l, &list.rows[i], rewinds, err) < 0)
            return err_wrap(err, "cannot finish the rewind of the machine");
        rewinds = kind == STEP_REWIND;
    }
    return 0;
}

void steps_end(struct live *l) {
    struct err err;
    err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
    while (l->steps->wanted) {
        struct step_call *c = steps_next_wanted(l->steps);
        if (c->done) /* the callback may request another step, which is refused here too */
            c->done(c->arg, NULL, &err);
        step_call_free(c);
    }
    loop_call_cancel(l->service->loop, &l->steps->start);
    barrier_let_all(l);
}

/*
 * Drops a step when the driver of the machine is released. Another reference must keep the machine
 * alive.
 */
static void abandon(struct step_call *c) {
    loop_timer_free(TAKE(c->again));
    step_row_done(&c->row);
    live_unref(c->live);
    free(c);
}

void steps_release(struct live *l) {
    struct live_steps *p = l->steps;
    loop_call_cancel(l->service->loop, &p->start);
    for (struct step_call *c = TAKE(p->wanted), *next; c; c = next) {
        next = c->next;
        abandon(c);
    }
    still_release(l);
    if (p->taking)
        abandon(TAKE(p->taking));
    steps_compact_release(l);
    durable_release(l);
    shelve_release(l);
    barrier_release(l);
}

static void steps_tear_down(struct live *l) {
    loop_call_cancel(l->service->loop, &l->steps->start);
    loop_timer_free(TAKE(l->steps->rest));
    free(l->steps->stack);
}

void steps_reset(struct live *l) {
    steps_tear_down(l);
    steps_set_up(l);
}

void steps_free(struct live *l) {
    steps_tear_down(l);
    free(l->steps);
}
