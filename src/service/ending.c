/* Ends machines. A machine ends once; everybody who asked for its end is answered. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/backups/live.h"
#include "service/calls/live.h"
#include "service/exec/live.h"
#include "service/exec/stored.h"
#include "service/grants/live.h"
#include "service/images/live.h"
#include "service/net/live.h"
#include "service/pause.h"
#include "service/rest.h"
#include "service/review/baselines.h"
#include "service/state.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/vm/memory.h"
#include "service/vm/vms.h"

/* Number of failed tries before a waiting caller gets the error. The end is retried further. */
enum { TRIES_UNTOLD = 6 };

/*
 * A machine that ends at most this long before its ttl ended by the ttl: the clocks are read at
 * different times.
 */
enum { END_EARLY_MS = 1000 };

struct waiter {
    struct waiter *next;
    service_done_fn *done;
    void *arg;
};

struct ending {
    char reason[STORE_REASON_SIZE];
    struct waiter *waiters, **last;
    bool asked; /* the driver was asked and has not answered */
    bool own;   /* nobody requested it: the journal names the daemon */
    bool falls; /* only the box has ended: the machine returns to its last step on disk */
    uint64_t intent;
    unsigned tries;
    uint64_t again_ms;
    struct exec_list unheard; /* unfinished commands that the guest never reported */
};

static void tell_waiters(struct ending *e, const struct err *err) {
    struct waiter *w = TAKE(e->waiters);
    e->last = &e->waiters;
    while (w) {
        struct waiter *told DEFER_FREE = w;
        w = w->next;
        told->done(told->arg, err);
    }
}

static void wait_for_end(struct ending *e, service_done_fn *done, void *arg) {
    struct waiter *w = xnew(struct waiter);
    *w = (struct waiter){NULL, done, arg};
    *e->last = w;
    e->last = &w->next;
}

