#include "base/alloc.h"
#include "base/clock.h"
#include "service/exec/live.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/steps/call_inner.h"
#include "service/steps/durable.h"
#include "service/vm/vms.h"

enum { AGAIN_MS = 200, AGAIN_TRIES = 25, DYING_MS = 4, DYING_TRIES = 50, WHAT_MAX = 4096 };

/* ---- taking a step ---- */

struct step_call *step_call_new(struct live *l, const struct step_cause *cause) {
    struct step_call *c = xnew(struct step_call);
    c->live = l;
    c->row = (struct step_row){.kind = cause->kind,
                               .state = STEP_TAKING,
                               .created_ms = wall_ms(),
                               .status = cause->status,
                               .what = xstrndup(cause->what ? cause->what : "", WHAT_MAX)};
    snprintf(c->row.id, sizeof(c->row.id), "%s", id_new('s').text);
    snprintf(c->row.machine, sizeof(c->row.machine), "%s", l->row.id);
    snprintf(c->row.exec, sizeof(c->row.exec), "%s", cause->exec ? cause->exec : "");
    snprintf(c->row.name, sizeof(c->row.name), "%s", cause->name ? cause->name : "");
    c->dying = cause->killed ? DYING_TRIES : 0;
    c->memory = cause->memory;
    c->pauses = cause->pauses;
    live_ref(l);
    return c;
}

void step_call_free(struct step_call *c) {
    loop_timer_free(c->again);
    step_row_done(&c->row);
    live_unref(c->live);
    free(c);
}

/* Starts the next step, or lets waiting requests through. */
void step_over(struct step_call *c, const struct err *err) {
    struct live *l = c->live;
    live_ref(l);
    l->steps->taking = NULL;
    if (err)
        log_line(LOG_WARN, "service", "take a step: %s id=%s", err->text, l->row.id);
    if (c->done)
        c->done(c->arg, err ? NULL : &c->row, err);
    if (!err && c->row.layer)
        steps_compact(l);
    if (!err && c->row.has_point) {
        durable_want(l);
        l->steps->beside_told &= step_is_copy(&c->row); /* a copy: processes still run */
    }
    l->steps->unpruned = true;
    step_call_free(c);
    barrier_open(l);
    live_unref(l);
}

void step_no_point(struct step_call *c, const char *why) {
    struct step_row *row = &c->row;
    row->has_point = row->layer = 0;
    free(row->stack);
    row->stack = NULL;
    snprintf(row->reason, sizeof(row->reason), "%s", why);
    c->live->service->steps->fallbacks[FELL_STEP_WITHOUT_POINT] += row->kind != STEP_SNAP;
}

void step_say_full(const struct live *l, struct err *err) {
    err_wrap(err, "the disk of machine '%s' has no room for a step (restore point)", l->row.id);
    err_remedy(err, "delete files in the machine, or create one with a larger --disk; named steps "
                    "keep their space");
}

/* ---- switching the root ---- */

static void root_known(void *arg, bool changed, const struct err *failed);

static void wait_and_ask(struct step_call *c) {
    if (!c->again)
        c->again = loop_timer_new(c->live->service->loop, step_ask_root, c);
    loop_timer_start(c->again, AGAIN_MS, 0);
}

/*
 * True if the answer leaves open whether the guest entered the new root: the question is repeated
 * until that is known or the machine ends. If the spawner cannot be started, it is repeated only
 * AGAIN_TRIES times.
 */
static bool ask_again(struct step_call *c, const struct err *err) {
    struct live *l = c->live;
    bool ends = l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
    bool lost = err->code == ERR_UNKNOWN || err->code == ERR_GONE || err->code == ERR_TIMEOUT;
    c->uncertain |= lost;
    if (ends || !c->uncertain || (!lost && c->tries++ >= AGAIN_TRIES))
        return false;
    wait_and_ask(c);
    return true;
}

static bool make_room(struct step_call *c, const struct err *err) {
    bool may = steps_make_room(c->live, err, &c->rooms);
    if (may)
        wait_and_ask(c);
    return may;
}

static void refresh_planned(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    struct live *l = c->live;
    struct err err;
    if (!failed && !l->machine) {
        err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
        failed = &err;
    }
    if (failed)
        step_refuse(c, failed);
    else
        l->service->driver->root(l->machine, c->row.stack, l->steps->layer + 1, 0, root_known, c);
}

