#include "service/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/asleep.h"
#include "service/backups/live.h"
#include "service/console/console.h"
#include "service/console/orders.h"
#include "service/exec/dumps.h"
#include "service/exec/live.h"
#include "service/exec/logs.h"
#include "service/grants/live.h"
#include "service/images/live.h"
#include "service/models/live.h"
#include "service/net/live.h"
#include "service/rest.h"
#include "service/review/changeset_rows.h"
#include "service/review/diff.h"
#include "service/review/live.h"
#include "service/state.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/strays.h"
#include "service/tickets.h"
#include "service/timers/timers.h"
#include "service/volumes/live.h"

enum {
    TICK_MS = 200,
    LIFETIME_GRACE_MS = 2000, /* time for the machine to end by itself before the daemon ends it */
};

/* ---- lifetime and idleness ---- */

static struct caller idle_caller(const struct live *l) {
    struct caller who = {.scopes = SCOPE_READ | SCOPE_RUN | SCOPE_ADMIN, .is_idle = true};
    snprintf(who.owner, sizeof(who.owner), "%s", l->row.owner);
    snprintf(who.client, sizeof(who.client), "idle timeout");
    return who;
}

/* False: the machine was used, or changed by somebody, since it was found idle. */
static bool is_still_idle(const struct live *l) {
    uint64_t idle_ms = loop_now_ms(l->service->loop) - l->idle.active_ms;
    return l->row.state == MACHINE_RUNNING && !l->changing && !execs_running(l) &&
           idle_ms >= l->row.idle_ms;
}

/*
 * Ends an idle machine if it has no changes, else stops it, which keeps its files. A machine that
 * was used during the check is left alone.
 */
static void release(void *arg, const struct diff_view *view, const struct err *err) {
    struct live *l = arg;
    const struct caller who = idle_caller(l);
    bool empty = !err && !view->changes->count && !view->changes->end.cut;
    l->releasing = false;
    if (is_still_idle(l)) {
        if (empty)
            live_end(l, "idle", NULL, NULL);
        else
            service_stop(l->service, &who, l->row.id, ignore_machine, NULL);
    }
    live_unref(l);
}

static void look_whether_empty(struct live *l, const struct caller *who) {
    const struct diff_request r = {.brief = true};
    if (l->releasing)
        return;
    l->releasing = true;
    live_ref(l);
    service_diff(l->service, who, l->row.id, &r, release, l);
}

/*
 * A host that cannot freeze processes does not count their CPU time either. There a machine is idle
 * only if it has no process (machine_stats.busy), so nothing is lost if it is stopped instead.
 */
static void idle_paused(void *arg, const struct machine_view *view, const struct err *err) {
    struct live *l = arg;
    const struct caller who = idle_caller(l);
    (void)view;
    if (err && err->code == ERR_UNSUPPORTED && is_still_idle(l))
        service_stop(l->service, &who, l->row.id, ignore_machine, NULL);
    live_unref(l);
}

static void idle_tell(struct live *l) {
    event_tell(l->service, l->row.owner, l->row.id, "machine.idle", NULL);
    l->service->hits[HIT_IDLE]++;
}

/*
 * A machine that sleeps has no process to pause, so it is stopped. It has changes if its root has
 * layers.
 */
static void look_asleep(struct live *l, uint64_t now) {
    const struct caller who = idle_caller(l);
    struct err err;
    if (now < l->idle.active_ms + l->row.idle_ms || steps_load(l, &err) < 0)
        return;
    bool empty = !steps_stack(l) || !*steps_stack(l);
    idle_tell(l);
    if (l->row.idle_action == IDLE_DESTROY || (l->row.idle_action == IDLE_RELEASE && empty))
        live_end(l, "idle", NULL, NULL);
    else
        service_stop(l->service, &who, l->row.id, ignore_machine, NULL);
}