void ending_free(struct ending *e) {
    if (!e)
        return;
    for (struct waiter *w = e->waiters, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    exec_list_done(&e->unheard);
    free(e);
}

/*
 * Lists unfinished commands that the guest never reported. Their outcome is unknown and is recorded
 * as such.
 */
static void find_unheard(struct live *l, struct exec_list *list) {
    struct exec_filter filter = {.machine = l->row.id,
                                 .limit = STORE_PAGE_MAX,
                                 .states = 1u << EXEC_STARTING | 1u << EXEC_RUNNING};
    struct err err;
    exec_list_done(list);
    if (l->reach.heard)
        return;
    if (store_exec_list(l->service->store, &filter, list, &err) < 0)
        log_line(LOG_ERROR, "service", "%s id=%s", err.text, l->row.id);
    for (size_t i = 0; i < list->count; i++) {
        snprintf(list->rows[i].reason, sizeof(list->rows[i].reason), "its machine ended");
        list->rows[i].state = EXEC_UNKNOWN;
    }
}

static void put_reason(const char *reason, struct buf *to) {
    struct jot j = JOT(to);
    jot_object(&j, NULL);
    jot_string(&j, "reason", reason);
    jot_end(&j, '}');
}

static int put_ended(const struct live *l, const char *reason, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(STORE_REASON_SIZE * 6 + 32);
    put_reason(reason, &text);
    return event_put(l->service, l->row.owner, l->row.id, "machine.ended", text.data, err);
}

/* Records the end of the machine and of all its unfinished commands. */
static int write_end(void *arg, struct err *err) {
    const struct live *l = arg;
    struct service *s = l->service;
    const struct ending *e = l->ending;
    for (size_t i = 0; i < e->unheard.count; i++)
        if (exec_row_put_end(s, &e->unheard.rows[i], err) < 0)
            return -1;
    if (store_machine_end(s->store, l->row.id, wall_ms(), e->reason, err) < 0 ||
        store_exec_lose(s->store, l->row.id, wall_ms(), "its machine ended", NULL, err) < 0)
        return -1;
    return put_ended(l, e->reason, err);
}

static void note_end(struct live *l, const struct err *err) {
    struct journal_record what = verb_record("machine.end", l);
    what.reason = l->ending->reason;
    if (l->ending->own)
        note_result(l->service, NULL, &what, l->ending->intent, err);
}

/* Schedules another try, and reports a lasting failure to those who wait. */
static void end_failed(struct live *l, const struct err *err) {
    struct ending *e = l->ending;
    e->asked = false;
    note_end(l, err);
    log_line(LOG_ERROR, "service", "end a machine: %s id=%s", err->text, l->row.id);
    e->again_ms = loop_now_ms(l->service->loop) + back_off_ms(e->tries++);
    /* A full disk or a stopped spawner will not recover by itself. */
    if (e->tries >= TRIES_UNTOLD || err->code == ERR_LIMIT || err->code == ERR_TIMEOUT)
        tell_waiters(e, err);
    live_unref(l);
}

static void end_written(void *arg, const struct err *failed) {
    struct live *l = arg;
    struct service *s = l->service;
    struct ending *e = l->ending;
    if (failed) {
        end_failed(l, failed);
        return;
    }
    e->asked = false;
    baselines_remove(s, l->row.id);
    stored_drop(s->place->home, l->row.id, NULL, NULL);
    l->row.state = MACHINE_ENDED;
    l->row.ended_ms = wall_ms();
    snprintf(l->row.end_reason, sizeof(l->row.end_reason), "%s", e->reason);
    net_ended(l);
    for (size_t i = 0; i < e->unheard.count; i++)
        exec_row_note(s, &e->unheard.rows[i]);
    note_end(l, NULL);
    if (map_take(&s->machines, l->row.id)) {
        grants_machine_ended(s);
        image_release(s, l->row.image);
        durable_ended(l);
        live_unref(l);
    }
    tell_waiters(e, NULL);
    live_unref(l);
}

/* The box of the machine is gone, but its row cannot be written yet. */
static void end_late(void *arg, const struct err *why) {
    const struct live *l = arg;
    struct err err;
    err_set(&err, ERR_UNKNOWN, "machine '%s' has ended, but this is not saved yet: %s", l->row.id,
            why->text);
    err_remedy(&err, "free space on the disk that holds CARREL_HOME");
    tell_waiters(l->ending, &err);
}

/*
 * True if no operation uses the box any more. Each one ends by itself with an error, because the
 * box no longer answers.
 */
static bool is_at_rest(const struct live *l) {
    return steps_are_at_rest(l) && !grants_are_busy(l);
}

static int become_durable(struct live *l, struct err *err) {
    if (!is_at_rest(l))
        return err_set(err, ERR_BUSY,
                       "machine '%s' still has a step (snapshot), layer merge or grant in progress",
                       l->row.id);
    char reason[STORE_REASON_SIZE];
    snprintf(reason, sizeof(reason),
             "its machine's first process was killed; `carrel resume %s` brings back its last "
             "durable step",
             l->row.id);
    execs_lose(l, reason);
    if (commit_waits(&l->lane))
        return err_set(err, ERR_BUSY, "the end of the commands of machine '%s' is not saved yet",
                       l->row.id);
    if (l->machine && machine_is_asked(l->machine))
        return err_set(err, ERR_BUSY, "requests to machine '%s' are still pending", l->row.id);
    machine_free(TAKE(l->machine));
    steps_reset(l);
    return durable_adopt(l, err) == DURABLE_STOPPED ? 0 : -1;
}

/*
 * The box is gone. The machine becomes stopped at its durable step; this is retried until it is
 * written.
 */
static void has_fallen(struct live *l, const struct err *err) {
    struct service *s = l->service;
    struct ending *e = l->ending;
    struct err why;
    e->asked = false;
    if (!err && become_durable(l, &why) < 0)
        err = &why;
    if (err) {
        if (err->code != ERR_BUSY)
            log_line(LOG_ERROR, "service", "stop a machine: %s id=%s", err->text, l->row.id);
        else if (e->tries >= TRIES_UNTOLD) /* the first tries often fail */
            log_line(LOG_WARN, "service", "stop a machine: %s; retrying id=%s", err->text,
                     l->row.id);
        e->again_ms = loop_now_ms(s->loop) + back_off_ms(e->tries++);
    } else {
        struct journal_record what = verb_record("machine.fall", l);
        note_result(s, NULL, &what, e->intent, NULL);
        net_ended(l);
        ending_free(TAKE(l->ending));
        l->changing = false;
        rest_settled(l);
        expose_restore(l);
    }
    live_unref(l);
}

static void destroyed(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err && err->code == ERR_NOT_FOUND)
        err = NULL;
    if (l->ending->falls) {
        has_fallen(l, err);
        return;
    }
    if (err) {
        end_failed(l, err);
        return;
    }
    find_unheard(l, &l->ending->unheard);
    execs_lose(l, "its machine ended"); /* the rows of the commands are written first */
    const struct commit commit = {write_end, end_written, end_late, l};
    commit_run(l->service->commits, &l->lane, &commit);
}

static void ask_end(struct live *l) {
    struct service *s = l->service;
    l->ending->asked = true;
    live_ref(l);
    s->driver->destroy(s->host, l->row.id, destroyed, l);
}

/*
 * Writes that the machine is ending: if this daemon dies, the next one ends the machine. The box of
 * an ephemeral machine ends with the daemon, so its row is written only once, at the end.
 */
static void ending_write(struct live *l) {
    struct err err;
    if (l->ephemeral)
        return;
    if (store_machine_set_state(l->service->store, l->row.id, MACHINE_ENDING, STATE_BY_OTHER,
                                &err) < 0)
        log_line(LOG_ERROR, "service", "end a machine: %s id=%s", err.text, l->row.id);
}

/*
 * Sets l->ending before others are notified: if they request the end too, they find it in progress.
 */
