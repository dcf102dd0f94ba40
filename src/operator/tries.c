/*
 * Several tries at one task: a run that calls no model itself. Each try is a run on a fork of the
 * machine or on a new machine. When all have ended each is judged; the machine of the best try
 * stays and the others are deleted.
 *
 * The transcript holds the whole state. A resumed run finds machines and checks by their keys, and
 * runs by their `parent` member, so nothing is created twice.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "operator/tries_inner.h"
#include "service/exec/exec.h"
#include "service/runs.h"
#include "service/steps/steps.h"

void tries_leave_check(struct trying *t) {
    if (!t->exec)
        return;
    exec_unfollow(&t->follower);
    exec_unref(TAKE(t->exec));
}

static void trying_free(struct trying *t) {
    for (size_t i = 0; i < RUN_TRIES_MAX; i++)
        operator_unfollow(&t->followers[i]);
    tries_leave_check(t);
    free(t);
}

/* Called first in each callback. True: the run was closed. */
static bool is_left(struct trying *t) {
    t->busy = false;
    if (t->live)
        return false;
    trying_free(t);
    return true;
}

/* True: the run was closed or cancelled; a cancellation continues. */
bool tries_is_unwanted(struct trying *t) {
    if (is_left(t))
        return true;
    if (t->live->run.cancelling)
        live_again(t->live);
    return t->live->run.cancelling;
}

const struct run_try *tries_try_of(const struct trying *t) {
    return &t->live->run.tries[t->at];
}

/* The failure may be temporary, so the run is interrupted and can be resumed. */
static void stop(struct trying *t, const char *what, const struct err *err) {
    struct live_run *l = t->live;
    char text[512];
    snprintf(text, sizeof(text), "try %zu: %s: %s", t->at + 1, what, err->text);
    struct run_event e = {.kind = RUN_STOPPED, .text = text};
    (void)live_add(l, &e);
    live_again(l);
}

void tries_add(struct trying *t, struct run_event *e) {
    e->index = t->at;
    (void)live_add(t->live, e);
    live_again(t->live);
}

void tries_key_of(struct trying *t, const char *what) {
    snprintf(t->key, sizeof(t->key), "%s.%s%zu", t->live->run.start.run, what, t->at);
}

static void tries_gone(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err;
}

void tries_drop(struct trying *t, const char *machine) {
    service_destroy(t->service, &t->live->who, machine, tries_gone, NULL);
}

/* ---- machines ---- */

static void made(void *arg, const struct machine_view *view, const struct err *err) {
    struct trying *t = arg;
    if (tries_is_unwanted(t))
        return;
    struct run_event e = {.kind = RUN_TRY, .machine = view ? view->id : NULL};
    if (err)
        stop(t, "cannot create a machine", err);
    else
        tries_add(t, &e);
}

static void forked_one(void *arg, const void *view) {
    struct trying *t = arg;
    snprintf(t->place, sizeof(t->place), "%s", ((const struct machine_view *)view)->id);
}

static void forked(void *arg, const struct err *err) {
    struct trying *t = arg;
    const struct machine_view view = {.id = t->place};
    made(t, err ? NULL : &view, err);
}

void tries_fork_of(struct trying *t, const char *machine, const char *step, service_done_fn *done) {
    const struct fork_request r = {.count = {1, true}, .step = step, .key = t->key};
    t->busy = true;
    service_fork(t->service, &t->live->who, machine, &r, forked_one, done, t);
}

static void make_machine(struct trying *t) {
    const char *source = t->live->run.start.machine;
    tries_key_of(t, "try");
    if (*source) {
        tries_fork_of(t, source, NULL, forked);
        return;
    }
    t->busy = true;
    live_make_machine(t->live, t->key, made, t);
}

/* ---- runs ---- */

struct finding {
    const char *key;
    char run[ID_SIZE];
};

static void tries_look_at(void *arg, const struct run *r) {
    struct finding *f = arg;
    if (r->start.parent && strcmp(r->start.parent, f->key) == 0)
        snprintf(f->run, sizeof(f->run), "%s", r->start.run);
}

static void shown(void *arg, const struct machine_view *view, const struct err *err) {
    struct trying *t = arg;
    struct finding f = {t->key, ""};
    struct err why;
    if (tries_is_unwanted(t))
        return;
    if (t->live->run.resumed) /* the run of this try may have been started before the resume */
        runs_each(t->live->runs, tries_look_at, &f);
    if (!err && !f.run[0] && live_try(t->live, view, t->key, f.run, &why) < 0)
        err = &why;
    struct run_event e = {.kind = RUN_TRY, .run = f.run, .machine = tries_try_of(t)->machine};
    if (err)
        stop(t, "cannot start its run", err);
    else
        tries_add(t, &e);
}