static void idle_act(struct live *l) {
    struct service *s = l->service;
    const struct caller who = idle_caller(l);
    idle_tell(l);
    switch (l->row.idle_action) {
    case IDLE_PAUSE:
        live_ref(l);
        service_pause(s, &who, l->row.id, idle_paused, l);
        break;
    case IDLE_STOP:
        service_stop(s, &who, l->row.id, ignore_machine, NULL);
        break;
    case IDLE_DESTROY:
        live_end(l, "idle", NULL, NULL);
        break;
    case IDLE_RELEASE:
        look_whether_empty(l, &who);
        break;
    }
}

static void idle_known(void *arg, const struct machine_stats *stats, const struct err *err) {
    struct live *l = arg;
    (void)err;
    if (stats)
        l->drifted = stats->drifted;
    if (stats && l->row.state == MACHINE_RUNNING && !l->changing) {
        struct idle_sample sample = {
            .now_ms = loop_now_ms(l->service->loop),
            .cpu_us = stats->cpu_us,
            .io_bytes = stats->io_bytes,
            .commands = execs_busy(l),
            .open = l->open,
            .pending = l->gate && gate_waits(l->gate),
            .busy = stats->busy,
        };
        if (idle_feed(&l->idle, &sample) >= l->row.idle_ms)
            idle_act(l);
    }
    live_unref(l);
}

/* ---- the end of the ttl ---- */

/* Without a ttl from now on, so that a resumed machine is not paused again at once. */
static void ttl_clear(struct live *l) {
    struct err err;
    uint64_t before = l->row.ttl_ms;
    l->row.ttl_ms = 0;
    if (store_machine_update(l->service->store, &l->row, &err) == 0) {
        live_set_lifetime(l, 0);
        return;
    }
    l->row.ttl_ms = before;
    log_line(LOG_ERROR, "service", "clear the ttl of a paused machine: %s id=%s", err.text,
             l->row.id);
}

/* A machine that cannot be paused on this host is stopped: its processes end as at any end. */
static void ttl_paused(void *arg, const struct machine_view *view, const struct err *err) {
    struct live *l = arg;
    const struct caller who = idle_caller(l);
    (void)view;
    if (err && err->code == ERR_UNSUPPORTED && l->row.state == MACHINE_RUNNING && !l->changing)
        service_stop(l->service, &who, l->row.id, ignore_machine, NULL);
    live_unref(l);
}

static void ttl_over(struct live *l) {
    const struct caller who = idle_caller(l);
    if (l->row.on_ttl != TTL_PAUSE) {
        l->service->hits[HIT_LIFETIME]++;
        live_end(l, "its ttl is over", NULL, NULL);
    } else if (l->row.state == MACHINE_RUNNING) {
        live_ref(l);
        service_pause(l->service, &who, l->row.id, ttl_paused, l);
    } else {
        ttl_clear(l);
    }
}

static void look_after(struct live *l, uint64_t now, int64_t wall) {
    struct service *s = l->service;
    adopt_look(l, now);
    live_end_again(l, now);
    steps_prune(l);
    net_look(l, now);
    grants_look(l, wall);
    durable_look(l, now);
    asleep_look(l, now);
    if (l->changing || l->row.state == MACHINE_ENDING)
        return;
    if (live_is_over(l, LIFETIME_GRACE_MS)) {
        ttl_over(l);
        return;
    }
    if (!l->row.idle_ms || l->row.state != MACHINE_RUNNING || now < l->idle_check_ms)
        return;
    if (live_is_asleep(l)) {
        look_asleep(l, now);
        return;
    }
    if (!l->machine || !l->reach.heard) /* the machine's commands are not known yet */
        return;
    l->idle_check_ms = now + idle_next_ms(l->row.idle_ms);
    live_ref(l);
    s->driver->stats(l->machine, idle_known, l);
}

/* Signs the journal. Retries on every tick; logs only the first failure. */
static void sign(struct service *s) {
    struct err err;
    bool failed = store_sign(s->store, &err) < 0;
    if (failed && !s->unsigned_told)
        log_line(LOG_ERROR, "service", "sign the journal: %s", err.text);
    s->unsigned_told = failed;
}