static void ending_begin(struct live *l, const char *reason, bool own, bool falls) {
    struct ending *e = xnew(struct ending);
    struct err err;
    struct journal_record what = verb_record(falls ? "machine.fall" : "machine.end", l);
    what.reason = reason;
    e->own = own;
    e->falls = falls;
    if (own && note_intent(l->service, NULL, &what, &e->intent, &err) < 0)
        log_line(LOG_ERROR, "service", "end a machine: %s id=%s", err.text, l->row.id);
    l->ending = e;
    e->last = &e->waiters;
    snprintf(e->reason, sizeof(e->reason), "%s", reason);
    l->changing = true;
    net_detach(l);
    calls_detach(l);
    l->row.state = MACHINE_ENDING;
    if (!falls)
        ending_write(l);
    if (l->machine) {
        l->machine->on_end = NULL;
        l->machine->is_ending = !falls;
    }
    if (!falls)
        memory_forget(l->service, l->row.id, NULL);
    steps_end(l);
    images_machine_ends(l);
    rest_settled(l);
    backups_machine_ends(l);
}

bool live_falls(const struct live *l) {
    return l->ending && l->ending->falls;
}

static void live_fall(struct live *l, const char *reason) {
    ending_begin(l, reason, true, true);
    if (!l->ending->asked)
        ask_end(l);
}

void live_end(struct live *l, const char *reason, service_done_fn *done, void *arg) {
    if (!l->ending)
        ending_begin(l, reason, !done, false);
    if (l->ending->falls) { /* end the machine, do not stop it at its last step on disk */
        l->ending->falls = l->ending->own = false;
        snprintf(l->ending->reason, sizeof(l->ending->reason), "%s", reason);
        ending_write(l);
    }
    if (done)
        wait_for_end(l->ending, done, arg);
    if (done && commit_is_late(&l->lane)) {
        struct err why;
        commit_why_late(&l->lane, &why);
        end_late(l, &why);
    }
    if (!l->ending->asked)
        ask_end(l);
}

void live_end_again(struct live *l, uint64_t now_ms) {
    struct ending *e = l->ending;
    if (e && !e->asked && now_ms >= e->again_ms)
        ask_end(l);
}

/* The machine ended by itself: clean up and record the reason. */
static void ending_on_end(void *arg, struct machine *m, const struct err *why) {
    struct live *l = arg;
    bool old = live_is_over(l, -END_EARLY_MS), is_vm = live_is_vm(l);
    (void)m;
    if (l->row.state != MACHINE_ENDING && old)
        l->service->hits[HIT_LIFETIME]++;
    if (l->row.state == MACHINE_ENDING)
        return;
    if (is_vm && !old)
        log_line(LOG_WARN, "service", "a vm has ended: %s id=%s", why->text, l->row.id);
    if (!old && durable_is(l))
        live_fall(l, is_vm ? why->text : FALL_KILLED);
    else
        live_end(l, old ? "its ttl is over" : "it ended by itself", NULL, NULL);
}

/* The guest is connected again. Its commands kept running meanwhile. */
static void on_back(void *arg, struct machine *m) {
    (void)m;
    execs_reattach(arg);
    adopt_back(arg);
}

/* Notes what a vm did by itself. */
static void note_own(struct live *l, const char *verb, const char *why) {
    struct journal_record what = verb_record(verb, l);
    uint64_t intent;
    struct err err;
    what.reason = why;
    if (note_intent(l->service, NULL, &what, &intent, &err) == 0)
        note_result(l->service, NULL, &what, intent, NULL);
}

/* Its files stay, and its commands have ended. */
static void on_reboot(void *arg, struct machine *m, const char *why) {
    struct live *l = arg;
    struct buf text DEFER(buf_done) = BUF(STORE_REASON_SIZE * 6 + 32);
    (void)m;
    note_own(l, "machine.reboot", why);
    put_reason(why, &text);
    event_tell(l->service, l->row.owner, l->row.id, "machine.rebooted", text.data);
}

/* A vm that could not be stopped with its newest files ends as if QEMU had ended. */
static void on_stopped(void *arg, const struct err *err) {
    struct live *l = arg;
    struct err gone;
    l->resting = false;
    live_verb_over(l);
    if (err && !l->ending && l->machine) {
        log_line(LOG_WARN, "service", "save the files of a vm that ended: %s id=%s", err->text,
                 l->row.id);
        err_set(&gone, ERR_GONE, "its newest files could not be saved");
        ending_on_end(l, l->machine, &gone);
    }
    live_unref(l);
}

static bool on_off(void *arg, struct machine *m, const char *why) {
    struct live *l = arg;
    (void)m;
    if (live_is_over(l, -END_EARLY_MS) || !pause_may_stop(l))
        return false;
    note_own(l, "machine.off", why);
    live_ref(l);
    pause_stop(l, why, on_stopped, l);
    return true;
}

void live_attach(struct live *l, struct machine *m) {
    l->machine = m;
    m->on_end = ending_on_end;
    m->on_back = on_back;
    m->on_reboot = on_reboot;
    m->on_off = on_off;
    m->on_call = calls_on_call;
    m->on_arg = l;
    if (m->rebooted)
        on_reboot(l, m, TAKE(m->rebooted));
    idle_touch(&l->idle, loop_now_ms(l->service->loop));
}
