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
#include "service/vm/memory.h"
#include "service/vm/vms.h"
#include "store/grants.h"

enum { PAUSE_AGAIN_MS = 2000, PAUSE_LOOK_MS = 50, PAUSE_LOOKS = 100, PAUSE_TRIES = 5 };

struct pausing {
    struct live *live;
    enum state_by by;
    bool is_off; /* the vm was powered off: its files are saved, and it is stopped */
    char why[STORE_REASON_SIZE];
    bool stands;        /* a vm may stand still, because its memory was to be saved */
    bool is_cut;        /* nobody waits for its guest any more */
    char step[ID_SIZE]; /* of a vm: the step with its memory; empty: none */
    char *stack;        /* of that step */
    struct loop_call call;
    struct loop_timer *timer;
    loop_fn *next;  /* what the timer calls */
    unsigned tries; /* how often a program ended when it was to be stored */
    unsigned looks; /* how often the machine was in use */
    int synced;
    struct err err;
    machine_done_fn *done;
    void *arg;
};

bool live_is_stored(const struct live *l) {
    return l->dormant && l->row.state == MACHINE_PAUSED;
}

static enum machine_state pausing_state(const struct pausing *p) {
    return p->is_off ? MACHINE_STOPPED : MACHINE_PAUSED;
}