/* Nothing was written since the last switch: the new root has the same layers, as merged now. */
static void refresh_plain(struct step_call *c) {
    const struct live *l = c->live;
    c->plain = true;
    c->row.layer = 0;
    free(c->row.stack);
    c->row.stack = xstrdup(l->steps->stack ? l->steps->stack : "");
    step_replan(c, refresh_planned);
}

/*
 * Keeps the changes since the newest step as a step, because a row must refer to each mounted
 * layer.
 */
static void refresh_kept(struct step_call *c) {
    c->row.kind = STEP_KEPT;
    c->row.has_point = 1;
    step_finish(c, true);
}

static void refresh_known(struct step_call *c, bool changed, const struct err *failed) {
    if (failed && ask_again(c, failed))
        return;
    if (failed)
        step_refuse(c, failed);
    else if (!changed && !c->plain)
        refresh_plain(c);
    else if (c->row.layer)
        refresh_kept(c);
    else
        step_refreshed(c);
}

static void root_known(void *arg, bool changed, const struct err *failed) {
    struct step_call *c = arg;
    struct live *l = c->live;
    struct err err;
    if (c->row.kind == STEP_REFRESH) {
        refresh_known(c, changed, failed);
        return;
    }
    if (failed && (ask_again(c, failed) || make_room(c, failed) || step_copy_instead(c, failed)))
        return;
    l->steps->full = l->steps->freeing = false;
    l->steps->spare_failed = l->steps->root_merged = false;
    if (failed) {
        step_no_point(c, failed->text);
    } else {
        c->row.has_point = 1;
        if (!changed) {
            free(c->row.stack);
            c->row.stack = l->steps->stack ? xstrdup(l->steps->stack) : NULL;
            c->row.layer = 0;
            c->row.counted = 1;
        }
    }
    bool asked_for = c->row.kind == STEP_SNAP && failed;
    if (asked_for) { /* a requested step must be restorable */
        err = *failed;
        if (err.code == ERR_LIMIT)
            step_say_full(l, &err);
        step_refuse(c, &err);
    } else {
        step_finish(c, !failed && changed);
    }
}

static void ask_root_as(struct step_call *c, unsigned how) {
    struct live *l = c->live;
    struct err err;
    if (!l->machine) {
        err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
        root_known(c, false, &err);
        return;
    }
    l->service->driver->root(l->machine, c->row.stack, l->steps->layer + 1, ROOT_IF_CHANGED | how,
                             root_known, c);
}

void step_ask_root(void *arg) {
    ask_root_as(arg, 0);
}

static void ask_alone(void *arg);

/* Without cgroups, killed processes may still be exiting: waits for them. */
static bool wait_for_dying(struct step_call *c, const struct err *err) {
    if (err->code != ERR_BUSY || !c->dying || !c->live->machine)
        return false;
    c->dying--;
    loop_timer_free(c->again);
    c->again = loop_timer_new(c->live->service->loop, ask_alone, c);
    loop_timer_start(c->again, DYING_MS, 0);
    return true;
}

static void alone_known(void *arg, const struct err *err) {
    struct step_call *c = arg;
    if (c->adding) {
        c->answered = true; /* the guest is asked again later */
    } else if (c->unwritten) {
        step_over(c, &c->why);
    } else if (!err) {
        loop_timer_free(TAKE(c->again)); /* the timer is used for other queries from now on */
        ask_root_as(c, ROOT_ALONE);
    } else if (!wait_for_dying(c, err)) {
        loop_timer_free(TAKE(c->again));
        root_known(c, false, err);
    }
}

static void ask_alone(void *arg) {
    struct step_call *c = arg;
    if (c->live->machine)
        c->live->service->driver->alone(c->live->machine, alone_known, c);
    else
        step_ask_root(c);
}

static bool cannot_switch(const struct live *l, struct err *ret_why) {
    if (!l->machine || l->row.state == MACHINE_PAUSED)
        live_state_error(l, ret_why);
    else if (execs_running(l))
        err_set(ret_why, ERR_BUSY, "other commands were running");
    else if (live_is_vm(l))
        err_set(ret_why, ERR_BUSY, "the kernel of a vm has its files open");
    else if (l->watched)
        err_set(ret_why, ERR_BUSY, "a path in machine '%s' is being watched", l->row.id);
    else
        return false;
    return true;
}