static void tick(void *arg) {
    struct service *s = arg;
    struct live *l;
    struct err err;
    uint64_t now = loop_now_ms(s->loop);
    int64_t wall = wall_ms();
    if (store_check(s->store, &err) < 0) {
        s->broken(&err);
        return;
    }
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        look_after(l, now, wall);
    adopt_again(s, now);
    durable_sweep(s);
    databases_look(s, now);
    sqlite_look(s);
    room_look(s);
    sign(s);
    images_look(s, now);
    trim_look(s, now);
    outputs_look(s, now);
    execs_keep_look(s, now, wall);
    execs_readers_look(s, now);
    timers_look(s, wall);
}

uint64_t back_off_ms(unsigned tries) {
    return tries < 8 ? (uint64_t)TICK_MS << tries : 30000;
}

void ignore_machine(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    if (err)
        log_line(LOG_WARN, "service", "%s", err->text);
}

/* ---- start and stop of the service ---- */

struct service *service_new(const struct service_options *o, loop_fn *ready, void *arg,
                            struct err *err) {
    struct service *s = xnew(struct service);
    int64_t oldest, newest;
    *s = (struct service){.loop = o->loop,
                          .store = o->store,
                          .conf = o->conf,
                          .place = o->place,
                          .driver = &box_driver,
                          .broken = o->broken,
                          .ready = ready,
                          .ready_arg = arg};
    s->commits = commits_new(s->loop, s->store);
    s->events_call = (struct loop_call){.fn = events_tell, .arg = s};
    s->orders = orders_new();
    s->console = console_new(s->place->run);
    s->execs = service_execs_new(s);
    s->steps = service_steps_new();
    s->grants = service_grants_new(s);
    s->images = service_images_new();
    s->review = service_review_new();
    s->timers = service_timers_new();
    s->volumes = service_volumes_new();
    s->backups = service_backups_new();
    s->host = s->driver->open(o->loop, store_id(o->store), err);
    if (!s->host || !(s->net = service_net_new(s, err)) ||
        !(s->models = service_models_new(s, err)) ||
        store_event_range(s->store, &oldest, &newest, err) < 0) {
        service_free(s);
        return NULL;
    }
    s->tick = loop_timer_new(s->loop, tick, s);
    loop_timer_start(s->tick, TICK_MS, TICK_MS);
    if (adopt_all(s, err) < 0) {
        service_free(s);
        return NULL;
    }
    volumes_sweep(s);
    backups_sweep(s);
    images_sweep(s);
    dumps_sweep(s);
    builds_sweep(s);
    changesets_sweep(s);
    return s;
}

const struct conf *service_conf(const struct service *s) {
    return s->conf;
}

void service_leave(struct service *s) {
    s->leaving = true;
}

void service_free(struct service *s) {
    struct live *l;
    if (!s)
        return;
    loop_timer_free(s->tick);
    loop_call_cancel(s->loop, &s->events_call);
    commits_free(s->commits);
    seals_release(s);
    builds_release(s);
    service_models_free(s->models, s->loop);
    service_grants_stop(s->grants);
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        execs_release(l);
    for (size_t at = 0; (l = map_next(&s->machines, &at));) {
        steps_release(l);
        asleep_release(l);
        rest_release(l);
    }
    for (size_t at = 0; (l = map_next(&s->machines, &at));)
        live_unref(l);
    map_done(&s->machines);
    strays_free(s);
    id_list_done(&s->wanted);
    service_execs_stop(s);
    service_net_free(s->net);
    if (s->host)
        s->driver->close(s->host);
    service_grants_free(s);
    service_images_free(s->images);
    service_steps_free(s->steps);
    service_execs_free(s->execs);
    service_review_free(s->review);
    service_volumes_free(s);
    service_timers_free(s->timers);
    service_backups_free(s);
    tickets_free(s);
    console_free(s->console);
    orders_free(s->orders);
    tool_counts_done(&s->tool_calls);
    free(s);
}