static void start_run(struct trying *t) {
    tries_key_of(t, "try.");
    t->busy = true;
    service_show(t->service, &t->live->who, tries_try_of(t)->machine, shown, t);
}

/* ---- waiting ---- */

static void tries_changed(void *arg) {
    struct trying *t = arg;
    if (t->live)
        live_again(t->live);
}

static void outcome_known(void *arg, const struct run_view *view, const struct err *err) {
    struct outcome *o = arg;
    snprintf(o->state, sizeof(o->state), "%s", err ? "interrupted" : view->state);
    snprintf(o->status, sizeof(o->status), "%s", !err && view->status ? view->status : "");
    const char *why = err ? err->text : view->reason;
    snprintf(o->reason, sizeof(o->reason), "%s", why ? why : "");
    o->report = !err && view->report ? json_loads(view->report, 0, NULL) : NULL;
}

void tries_outcome_done(struct outcome *o) {
    json_decref(o->report);
}

void tries_outcome_of(const struct trying *t, size_t i, struct outcome *ret) {
    struct live_run *l = t->live;
    *ret = (struct outcome){.report = NULL};
    operator_show(l->runs, &l->who, l->run.tries[i].run, outcome_known, ret);
}

/* 1: the try has ended. 0: it is running. -1: it was interrupted, and so is this run. */
static int await(struct trying *t, size_t i) {
    struct outcome o DEFER(tries_outcome_done) = {.report = NULL};
    struct run_follower *f = &t->followers[i];
    struct live_run *l = t->live;
    struct err err;
    t->at = i;
    if (f->at)
        return 0;
    *f = (struct run_follower){.changed = tries_changed, .arg = t};
    if (operator_follow(l->runs, l->run.tries[i].run, f))
        return 0;
    tries_outcome_of(t, i, &o);
    if (strcmp(o.state, "ended") == 0)
        return 1;
    if (!t->taken[i]) { /* the try was interrupted, or its model was unreachable: resume it once */
        t->taken[i] = true;
        if (live_inner_again(l, INNER_TRY, l->run.tries[i].run, &err) == 0 &&
            operator_follow(l->runs, l->run.tries[i].run, f))
            return 0;
    }
    err_set(&err, ERR_UNKNOWN, "%s", o.reason);
    stop(t, "interrupted", &err);
    return -1;
}

static bool all_ended(struct trying *t) {
    bool ended = true;
    for (size_t i = 0; i < t->live->run.start.tries; i++) {
        int status = await(t, i);
        if (status < 0)
            return false;
        ended &= status == 1;
    }
    return ended;
}

/* ---- end of the run ---- */

static const char *summary_of(struct trying *t, size_t best, struct arena *a) {
    struct outcome o DEFER(tries_outcome_done) = {.report = NULL};
    tries_outcome_of(t, best, &o);
    const char *text = json_string_value(json_object_get(o.report, "summary"));
    return text ? arena_copy(a, text, strlen(text)) : "";
}

static void put_try(struct jot *j, struct trying *t, size_t i) {
    const struct run_try *x = &t->live->run.tries[i];
    struct outcome o DEFER(tries_outcome_done) = {.report = NULL};
    tries_outcome_of(t, i, &o);
    jot_object(j, NULL);
    jot_string(j, "machine", x->machine);
    jot_string(j, "run", x->run);
    jot_string(j, "status", o.status);
    jot_bool(j, "good", x->good);
    jot_u64(j, "changes", x->changes);
    if (x->changeset)
        jot_string(j, "changeset", x->changeset);
    jot_end(j, '}');
}

static void tries_end(struct live_run *l, const char *status, const struct jot *j,
                      const struct buf *report) {
    struct run_event e = {
        .kind = RUN_END, .status = status, .report = j->failed ? "{}" : report->data};
    if (live_add(l, &e) == 0)
        live_tell_end(l);
    live_again(l);
}

/* All machines but that of the best try are deleted, once the verdicts are on disk. */
static void tries_finish(struct live_run *l) {
    struct trying *t = l->trying;
    struct arena a DEFER(arena_done) = {0};
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    const struct run *r = &l->run;
    size_t best = run_best_try(r);
    if (l->broken) {
        live_again(l);
        return;
    }
    for (size_t i = 0; i < r->start.tries; i++) {
        if (i != best)
            tries_drop(t, r->tries[i].machine);
        if (r->tries[i].place) /* the check's machine may be left after a crash */
            tries_drop(t, r->tries[i].place);
    }
    jot_object(&j, NULL);
    jot_u64(&j, "best", best);
    jot_string(&j, "machine", r->tries[best].machine);
    jot_string(&j, "summary", summary_of(t, best, &a));
    tries_put_sums(&j, t);
    jot_array(&j, "tries");
    for (size_t i = 0; i < r->start.tries; i++)
        put_try(&j, t, i);
    jot_end(&j, ']');
    jot_end(&j, '}');
    tries_end(l, r->tries[best].good ? "done" : "partial", &j, &text);
}