/* Decides how the step is taken; false: the step was refused. */
static bool step_plan(struct step_call *c) {
    struct live *l = c->live;
    struct err err = {.text = ""};
    char stack[LAYERS_TEXT_SIZE];
    int ready = -1;
    bool shared = cannot_switch(l, &c->shared);
    c->way = shared && step_may_copy(c) ? STEP_COPIES : STEP_SWITCHES;
    if (c->way == STEP_COPIES)
        ready = step_plan_copy(c, &err);
    else if (shared)
        err = c->shared;
    else
        ready = steps_next_stack(l, stack, &err);
    if (ready == 0 && c->way == STEP_SWITCHES) {
        c->row.stack = xstrdup(stack);
        c->row.layer = l->steps->layer;
    } else if (ready < 0 && (c->row.kind == STEP_SNAP || c->row.kind == STEP_REFRESH)) {
        step_over(c, &err);
        return false;
    } else if (ready < 0) {
        step_no_point(c, err.text);
        c->way = STEP_ONLY_NOTED;
        c->row.state = STEP_DONE;
    }
    return true;
}

static int write_begun(void *arg, struct err *err) {
    struct step_call *c = arg;
    if (store_step_add(c->live->service->store, &c->row, err) < 0)
        return -1;
    return c->way == STEP_ONLY_NOTED ? step_put_event(c, err) : 0;
}

/* The row is written. The guest's answer may have arrived before. */
static void begun_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    c->adding = false;
    if (failed) {
        c->unwritten = true;
        c->why = *failed;
    }
    if (c->way == STEP_SWITCHES && !c->answered)
        return; /* alone_known() continues */
    if (failed)
        step_over(c, failed);
    else if (c->way == STEP_SWITCHES)
        ask_alone(c);
    else if (c->way == STEP_COPIES)
        step_take_copy(c);
    else
        step_over(c, NULL);
}

static void take_begin(struct step_call *c) {
    struct live *l = c->live;
    struct err err;
    l->steps->taking = c;
    if (!step_plan(c))
        return;
    /* The guest is asked while the row is written; layers are changed only after that. */
    c->adding = true;
    if (c->way == STEP_SWITCHES)
        ask_alone(c);
    const struct commit intent = {write_begun, begun_written, NULL, c};
    if (c->row.kind == STEP_SNAP || c->row.kind == STEP_REFRESH) {
        bool written = commit_once(l->service->commits, &l->lane, &intent, &err) == 0;
        begun_written(c, written ? NULL : &err);
    } else {
        commit_run(l->service->commits, &l->lane, &intent);
    }
}

/*
 * True if steps are so much faster than merges that the next step could have no restore point,
 * because a stack has at most LAYERS_MAX layers. Otherwise no step waits for a merge.
 */
static bool is_behind(const struct live_steps *p) {
    size_t layers = p->stack && *p->stack ? 1 : 0;
    for (const char *at = p->stack; at && (at = strchr(at, ' ')); at++)
        layers++;
    return (p->merging || p->weighing) && layers >= LAYERS_MAX;
}

/* Removes the step from the list before any callback runs. */
struct step_call *steps_next_wanted(struct live_steps *p) {
    struct step_call *c = p->wanted;
    p->wanted = c->next;
    if (!p->wanted)
        p->wanted_last = &p->wanted;
    return c;
}

void steps_begin_next(void *arg) {
    struct live *l = arg;
    struct live_steps *p = l->steps;
    if (!p->wanted || p->taking || p->held || is_behind(p) || commit_waits(&l->lane) ||
        barrier_is_unheard(l))
        return;
    take_begin(steps_next_wanted(p));
}

void steps_take(struct live *l, const struct step_cause *cause, step_taken_fn *done, void *arg) {
    struct live_steps *p = l->steps;
    struct step_call *c = step_call_new(l, cause);
    c->done = done;
    c->arg = arg;
    *p->wanted_last = c;
    p->wanted_last = &c->next;
    loop_defer(l->service->loop, &p->start);
}

void steps_refresh(struct live *l) {
    struct step_cause cause = {.kind = STEP_REFRESH, .what = "to free its disk", .status = -1};
    steps_take(l, &cause, NULL, NULL);
}

/* True if a step is taken after every change. */
static bool takes_every(const struct live *l) {
    return l->row.steps == STEPS_EVERY && l->machine && !l->steps->held &&
           l->row.state != MACHINE_ENDING && l->row.state != MACHINE_ENDED;
}

uint64_t steps_changes(const struct live *l) {
    return l->steps->changes;
}

void steps_after(struct live *l, const struct step_cause *cause) {
    l->steps->changes++;
    if (takes_every(l))
        steps_take(l, cause, NULL, NULL);
}

bool steps_tell_beside(struct live *l) {
    bool first = takes_every(l) && !l->steps->beside_told;
    l->steps->beside_told |= first;
    return first;
}
