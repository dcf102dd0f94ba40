#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/call_inner.h"
#include "service/steps/inner.h"
#include "service/vm/memory.h"

int step_put_event(const struct step_call *c, struct err *err) {
    struct live *l = c->live;
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "step", c->row.id);
    jot_u64(&j, "number", c->row.number);
    jot_string(&j, "kind", step_kind_name(c->row.kind));
    jot_bool(&j, "restorable", c->row.has_point);
    if (c->row.reason[0])
        jot_string(&j, "reason", c->row.reason);
    jot_end(&j, '}');
    return event_put(l->service, l->row.owner, l->row.id, "step.taken", text.data, err);
}

/*
 * The name of the snapshot cannot be saved, so the request is refused. The step stays, without a
 * name.
 */
static void step_late(void *arg, const struct err *why) {
    struct step_call *c = arg;
    struct err err;
    (void)why;
    if (c->row.kind != STEP_SNAP)
        return;
    c->row.kind = STEP_KEPT;
    c->row.name[0] = '\0';
    step_taken_fn *done = TAKE(c->done);
    commit_why_late(&c->live->lane, &err);
    if (done)
        done(c->arg, NULL, &err);
}

static void step_commit(struct step_call *c, int (*write)(void *arg, struct err *err),
                        void (*done)(void *arg, const struct err *failed)) {
    const struct commit commit = {write, done, step_late, c};
    commit_run(c->live->service->commits, &c->live->lane, &commit);
}

/* One transaction: the step is done, and its stack becomes the root. */
static int write_step(void *arg, struct err *err) {
    struct step_call *c = arg;
    struct live *l = c->live;
    c->row.state = STEP_DONE;
    if (store_step_update(l->service->store, &c->row, err) < 0 ||
        (c->changed && steps_root_put(l, l->steps->layer + 1, c->row.stack, err) < 0))
        return -1;
    return step_put_event(c, err);
}

static void step_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    if (!failed && c->changed) {
        steps_root_known(c->live, c->live->steps->layer + 1, c->row.stack);
        c->live->steps->stale = false;
    }
    step_over(c, failed);
}

void step_finish(struct step_call *c, bool changed) {
    c->changed = changed;
    step_commit(c, write_step, step_written);
}

static int write_refused(void *arg, struct err *err) {
    struct step_call *c = arg;
    return store_step_delete(c->live->service->store, c->row.id, err);
}

static void refused_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    (void)failed;
    if (c->memory)
        memory_forget(c->live->service, c->row.machine, c->row.id);
    step_over(c, &c->why);
}

void step_refuse(struct step_call *c, const struct err *err) {
    c->why = *err;
    step_commit(c, write_refused, refused_written);
}

/*
 * The newest step gets the layers of the new root, which hold the same files: the old ones can be
 * deleted.
 */
static int write_newest(struct step_call *c, struct err *err) {
    struct step_row newest DEFER(step_row_done) = {0};
    if (steps_newest_switch(c->live, &newest, err) < 0)
        return -1;
    free(newest.stack);
    newest.stack = xstrdup(c->row.stack);
    return newest.number ? store_step_update(c->live->service->store, &newest, err) : 0;
}

/* The row of a refresh is temporary: deletes it and sets the root that it named. */
static int write_refreshed(void *arg, struct err *err) {
    struct step_call *c = arg;
    if (store_step_delete(c->live->service->store, c->row.id, err) < 0 || write_newest(c, err) < 0)
        return -1;
    return steps_root_put(c->live, c->live->steps->layer + 1, c->row.stack, err);
}

static void refreshed_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    if (!failed)
        steps_root_known(c->live, c->live->steps->layer + 1, c->row.stack);
    step_over(c, failed);
}

void step_refreshed(struct step_call *c) {
    step_commit(c, write_refreshed, refreshed_written);
}

static int write_planned(void *arg, struct err *err) {
    struct step_call *c = arg;
    return store_step_update(c->live->service->store, &c->row, err);
}

void step_replan(struct step_call *c, void (*done)(void *arg, const struct err *failed)) {
    step_commit(c, write_planned, done);
}
