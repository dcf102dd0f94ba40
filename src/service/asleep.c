#include "service/asleep.h"

#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/cells.h"
#include "service/exec/live.h"
#include "service/exec/stored.h"
#include "service/net/live.h"
#include "service/pause.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/vm/vms.h"
#include "store/saved.h"

enum {
    ASLEEP_AFTER_MS = 2000,
    ASLEEP_AGAIN_MS = 10000, /* after a failure, or while a fork uses the layers of the machine */
    ASLEEP_AT_ONCE = 16,     /* machines that fall asleep at the same time */
};

bool live_is_asleep(const struct live *l) {
    return l->dormant && l->row.state == MACHINE_RUNNING;
}

/* ---- falling asleep ---- */

/*
 * Every operation in progress has a reference to its machine, as every command whose output is not
 * saved yet. refs: the number of references of a machine that nobody uses.
 */
static bool asleep_is_unused(const struct live *l, uint32_t refs) {
    return l->refs == refs && l->machine && l->row.state == MACHINE_RUNNING && !l->ending &&
           !l->open && !l->watched && !execs_running(l) && !commit_waits(&l->lane) &&
           !machine_is_asked(l->machine) && steps_are_at_rest(l);
}

/* True if this machine may be put to sleep at all. */
static bool asleep_may(const struct live *l) {
    const struct service *s = l->service;
    return live_is_cell(l) && !l->ephemeral && !l->unwritten && !l->changing && l->reach.heard &&
           s->conf->durable_after_ms && !s->store_full;
}

static void asleep_over(struct live *l) {
    l->dozing = l->resting = false;
    l->service->dozing--;
    live_verb_over(l);
    live_unref(l);
}

static void asleep_give_up(struct live *l, const struct err *err) {
    if (err && !l->ending)
        log_line(LOG_WARN, "service", "put a machine to sleep: %s id=%s", err->text, l->row.id);
    l->doze_again_ms = loop_now_ms(l->service->loop) + ASLEEP_AGAIN_MS;
    asleep_over(l);
}

/* Requests that wait at the barrier continue, and wake the machine. */
static void asleep_box_gone(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err && err->code == ERR_NOT_FOUND)
        err = NULL;
    l->doze_asked = false;
    if (err || commit_waits(&l->lane)) { /* asleep_look() tries again */
        log_line(LOG_WARN, "service", "end the box of a machine: %s id=%s",
                 err ? err->text : "a change is not saved yet", l->row.id);
        l->doze_again_ms = loop_now_ms(l->service->loop) + ASLEEP_AFTER_MS;
        return;
    }
    barrier_open(l);
    steps_reset(l);
    asleep_over(l);
}

static void asleep_end_box(struct live *l) {
    l->doze_asked = true;
    l->service->driver->destroy(l->service->host, l->row.id, asleep_box_gone, l);
}

static void asleep_shelved(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err || l->ending) {
        barrier_open(l);
        asleep_give_up(l, err);
        return;
    }
    l->machine->on_end = NULL;
    net_detach(l);
    machine_free(TAKE(l->machine));
    l->dormant = true;
    asleep_end_box(l);
}

/* Runs after the requests that waited for the refresh: one of them may use the machine now. */
static void asleep_shelve(void *arg) {
    struct live *l = arg;
    if (asleep_is_unused(l, 2)) {
        barrier_close(l);
        steps_shelve(l, asleep_shelved, l);
    } else {
        asleep_give_up(l, NULL);
    }
}

static void asleep_refreshed(void *arg, const struct step_row *row, const struct err *err) {
    struct live *l = arg;
    (void)row;
    if (err) {
        asleep_give_up(l, err);
        return;
    }
    l->doze_call = (struct loop_call){.fn = asleep_shelve, .arg = l};
    loop_defer(l->service->loop, &l->doze_call);
}

static void asleep_found(void *arg, const char *stack) {
    bool *found = arg;
    (void)stack;
    *found = true;
}

