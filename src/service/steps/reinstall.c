/*
 * A machine goes back to its image. Its programs end, a step is taken, and the root switches to no
 * layers, or to one layer with the files of /home and /root. That layer is made of those below the
 * step, so the switch is a rewind, and after a crash it ends as a rewind does (rewind_adopt()).
 */
#include "service/steps/reinstall.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/calls/live.h"
#include "service/cells.h"
#include "service/change.h"
#include "service/exec/live.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"
#include "service/vm/vms.h"
#include "store/saved.h"

enum { LOOK_MS = 20, ENDS_MS = 5000, MERGE_LOOK_MS = 5, MERGE_MS = 600000 };

struct reinstall {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    bool keep_home;
    service_machine_fn *done;
    void *arg;
    struct change *change;
    struct loop_timer *timer;
    uint64_t until_ms;
    bool closed;        /* the barrier of the machine */
    struct layers from; /* layers of the step, from merged on they are not kept yet */
    struct layers to;   /* layers with the files of users */
    size_t run;         /* how many layers of `from` are being merged */
    struct layers_hold from_hold, to_hold;
};

static void reinstall_free(struct reinstall *r) {
    layers_release(r->service, &r->from_hold);
    layers_release(r->service, &r->to_hold);
    loop_timer_free(r->timer);
    free(r);
}

static void reinstall_finish(struct reinstall *r, const struct err *err) {
    struct change *c = r->change;
    struct live *l = c->live;
    bool closed = r->closed;
    live_ref(l);
    if (!err)
        event_tell(l->service, l->row.owner, l->row.id, "machine.reinstalled", NULL);
    reinstall_free(r);
    steps_want_sweep(l);
    change_finish(c, err);
    if (closed)
        barrier_open(l);
    live_unref(l);
}

/* True if the machine ended meanwhile: then everything is over. */
static bool reinstall_is_over(struct reinstall *r, const struct err *failed) {
    struct live *l = r->change->live;
    struct err gone;
    if (l->ending || !l->machine) {
        err_set(&gone, ERR_GONE, "machine '%s' ended while it was reinstalled", l->row.id);
        failed = &gone;
    }
    if (failed)
        reinstall_finish(r, failed);
    return failed != NULL;
}

/* ---- the switch ---- */

static void reinstall_switched(void *arg, const struct step_view *step, const struct err *err) {
    struct reinstall *r = arg;
    (void)step;
    if (!err)
        calls_detach(r->change->live); /* the programs that waited for an answer have ended */
    reinstall_finish(r, err);
}

#define KEPT "before the reinstallation"

static void reinstall_switch(struct reinstall *r) {
    static const struct rewind_texts with_home = {KEPT, "reinstalled, with the files of users"},
                                     without = {KEPT, "reinstalled"};
    char stack[LAYERS_TEXT_SIZE];
    struct err err;
    if (layers_print(&r->to, stack, sizeof(stack))) {
        rewind_to(r->change->live, r->keep_home ? &with_home : &without, stack, reinstall_switched,
                  r);
        return;
    }
    err_set(&err, ERR_LIMIT, "machine '%s' has too many layers of files", r->machine);
    reinstall_finish(r, &err);
}

/* ---- the files of users ---- */

static void reinstall_merge(void *arg);

/* Holds what is merged so far: no step refers to it yet. */
static void reinstall_hold(struct reinstall *r) {
    char stack[LAYERS_TEXT_SIZE] = "";
    layers_release(r->service, &r->to_hold);
    layers_print(&r->to, stack, sizeof(stack));
    layers_hold(r->service, &r->to_hold, stack);
}

static void reinstall_merged(void *arg, const struct err *failed) {
    struct reinstall *r = arg;
    struct loop *loop = r->service->loop;
    bool waits = failed && failed->code == ERR_BUSY && loop_now_ms(loop) < r->until_ms;
    if (reinstall_is_over(r, waits ? NULL : failed))
        return;
    if (waits) {
        loop_timer_start(r->timer, MERGE_LOOK_MS, 0);
        return;
    }
    r->from.count -= r->run;
    memmove(r->from.v, r->from.v + r->run, r->from.count * sizeof(*r->from.v));
    r->run = 0;
    reinstall_merge(r);
}

/* The number of a new layer on a disk of the machine: its own, or the one it was saved to. */
static int reinstall_number(const struct reinstall *r, const char *disk, uint32_t *ret,
                            struct err *err) {
    struct live *l = r->change->live;
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    if (strcmp(disk, l->row.id) == 0) {
        for (int i = 0; i < 8; i++)
            if (spare_number(l, ret))
                return 0;
        return err_set(err, ERR_BUSY, "no number for a layer of machine '%s': try again",
                       l->row.id);
    }
    if (store_saved_get(l->service->store, l->row.id, &row, err) == 0 &&
        strcmp(row.disk, disk) == 0) {
        *ret = row.next++;
        return store_saved_put(l->service->store, &row, err);
    }
    err_set(err, ERR_UNSUPPORTED,
            "the home directories of machine '%s' cannot be kept: a part of its files belongs to "
            "the machine that it was forked from",
            l->row.id);
    return err_remedy(err, "copy them out with carrel cp, and reinstall without --keep-home");
}

/* Chooses the next layers: all from the top that are on one disk. */
static int reinstall_choose(struct reinstall *r, struct err *err) {
    struct layer *to = &r->to.v[r->to.count];
    const char *disk = r->from.v[0].machine;
    for (r->run = 1; r->run < r->from.count && strcmp(r->from.v[r->run].machine, disk) == 0;)
        r->run++;
    memcpy(to->machine, disk, sizeof(to->machine));
    if (reinstall_number(r, disk, &to->number, err) < 0)
        return -1;
    r->to.count++;
    reinstall_hold(r);
    return 0;
}

