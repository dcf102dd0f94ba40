#include "service/change.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "service/asleep.h"
#include "service/cells.h"
#include "service/exec/live.h"
#include "service/exec/stored.h"
#include "service/pause.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/vm/memory.h"
#include "service/vm/vms.h"

void change_finish(struct change *c, const struct err *err) {
    struct live *l = c->live;
    struct machine_view view;
    struct journal_record what = verb_record(c->verb, l);
    note_result(l->service, &c->who, &what, c->intent, err);
    l->resting = false;
    live_verb_over(l);
    live_view(l, &view);
    c->done(c->arg, err ? NULL : &view, err);
    live_unref(l);
    free(c);
}

static void no_answer(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg, (void)view, (void)err;
}

static int change_write(void *arg, struct err *err) {
    const struct change *c = arg;
    return c->write(c->of, err);
}

static void change_written(void *arg, const struct err *failed) {
    const struct change *c = arg;
    c->written(c->of, failed);
}

static void change_late(void *arg, const struct err *why) {
    struct change *c = arg;
    service_machine_fn *done = c->done;
    struct err err;
    c->done = no_answer;
    err_set(&err, ERR_UNKNOWN, "operation %s of machine '%s' is done but not saved yet: %s",
            c->verb, c->live->row.id, why->text);
    err_remedy(&err, "free space on the disk that holds CARREL_HOME");
    done(c->arg, NULL, &err);
}

void change_commit(struct change *c, int (*write)(void *arg, struct err *err),
                   void (*written)(void *arg, const struct err *failed), void *of) {
    const struct commit commit = {change_write, change_written, change_late, c};
    c->write = write;
    c->written = written;
    c->of = of;
    commit_run(c->live->service->commits, &c->live->lane, &commit);
}

/* A machine has one operation at a time. Only a request to end it may join an end in progress. */
static int may_begin(const struct live *l, enum change_kind kind, struct err *err) {
    if (kind == CHANGE_ENDS && (l->ending || !l->changing))
        return 0;
    if (!l->changing && (l->machine || (kind == CHANGE_WAKES && l->dormant) ||
                         (kind == CHANGE_STOPS && (live_is_asleep(l) || live_is_stored(l)))))
        return 0;
    live_state_error(l, err);
    return l->changing
               ? err_remedy(err, "another operation on the machine is in progress: try again")
               : -1;
}

struct change *change_begin(struct service *s, const struct caller *who, const char *ref,
                            const char *verb, enum change_kind kind, service_machine_fn *done,
                            void *arg) {
    struct err err;
    uint64_t intent;
    struct live *l = NULL;
    if (allow(who, SCOPE_RUN, &err) == 0)
        l = live_find(s, who, ref, LIVE_ANY, &err);
    if (l && may_begin(l, kind, &err) < 0)
        l = NULL;
    struct journal_record what = l ? verb_record(verb, l) : (struct journal_record){0};
    if (!l || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return NULL;
    }
    struct change *c = xnew(struct change);
    *c = (struct change){.live = l,
                         .who = *who,
                         .verb = verb,
                         .intent = intent,
                         .after = l->row.state,
                         .by = rest_by(l, who),
                         .done = done,
                         .arg = arg};
    live_ref(l);
    l->changing = true;
    return c;
}

/* ---- requests that wait for a step ---- */

typedef void change_verb(struct service *s, const struct caller *who, const char *ref,
                         service_machine_fn *done, void *arg);

struct later {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    change_verb *verb;
    service_machine_fn *done;
    void *arg;
};

static void now_then(void *arg) {
    struct later *w DEFER_FREE = arg;
    w->verb(w->service, &w->who, w->machine, w->done, w->arg);
}

static void settled_then(void *arg, const struct err *err) {
    (void)err; /* the verb finds out itself what the machine is now */
    now_then(arg);
}

/*
 * A copy of a running machine freezes it for a moment, and a new daemon ends the box that a pause
 * or a sleep of the daemon before left behind. Requests wait for that instead of being refused, and
 * those of some callers for every operation.
 */