bool asleep_is_shared(struct live *l) {
    bool found = false;
    struct err err;
    return store_stacks_of_others(l->service->store, l->row.id, asleep_found, &found, &err) < 0 ||
           found;
}

/* The refresh makes a step of what was written since the last one. */
static void asleep_begin(struct live *l, uint64_t now_ms) {
    const struct step_cause cause = {.kind = STEP_REFRESH, .what = "to sleep", .status = -1};
    if (asleep_is_shared(l)) {
        l->doze_again_ms = now_ms + ASLEEP_AGAIN_MS;
        return;
    }
    l->changing = l->resting = l->dozing = true;
    l->service->dozing++;
    live_ref(l);
    steps_take(l, &cause, asleep_refreshed, l);
}

void asleep_look(struct live *l, uint64_t now_ms) {
    if (l->dozing && l->dormant && !l->doze_asked && now_ms >= l->doze_again_ms)
        asleep_end_box(l);
    if (!asleep_may(l) || !asleep_is_unused(l, 1)) {
        l->unused_ms = now_ms;
        return;
    }
    uint64_t since = l->unused_ms > l->idle.active_ms ? l->unused_ms : l->idle.active_ms;
    if (now_ms >= since + ASLEEP_AFTER_MS && now_ms >= l->doze_again_ms &&
        l->service->dozing < ASLEEP_AT_ONCE)
        asleep_begin(l, now_ms);
}

void asleep_release(struct live *l) {
    loop_call_cancel(l->service->loop, &l->doze_call);
    if (l->dozing)
        live_unref(l);
    l->dozing = false;
}

/* ---- waking ---- */

bool asleep_wait(struct live *l, service_done_fn *go, void *arg) {
    struct caller who = {.scopes = SCOPE_READ | SCOPE_RUN};
    struct err err;
    if (pause_peek(l, go, arg))
        return true;
    if (!l->dozing && !live_is_asleep(l))
        return false;
    snprintf(who.owner, sizeof(who.owner), "%s", l->row.owner);
    snprintf(who.client, sizeof(who.client), "wake on use");
    return rest_wake(l, &who, go, arg, &err) > 0;
}

bool service_use(struct service *s, const struct caller *who, const char *ref, bool wakes,
                 service_done_fn *go, void *arg, char ret_id[ID_SIZE]) {
    struct err err;
    struct live *l = live_find(s, who, ref, LIVE_ANY, &err);
    if (!l || !live_is_cell(l))
        return false;
    if ((wakes || l->dozing) && asleep_wait(l, go, arg))
        return true;
    if (wakes) {
        snprintf(ret_id, ID_SIZE, "%s", l->row.id);
        l->open++;
    }
    return false;
}

void service_use_over(struct service *s, const char *id) {
    struct live *l = map_get(&s->machines, id);
    if (!l)
        return;
    l->open--;
    idle_touch(&l->idle, loop_now_ms(s->loop));
}

/* ---- the next daemon ---- */

static void asleep_left_gone(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err && err->code != ERR_NOT_FOUND)
        log_line(LOG_WARN, "service", "end the box of a machine: %s id=%s", err->text, l->row.id);
    l->left_box = false;
    live_verb_over(l);
    live_unref(l);
}

int asleep_adopt(struct live *l, bool has_box, struct err *err) {
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    bool paused = l->row.state == MACHINE_PAUSED;
    if (live_is_cell(l) ? l->row.state != MACHINE_RUNNING && !paused : !live_is_vm(l) || !paused)
        return 0;
    if (store_saved_get(l->service->store, l->row.id, &row, err) < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (row.boot[0] || live_is_over(l, 0))
        return 0;
    if (paused && execs_adopt_stored(l, err) < 0)
        return -1;
    l->dormant = l->reach.heard = true;
    l->reach.why[0] = '\0';
    l->idle.active_ms = loop_now_ms(l->service->loop);
    if (has_box) {
        l->changing = l->left_box = true;
        live_ref(l);
        l->service->driver->destroy(l->service->host, l->row.id, asleep_left_gone, l);
    }
    return 1;
}
