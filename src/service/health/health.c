#include "service/health/health.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/amount.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/jot.h"
#include "machine/guest.h"
#include "service/asleep.h"
#include "service/backups/backups.h"
#include "service/health/units.h"
#include "service/rights.h"
#include "service/state.h"
#include "service/timers/timers.h"
#include "service/vm/vms.h"

/* SLOW_MS: patience with a guest. FULL_PERMILLE: a disk that is so full needs its owner. */
enum { SLOW_MS = 5000, FULL_PERMILLE = 950 };
enum { GUEST, DISK, FILES, MEMORY, UNITS, UPKEEP, BACKUP };

/* One request. It is freed when it was answered, and guest and driver are done with it too. */
struct health {
    struct live *live;
    struct health_view view;
    struct loop_timer *timer;
    uint64_t asked_ms;
    bool asked, measuring;   /* the guest or the driver has not answered yet */
    bool measured;           /* the checks of counters are complete */
    bool heard;              /* the check of the guest is complete */
    struct units *units;     /* the check of units, while it runs */
    service_health_fn *done; /* NULL: it was called */
    void *arg;
};

const char *health_state_name(enum health_state state) {
    static const char *const names[] = {"unknown", "good", "bad"};
    return names[state];
}

static void health_set(struct health *h, int check, enum health_state state, const char *text) {
    struct health_check *c = &h->view.checks[check];
    c->state = state;
    snprintf(c->text, sizeof(c->text), "%s", text);
}

static void health_free(struct health *h) {
    if (h->done || h->asked || h->measuring)
        return;
    loop_timer_free(h->timer);
    live_unref(h->live);
    free(h);
}

/* Stores the event of a change. A machine that was never looked at counts as good. */
static void health_tell(struct health *h) {
    struct live *l = h->live;
    bool bad = h->view.state == HEALTH_BAD;
    if (h->view.state == HEALTH_UNKNOWN || bad == l->unhealthy)
        return;
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    for (int i = 0; i < HEALTH_CHECKS; i++)
        if (h->view.checks[i].state == HEALTH_BAD)
            jot_string(&j, h->view.checks[i].name, h->view.checks[i].text);
    jot_end(&j, '}');
    l->unhealthy = bad;
    event_tell(l->service, l->row.owner, l->row.id, bad ? "machine.unhealthy" : "machine.healthy",
               bad ? text.data : NULL);
}

static void health_answer(struct health *h) {
    if (!h->measured || !h->heard || h->units || !h->done)
        return;
    service_health_fn *done = TAKE(h->done);
    for (int i = 0; i < HEALTH_CHECKS; i++)
        if (h->view.checks[i].state > h->view.state)
            h->view.state = h->view.checks[i].state;
    loop_timer_stop(h->timer);
    health_tell(h);
    done(h->arg, &h->view, NULL);
    health_free(h);
}

/* ---- the guest ---- */

static void guest_heard(struct health *h, enum health_state state, const char *text) {
    if (h->heard)
        return;
    health_set(h, GUEST, state, text);
    h->heard = true;
    health_answer(h);
}

static void guest_answered(void *arg, const struct frame *frame, const struct err *err) {
    struct health *h = arg;
    char text[80];
    (void)frame;
    snprintf(text, sizeof(text), "it answered in %" PRIu64 " ms",
             loop_now_ms(h->live->service->loop) - h->asked_ms);
    h->asked = false;
    if (h->done)
        guest_heard(h, err ? HEALTH_BAD : HEALTH_GOOD, err ? err->text : text);
    else
        health_free(h);
}

static void guest_ask(struct health *h) {
    struct live *l = h->live;
    char text[80];
    bool runs = l->row.state == MACHINE_RUNNING && l->machine && !live_is_asleep(l);
    if (!runs) {
        snprintf(text, sizeof(text), "the machine is %s", machine_state_name(l->row.state));
        guest_heard(h, HEALTH_UNKNOWN, text);
        return;
    }
    h->asked = true;
    h->asked_ms = loop_now_ms(l->service->loop);
    guest_request(l->machine->guest, (struct frame_head){.type = MSG_PING}, NULL, NULL, 0,
                  guest_answered, h);
}

/* ---- the counters ---- */

static void check_disk(struct health *h, const struct machine_stats *s) {
    uint64_t limit = h->live->row.disk_bytes;
    char used[AMOUNT_SIZE], most[AMOUNT_SIZE], text[80];
    amount_size(s->disk_bytes, used);
    amount_size(limit, most);
    snprintf(text, sizeof(text), limit ? "%s of %s are in use" : "%s are in use", used, most);
    health_set(h, DISK,
               limit && s->disk_bytes >= limit / 1000 * FULL_PERMILLE ? HEALTH_BAD : HEALTH_GOOD,
               text);
    snprintf(text, sizeof(text), "%" PRIu64 "%% of the files that the disk can hold are in use",
             s->disk_files_permille / 10);
    health_set(h, FILES, s->disk_files_permille >= FULL_PERMILLE ? HEALTH_BAD : HEALTH_GOOD, text);
}