static bool comes_later(struct service *s, const struct caller *who, const char *ref,
                        change_verb *verb, service_machine_fn *done, void *arg) {
    struct err err;
    struct live *l = live_find(s, who, ref, LIVE_ANY, &err);
    bool joins = l && (l->left_box || (who->waits && l->changing && !l->ending));
    if (!joins && !(l && steps_copy_runs(l)))
        return false;
    struct later *w = xnew(struct later);
    *w = (struct later){s, *who, "", verb, done, arg};
    snprintf(w->machine, sizeof(w->machine), "%s", l->row.id);
    if (joins) {
        (verb == service_destroy ? rest_join_first : rest_join)(l, settled_then, w);
        return true;
    }
    if (barrier_wait(l, now_then, w))
        return true;
    free(w);
    return false;
}

/* ---- pause, resume, stop and end ---- */

/* If the machine ended meanwhile, returns that error instead of the result of the driver. */
static const struct err *cut_short(const struct change *c, const struct err *failed,
                                   struct err *ret) {
    if (!c->live->ending)
        return failed;
    err_set(ret, ERR_GONE, "machine '%s' ended before the operation was done", c->live->row.id);
    err_remedy(ret, "see its state: carrel show %s", c->live->row.id);
    return ret;
}

#define PAUSE_LOST "its machine, a vm paused on disk, was stopped"

/* A stop of a vm that is paused without a box: it boots when it is resumed. */
static bool change_loses(const struct change *c) {
    return c->after == MACHINE_STOPPED && live_is_stored(c->live) && live_is_vm(c->live);
}

static void change_lose(struct live *l) {
    char path[MEMORY_PATH_SIZE], step[ID_SIZE];
    struct err err;
    execs_lose(l, PAUSE_LOST);
    if (memory_of_paused(l, path, step, &err) == 0)
        memory_drop(l->service, l->row.id, step);
}

static int write_state(void *arg, struct err *err) {
    const struct change *c = arg;
    const struct live *l = c->live;
    char type[32];
    if (l->ending)
        return 0;
    snprintf(type, sizeof(type), "machine.%s", machine_state_name(c->after));
    if (change_loses(c) &&
        store_exec_lose(l->service->store, l->row.id, wall_ms(), PAUSE_LOST, NULL, err) < 0)
        return -1;
    return store_machine_set_state(l->service->store, l->row.id, c->after, c->by, err) < 0
               ? -1
               : event_put(l->service, l->row.owner, l->row.id, type, NULL, err);
}

static void state_written(void *arg, const struct err *failed) {
    struct change *c = arg;
    struct live *l = c->live;
    struct err gone;
    failed = cut_short(c, failed, &gone);
    if (!failed && change_loses(c))
        change_lose(l);
    if (!failed) {
        l->row.state = c->after;
        l->row.state_by = c->by;
        idle_touch(&l->idle, loop_now_ms(l->service->loop));
        if (c->after == MACHINE_RUNNING)
            execs_resume(l);
        else if (c->after == MACHINE_STOPPED)
            execs_end_stored(l);
    }
    change_finish(c, failed);
}

static void change_state(void *arg, const struct err *failed) {
    struct err gone;
    failed = cut_short(arg, failed, &gone);
    if (failed)
        change_finish(arg, failed);
    else
        change_commit(arg, write_state, state_written, arg);
}

static void change_refuse(struct change *c) {
    struct err err;
    live_state_error(c->live, &err);
    change_finish(c, &err);
}

/* The machine is at rest already. From now on it is so by this caller. */
static void change_rests(struct change *c) {
    if (c->by == c->live->row.state_by)
        change_finish(c, NULL);
    else
        change_state(c, NULL);
}