/* ---- cancellation ---- */

static void over(void *arg, const struct run_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err;
}

/* Ends the runs of the tries and their calls in progress. */
static void end_runs(struct trying *t) {
    struct live_run *l = t->live;
    for (size_t i = 0; i < l->run.start.tries; i++) {
        operator_unfollow(&t->followers[i]);
        if (l->run.tries[i].run)
            operator_cancel(l->runs, &l->who, l->run.tries[i].run, over, NULL);
    }
    if (l->run.resumed) /* a run may have been started before the resume, without a line */
        runs_end_within(l->runs, &l->who, l->run.start.run);
}

static void add_drop(struct trying *t, const char *machine) {
    for (size_t i = 0; i < t->drop_count; i++)
        if (strcmp(t->drops[i], machine) == 0)
            return;
    snprintf(t->drops[t->drop_count++], ID_SIZE, "%s", machine);
}

/* Lists the machines of the tries, including those that have no transcript line yet. */
static void list_drops(struct live_run *l) {
    struct trying *t = l->trying;
    struct run_machines made = {.count = 0};
    if (l->broken) {
        live_again(l);
        return;
    }
    tries_leave_check(t);
    end_runs(t);
    service_run_machines(t->service, &l->who, l->run.start.run, &made);
    for (size_t i = 0; i < made.count; i++)
        add_drop(t, made.ids[i]);
    for (size_t i = 0; i < l->run.start.tries; i++)
        if (l->run.tries[i].machine)
            add_drop(t, l->run.tries[i].machine);
    t->listed = true;
    live_again(l);
}

static void one_dropped(void *arg, const struct machine_view *view, const struct err *err) {
    struct trying *t = arg;
    (void)view;
    if (is_left(t))
        return;
    t->dropped++;
    if (err && err->code != ERR_NOT_FOUND && err->code != ERR_GONE)
        stop(t, "cannot delete its machine", err);
    else
        live_again(t->live);
}

/* Deletes the machines one by one, after RUN_CANCEL is on disk; then the run ends. */
static void go_on_cancelling(struct trying *t) {
    struct live_run *l = t->live;
    if (!t->listed) {
        live_flush(l, list_drops);
        return;
    }
    if (t->dropped < t->drop_count) {
        t->busy = true;
        service_destroy(t->service, &l->who, t->drops[t->dropped], one_dropped, t);
        return;
    }
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "reason", "cancelled by its owner");
    tries_put_sums(&j, t);
    jot_end(&j, '}');
    tries_end(l, "cancelled", &j, &text);
}

/* ---- the next action ---- */

/* The first try for which has() is false, or the number of tries. */
static size_t first_without(const struct run *r, bool (*has)(const struct run_try *x)) {
    size_t i = 0;
    while (i < r->start.tries && has(&r->tries[i]))
        i++;
    return i;
}

static bool has_machine(const struct run_try *x) {
    return x->machine;
}

static bool has_run(const struct run_try *x) {
    return x->run;
}

static bool is_judged(const struct run_try *x) {
    return x->judged;
}

void tries_go_on(struct live_run *l) {
    static const struct {
        bool (*has)(const struct run_try *x);
        void (*get)(struct trying *t);
    } stages[] = {{has_machine, make_machine}, {has_run, start_run}};
    if (l->run.phase != RUN_RUNNING) {
        live_close(l);
        return;
    }
    if (!l->trying) {
        l->trying = xcalloc(1, sizeof(*l->trying));
        *l->trying = (struct trying){.live = l, .service = l->runs->service};
    }
    struct trying *t = l->trying;
    if (t->busy || (t->exec && !l->run.cancelling))
        return;
    if (l->run.cancelling) {
        go_on_cancelling(t);
        return;
    }
    for (size_t i = 0; i < 2; i++) {
        t->at = first_without(&l->run, stages[i].has);
        if (t->at < l->run.start.tries) {
            stages[i].get(t);
            return;
        }
    }
    if (!all_ended(t))
        return;
    t->at = first_without(&l->run, is_judged);
    if (t->at < l->run.start.tries)
        tries_judge(t);
    else
        live_flush(l, tries_finish);
}

void tries_leave(struct live_run *l) {
    struct trying *t = TAKE(l->trying);
    for (size_t i = 0; i < l->run.start.tries && l->run.tries; i++) {
        const char *run = l->run.tries[i].run;
        if (t)
            operator_unfollow(&t->followers[i]);
        if (run)
            live_inner_leave(l->runs, run);
    }
    if (!t)
        return;
    t->live = NULL;
    if (!t->busy)
        trying_free(t);
}