static void reinstall_merge(void *arg) {
    struct reinstall *r = arg;
    struct layers run;
    struct err err;
    char stack[LAYERS_TEXT_SIZE];
    if (!r->from.count) {
        reinstall_switch(r);
        return;
    }
    if (!r->run && reinstall_choose(r, &err) < 0) {
        reinstall_finish(r, &err);
        return;
    }
    run = r->from;
    run.count = r->run;
    if (reinstall_is_over(r, NULL))
        return;
    layers_print(&run, stack, sizeof(stack));
    r->service->driver->merge_home(r->change->live->machine, stack, r->to.v[r->to.count - 1].number,
                                   reinstall_merged, r);
}

/* ---- the programs end, and the step ---- */

/* The files of the machine are the layers r->from, and a step has them. */
static void reinstall_begin(struct reinstall *r, const char *stack) {
    if (!r->keep_home)
        r->from.count = 0;
    layers_hold(r->service, &r->from_hold, stack);
    loop_timer_free(TAKE(r->timer));
    r->timer = loop_timer_new(r->service->loop, reinstall_merge, r);
    r->until_ms = loop_now_ms(r->service->loop) + MERGE_MS;
    reinstall_merge(r);
}

static void reinstall_kept(void *arg, const struct step_row *row, const struct err *failed) {
    struct reinstall *r = arg;
    struct live *l = r->change->live;
    struct err err;
    if (!failed && !row->has_point) {
        step_point_error(l, row, &err);
        failed = &err;
    }
    if (!failed && layers_parse(row->stack ? row->stack : "", &r->from, &err) < 0)
        failed = &err;
    if (reinstall_is_over(r, failed))
        return;
    r->closed = true;
    barrier_close(l);
    reinstall_begin(r, row->stack);
}

/* The vm has booted with its files as layers. */
static void reinstall_sealed(void *arg, const struct step_view *step, const struct err *failed) {
    struct reinstall *r = arg;
    struct err err;
    const char *stack = failed ? "" : r->change->live->steps->stack;
    (void)step;
    if (!failed && layers_parse(stack, &r->from, &err) < 0)
        failed = &err;
    if (!reinstall_is_over(r, failed))
        reinstall_begin(r, stack);
}

/*
 * No step can be taken while the operation holds a vm, whose kernel has files open. So its root
 * switches, which boots it, and a step is kept as before every rewind.
 */
static void reinstall_vm(struct reinstall *r) {
    static const struct rewind_texts texts = {KEPT, "booted for the reinstallation"};
    struct live *l = r->change->live;
    char now[LAYERS_TEXT_SIZE];
    struct err err;
    r->closed = true;
    barrier_close(l);
    if (!r->keep_home)
        reinstall_switch(r);
    else if (steps_next_stack(l, now, &err) < 0)
        reinstall_finish(r, &err);
    else
        rewind_to(l, &texts, now, reinstall_sealed, r);
}

static void reinstall_look(void *arg) {
    struct reinstall *r = arg;
    struct live *l = r->change->live;
    struct err err;
    const struct step_cause cause = {.kind = STEP_SNAP, .what = KEPT, .status = -1};
    if (reinstall_is_over(r, NULL))
        return;
    if (!execs_running(l) && live_is_vm(l)) {
        reinstall_vm(r);
    } else if (!execs_running(l)) {
        steps_take(l, &cause, reinstall_kept, r);
    } else if (loop_now_ms(r->service->loop) < r->until_ms) {
        loop_timer_start(r->timer, LOOK_MS, 0);
    } else {
        err_set(&err, ERR_BUSY, "commands of machine '%s' do not end", l->row.id);
        reinstall_finish(r, &err);
    }
}

static void reinstall_halted(void *arg, const struct err *failed) {
    struct reinstall *r = arg;
    struct loop *loop = r->service->loop;
    if (reinstall_is_over(r, failed))
        return;
    r->until_ms = loop_now_ms(loop) + ENDS_MS;
    r->timer = loop_timer_new(loop, reinstall_look, r);
    reinstall_look(r);
}

/* ---- the request ---- */

static void reinstall_try(void *arg, const struct err *failed) {
    struct reinstall *r = arg;
    struct err err;
    struct live *l = failed ? NULL : live_find(r->service, &r->who, r->machine, LIVE_ANY, &err);
    int turn = !l || cell_refuse(l, "a reinstallation", &err) < 0
                   ? -1
                   : rest_wake(l, &r->who, reinstall_try, r, &err);
    if (turn > 0)
        return;
    if (turn < 0) {
        r->done(r->arg, NULL, failed ? failed : &err);
        reinstall_free(r);
        return;
    }
    r->change = change_begin(r->service, &r->who, r->machine, "machine.reinstall", CHANGE_LIVE,
                             r->done, r->arg);
    if (!r->change) { /* answered */
        reinstall_free(r);
        return;
    }
    r->change->live->resting = true; /* requests that need the machine running wait */
    machine_halt(l->machine, r->service->loop, reinstall_halted, r);
}

void service_reinstall(struct service *s, const struct caller *who, const char *ref,
                       const struct reinstall_request *q, service_machine_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct reinstall *r = xnew(struct reinstall);
    *r = (struct reinstall){
        .service = s, .who = *who, .keep_home = q->keep_home, .done = done, .arg = arg};
    snprintf(r->machine, sizeof(r->machine), "%s", l->row.id);
    reinstall_try(r, NULL);
}