void service_pause(struct service *s, const struct caller *who, const char *ref,
                   service_machine_fn *done, void *arg) {
    if (comes_later(s, who, ref, service_pause, done, arg))
        return;
    struct change *c = change_begin(s, who, ref, "machine.pause", CHANGE_STOPS, done, arg);
    if (!c)
        return;
    c->after = MACHINE_PAUSED;
    c->live->resting = true;
    if (c->live->row.state == MACHINE_PAUSED)
        change_rests(c);
    else if (c->live->row.state != MACHINE_RUNNING)
        change_refuse(c);
    else if (live_is_asleep(c->live)) /* it has no box and no program */
        change_state(c, NULL);
    else if (live_is_cell(c->live) || live_is_vm(c->live))
        pause_machine(c->live, c->by, change_state, c);
    else
        s->driver->freeze(c->live->machine, true, change_state, c);
}

/* A machine that slept is awake. Its state is the same as before. */
static void change_woken(void *arg, const struct err *failed) {
    struct err gone;
    change_finish(arg, cut_short(arg, failed, &gone));
}

/* An earlier pause may have left a vm that stands still. */
static void change_go_on(void *arg, const struct err *failed) {
    const struct change *c = arg;
    if (failed || c->live->ending || !c->live->machine)
        change_state(arg, failed);
    else
        c->live->service->driver->go_on(c->live->machine, MEMORY_REPAIR, change_state, arg);
}

/* A host that cannot freeze a box did not freeze that of a machine whose programs are stored. */
static void change_thawed(void *arg, const struct err *failed) {
    const struct change *c = arg;
    bool is_stored = failed && failed->code == ERR_UNSUPPORTED && execs_are_stored(c->live);
    change_state(arg, is_stored ? NULL : failed);
}

void service_resume(struct service *s, const struct caller *who, const char *ref,
                    service_machine_fn *done, void *arg) {
    if (comes_later(s, who, ref, service_resume, done, arg))
        return;
    struct change *c = change_begin(s, who, ref, "machine.resume", CHANGE_WAKES, done, arg);
    if (!c)
        return;
    c->after = MACHINE_RUNNING;
    switch (c->live->row.state) {
    case MACHINE_RUNNING:
        if (live_is_asleep(c->live))
            live_wake(c->live, change_woken, change_late, c);
        else
            change_finish(c, NULL);
        break;
    case MACHINE_PAUSED:
        if (c->live->dormant)
            live_wake(c->live, change_state, change_late, c);
        else
            s->driver->freeze(c->live->machine, false,
                              live_is_vm(c->live) ? change_go_on : change_thawed, c);
        break;
    case MACHINE_STOPPED:
        if (c->live->dormant)
            live_wake(c->live, change_state, change_late, c);
        else
            change_state(c, NULL);
        break;
    default:
        change_refuse(c);
    }
}

static void halt(void *arg, const struct err *failed) {
    struct change *c = arg;
    struct err gone;
    failed = cut_short(c, failed, &gone);
    if (failed)
        change_finish(c, failed);
    else
        machine_halt(c->live->machine, c->live->service->loop, change_state, c);
}

void service_stop(struct service *s, const struct caller *who, const char *ref,
                  service_machine_fn *done, void *arg) {
    if (comes_later(s, who, ref, service_stop, done, arg))
        return;
    struct change *c = change_begin(s, who, ref, "machine.stop", CHANGE_STOPS, done, arg);
    if (!c)
        return;
    c->after = MACHINE_STOPPED;
    c->live->resting = true;
    if (c->live->row.state == MACHINE_STOPPED)
        change_rests(c);
    else if (live_is_asleep(c->live) || live_is_stored(c->live))
        change_state(c, NULL);
    else if (c->live->row.state != MACHINE_RUNNING && c->live->row.state != MACHINE_PAUSED)
        change_refuse(c);
    else if (c->live->row.state == MACHINE_PAUSED)
        s->driver->freeze(c->live->machine, false, halt, c);
    else
        halt(c, NULL);
}

static void destroyed(void *arg, const struct err *err) {
    change_finish(arg, err);
}

void service_destroy(struct service *s, const struct caller *who, const char *ref,
                     service_machine_fn *done, void *arg) {
    if (comes_later(s, who, ref, service_destroy, done, arg))
        return;
    struct change *c = change_begin(s, who, ref, "machine.destroy", CHANGE_ENDS, done, arg);
    if (c)
        live_end(c->live, "destroyed", destroyed, c);
}