static void pausing_finish(struct pausing *p, const struct err *err) {
    machine_done_fn *done = p->done;
    void *arg = p->arg;
    struct live *l = p->live;
    loop_timer_free(p->timer);
    free(p->stack);
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

static void pausing_repaired(void *arg, const struct err *err);

static void pausing_freeze(struct pausing *p, const struct err *why) {
    struct live *l = p->live;
    struct err gone;
    if (p->is_off && why) {
        pausing_finish(p, why);
        return;
    }
    if (why)
        snprintf(l->paused_why, sizeof(l->paused_why), "%s", why->text);
    if (why && !l->ending)
        log_line(LOG_WARN, "service", "the programs of a paused machine stay in memory: %s id=%s",
                 why->text, l->row.id);
    if (l->machine && !l->ending && p->stands) {
        p->stands = false;
        l->service->driver->go_on(l->machine, MEMORY_REPAIR, pausing_repaired, p);
        return;
    }
    if (l->machine && !l->ending && !p->is_off) {
        l->service->driver->freeze(l->machine, true, pausing_frozen, p);
        return;
    }
    err_set(&gone, ERR_GONE, "machine '%s' is ending", l->row.id);
    pausing_finish(p, &gone);
}

/* A vm that does not go on is asked again when it is resumed. */
static void pausing_repaired(void *arg, const struct err *err) {
    struct pausing *p = arg;
    struct live *l = p->live;
    if (err)
        log_line(LOG_WARN, "service", "let a vm go on: %s id=%s", err->text, l->row.id);
    if (p->step[0])
        memory_drop(l->service, l->row.id, p->step);
    pausing_freeze(p, NULL);
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

/*
 * Commands of a vm may wait for its guest. They hear that the connection is lost, and attach to it
 * again when the vm goes on.
 */
static void pausing_leave_box(void *arg) {
    struct pausing *p = arg;
    struct live *l = p->live;
    struct err gone;
    if (!p->is_cut && live_is_vm(l)) {
        p->is_cut = true;
        err_set(&gone, ERR_GONE, "machine '%s' is being paused", l->row.id);
        guest_cut(l->machine->guest, &gone);
    }
    if (machine_is_asked(l->machine)) {
        pausing_later(p, pausing_leave_box, PAUSE_LOOK_MS);
        return;
    }
    net_detach(l);
    machine_free(TAKE(l->machine));
    l->dormant = true;
    pausing_end_box(p);
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
    if (live_is_vm(l)) /* as write_paused() wrote it */
        l->row.state = pausing_state(p);
    if (p->is_off)
        l->row.state_by = p->by;
    pausing_leave_box(p);
}

/*
 * A vm is paused from here on: the store has its files, and a step its memory. Or it is stopped.
 */
static int write_paused(void *arg, struct err *err) {
    const struct pausing *p = arg;
    const struct live *l = p->live;
    struct buf text DEFER(buf_done) = BUF(STORE_REASON_SIZE * 6 + 32);
    if (store_machine_set_state(l->service->store, l->row.id, pausing_state(p), p->by, err) < 0)
        return -1;
    if (!p->is_off)
        return 0;
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "reason", p->why);
    jot_end(&j, '}');
    return event_put(l->service, l->row.owner, l->row.id, "machine.stopped", text.data, err);
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
        (p->stack || (!machine_is_asked(l->machine) && !execs_running(l))) &&
        steps_are_at_rest(l)) {
        barrier_close(l);
        steps_shelve_at(l, p->stack, p->stack ? write_paused : NULL, pausing_shelved, p);
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

/* If a program ends just now, the others are stored all the same. */
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

/* ---- a vm ---- */

/* The file with the memory is on disk; now its name is, too. */
static void pausing_sync(void *arg) {
    struct pausing *p = arg;
    p->synced = memory_sync(p->live->service, &p->err);
}

static void pausing_synced(void *arg) {
    struct pausing *p = arg;
    if (p->synced < 0)
        pausing_freeze(p, &p->err);
    else
        pausing_shelve(p);
}

static void pausing_saved(void *arg, const struct step_row *row, const struct err *err) {
    struct pausing *p = arg;
    if (err) {
        pausing_freeze(p, err);
        return;
    }
    snprintf(p->step, sizeof(p->step), "%s", row->id);
    p->stack = xstrdup(row->stack ? row->stack : "");
    if (p->is_off) {
        pausing_shelve(p);
        return;
    }
    loop_work(p->live->service->loop, pausing_sync, pausing_synced, p);
}

static bool has_grants(struct live *l, const char *kind) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    return store_grant_list(l->service->store, l->row.id, kind, &list, &err) < 0 || list.count;
}

/* Why a vm has to stay in memory; NULL: it need not. */
static const char *pausing_vm_stays(struct live *l) {
    const struct service *s = l->service;
    const struct {
        bool is;
        const char *why;
    } reasons[] = {
        {l->ephemeral, "it ends with its daemon"},
        {!s->conf->durable_after_ms,
         "carrel.conf says that no step is saved ([steps] durable_after)"},
        {l->unwritten || !l->reach.heard, "what runs in it is not known yet"},
        {s->store_full, "the disk that holds CARREL_HOME is full"},
        {l->watched, "a path in it is watched"},
        {asleep_is_shared(l), "other machines use its layers: they were forked from it"},
        {has_grants(l, "dir"), "it has granted directories, which do not stand still"},
        {has_grants(l, "volume"), "it has volumes, which do not stand still"},
    };
    for (size_t i = 0; i < sizeof(reasons) / sizeof(*reasons); i++)
        if (reasons[i].is)
            return reasons[i].why;
    return NULL;
}

static void pausing_begin_vm(struct pausing *p) {
    const struct step_cause cause = {
        .kind = STEP_SNAP, .what = MEMORY_OF_PAUSE, .status = -1, .memory = true, .pauses = true};
    const char *why = pausing_vm_stays(p->live);
    struct err err;
    if (why)
        err_set(&err, ERR_UNSUPPORTED, "%s", why);
    if (why || memory_check(p->live, &err) < 0) {
        pausing_freeze(p, &err);
        return;
    }
    p->stands = true;
    steps_take(p->live, &cause, pausing_saved, p);
}

void pause_machine(struct live *l, enum state_by by, machine_done_fn *done, void *arg) {
    struct pausing *p = xnew(struct pausing);
    *p = (struct pausing){.live = l, .by = by, .done = done, .arg = arg};
    l->paused_why[0] = '\0';
    p->timer = loop_timer_new(l->service->loop, pausing_timer, p);
    live_ref(l);
    if (live_is_vm(l))
        pausing_begin_vm(p);
    else
        pausing_store(p);
}

/* ---- a vm that was powered off ---- */

bool pause_may_stop(struct live *l) {
    return !l->ending && !l->changing && l->row.state == MACHINE_RUNNING && !pausing_vm_stays(l);
}

/* Nobody waits for its guest: the driver has closed the connection. */
void pause_stop(struct live *l, const char *why, machine_done_fn *done, void *arg) {
    struct pausing *p = xnew(struct pausing);
    const struct step_cause cause = {
        .kind = STEP_SNAP, .what = "power-off", .status = -1, .pauses = true};
    *p = (struct pausing){
        .live = l, .by = STATE_BY_OWNER, .is_off = true, .is_cut = true, .done = done, .arg = arg};
    snprintf(p->why, sizeof(p->why), "%s", why);
    p->timer = loop_timer_new(l->service->loop, pausing_timer, p);
    live_ref(l);
    l->changing = l->resting = true;
    execs_lose(l, why);
    steps_take(l, &cause, pausing_saved, p);
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