static void check_memory(struct health *h, const struct machine_stats *s) {
    char used[AMOUNT_SIZE], most[AMOUNT_SIZE], text[120];
    if (!s->has_memory) {
        health_set(h, MEMORY, HEALTH_UNKNOWN, "this host does not count it");
        return;
    }
    amount_size(s->mem_bytes, used);
    amount_size(s->mem_limit_bytes, most);
    uint64_t killed = s->oom_kills > h->live->kills_seen ? s->oom_kills - h->live->kills_seen : 0;
    h->live->kills_seen = s->oom_kills;
    if (killed)
        snprintf(text, sizeof(text),
                 "the limit of %s was reached %" PRIu64 " times since the last check", most,
                 killed);
    else
        snprintf(text, sizeof(text), "%s of %s are in use", used, most);
    health_set(h, MEMORY, killed ? HEALTH_BAD : HEALTH_GOOD, text);
}

static void counters_are_unknown(struct health *h, const char *why) {
    for (int i = DISK; i <= MEMORY; i++)
        health_set(h, i, HEALTH_UNKNOWN, why);
    h->measured = true;
}

static void health_measured(void *arg, const struct machine_stats *stats, const struct err *err) {
    struct health *h = arg;
    h->measuring = false;
    if (!h->done) { /* too late */
        health_free(h);
        return;
    }
    if (stats) {
        check_disk(h, stats);
        check_memory(h, stats);
        h->measured = true;
    } else {
        counters_are_unknown(h, err->text);
    }
    health_answer(h);
}

/* ---- services, upkeep, backups ---- */

static void health_units(void *arg, const char *failed, const struct err *err) {
    struct health *h = arg;
    char text[sizeof(h->view.checks->text)];
    h->units = NULL;
    snprintf(text, sizeof(text), "these have failed: %s", failed ? failed : "");
    if (err)
        health_set(h, UNITS, HEALTH_UNKNOWN, err->text);
    else
        health_set(h, UNITS, *failed ? HEALTH_BAD : HEALTH_GOOD,
                   *failed ? text : "none has failed");
    health_answer(h);
}

static void units_ask(struct health *h) {
    struct live *l = h->live;
    bool runs = l->row.state == MACHINE_RUNNING && l->machine && !live_is_asleep(l);
    if (!live_is_vm(l))
        health_set(h, UNITS, HEALTH_UNKNOWN, "systemd does not run in a box");
    else if (!runs)
        health_set(h, UNITS, HEALTH_UNKNOWN, "the machine is at rest");
    else
        h->units = units_list(l, health_units, h);
}

static void check_upkeep(struct health *h) {
    char why[120];
    int tasks = timers_upkeep(h->live, why, sizeof(why));
    if (tasks <= 0)
        health_set(h, UPKEEP, HEALTH_UNKNOWN,
                   tasks ? "it cannot be read" : "no task is switched on");
    else
        health_set(h, UPKEEP, *why ? HEALTH_BAD : HEALTH_GOOD,
                   *why ? why : "no task has failed at its last run");
}

static void check_backup(struct health *h) {
    char text[80];
    int64_t last = service_backup_last(h->live->service, h->live->row.id);
    int64_t hours = (wall_ms() - last) / 3600000;
    bool days = hours >= 48;
    snprintf(text, sizeof(text),
             hours ? "the last one is %" PRId64 " %s old" : "the last one is new",
             days ? hours / 24 : hours, days ? "days" : "hours");
    health_set(h, BACKUP, last ? HEALTH_GOOD : HEALTH_UNKNOWN, last ? text : "there is none");
}

/* The driver asks the guest for some of the counters. */
static void health_is_slow(void *arg) {
    struct health *h = arg;
    char text[80];
    snprintf(text, sizeof(text), "it did not answer within %d seconds", SLOW_MS / 1000);
    if (h->units) {
        units_cancel(TAKE(h->units));
        health_set(h, UNITS, HEALTH_UNKNOWN, text);
    }
    if (!h->measured)
        counters_are_unknown(h, "they could not be read, because the guest does not answer");
    if (h->heard)
        health_answer(h);
    else
        guest_heard(h, HEALTH_BAD, text);
}

void service_health(struct service *s, const struct caller *who, const char *machine,
                    service_health_fn *done, void *arg) {
    static const char *const names[] = {
        [GUEST] = "guest", [DISK] = "disk",     [FILES] = "files",  [MEMORY] = "memory",
        [UNITS] = "units", [UPKEEP] = "upkeep", [BACKUP] = "backup"};
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct health *h = xnew(struct health);
    *h = (struct health){.live = l, .done = done, .arg = arg};
    live_ref(l);
    h->view.machine = l->row.id;
    for (int i = 0; i < HEALTH_CHECKS; i++)
        h->view.checks[i].name = names[i];
    check_upkeep(h);
    check_backup(h);
    h->timer = loop_timer_new(s->loop, health_is_slow, h);
    loop_timer_start(h->timer, SLOW_MS, 0);
    units_ask(h);
    h->measuring = l->machine && !live_is_asleep(l);
    if (!h->measuring)
        counters_are_unknown(h, "the machine is at rest");
    else
        s->driver->stats(l->machine, health_measured, h);
    guest_ask(h);
}
