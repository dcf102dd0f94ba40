/*
 * How a machine ends: whoever asks for it, it happens once, and everybody who waits is told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/baselines.h"
#include "service/durable.h"
#include "service/gate.h"
#include "service/image_store.h"

/* It is tried again; who waits for the end hears of a failure only when it lasts. */
enum { TRIES_UNTOLD = 6 };

struct waiter {
    struct waiter *next;
    service_done_fn *done;
    void *arg;
};

struct ending {
    char reason[STORE_REASON_SIZE];
    struct waiter *waiters, **last;
    bool asked; /* of the driver, which has not answered yet */
    bool own;   /* nobody asked for it: it is written down in the daemon's name */
    uint64_t intent;
    unsigned tries;
    uint64_t again_ms;
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
    struct waiter *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
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
    free(e);
}

/* Commands that this daemon never heard of: their outcome is unknown, and that is told too. */
static void tell_unheard(struct live *l) {
    struct service *s = l->service;
    struct exec_list list DEFER(exec_list_done) = {0};
    struct exec_filter filter = {.machine = l->row.id,
                                 .limit = STORE_PAGE_MAX,
                                 .states = 1u << EXEC_STARTING | 1u << EXEC_RUNNING};
    struct err err;
    if (store_exec_list(s->store, &filter, &list, &err) < 0)
        log_line(LOG_ERROR, "service", "%s id=%s", err.text, l->row.id);
    for (size_t i = 0; i < list.count; i++) {
        snprintf(list.rows[i].reason, sizeof(list.rows[i].reason), "its machine ended");
        list.rows[i].state = EXEC_UNKNOWN;
        exec_row_told(s, &list.rows[i]);
    }
}

/* It is gone: written down, and whatever ran in it has no outcome. */
static int write_end(struct live *l, const char *reason, struct err *err) {
    struct service *s = l->service;
    struct err why;
    baselines_remove(s, l->row.id);
    if (store_machine_end(s->store, l->row.id, now_ms(), reason, err) < 0 &&
        (err->code != ERR_LIMIT || !store_dig(s->store) ||
         store_machine_end(s->store, l->row.id, now_ms(), reason, err) < 0))
        return -1;
    struct buf text DEFER(buf_done) = BUF(STORE_REASON_SIZE * 6 + 32);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "reason", reason);
    jot_end(&j, '}');
    l->row.state = MACHINE_ENDED;
    l->row.ended_ms = now_ms();
    snprintf(l->row.end_reason, sizeof(l->row.end_reason), "%s", reason);
    net_ended(l);
    execs_lose(l, "its machine ended");
    if (!l->reach.heard)
        tell_unheard(l);
    if (store_exec_lose(s->store, l->row.id, now_ms(), "its machine ended", NULL, &why) < 0)
        log_line(LOG_ERROR, "service", "%s id=%s", why.text, l->row.id);
    event_tell(s, l->row.owner, l->row.id, "machine.ended", text.data);
    return 0;
}

static void destroyed(void *arg, const struct err *err) {
    struct live *l = arg;
    struct service *s = l->service;
    struct ending *e = l->ending;
    struct err why;
    bool wait = false;
    e->asked = false;
    if (err && err->code == ERR_NOT_FOUND)
        err = NULL;
    if (!err && write_end(l, e->reason, &why) < 0)
        err = &why;
    struct journal_record what = verb_record("machine.end", l);
    what.reason = e->reason;
    if (e->own)
        note_result(s, NULL, &what, e->intent, err);
    if (err) {
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err->text, l->row.id);
        e->again_ms = loop_now_ms(s->loop) + back_off_ms(e->tries++);
        wait = e->tries < TRIES_UNTOLD && err->code != ERR_LIMIT; /* a full disk lasts */
    } else if (map_take(&s->machines, l->row.id)) {
        s->copies_unswept = true;
        image_release(s, l->row.image);
        durable_ended(l);
        live_unref(l);
    }
    if (!wait)
        tell_waiters(e, err);
    live_unref(l);
}

static void ask_end(struct live *l) {
    struct service *s = l->service;
    l->ending->asked = true;
    live_ref(l);
    s->driver->destroy(s->host, l->row.id, destroyed, l);
}

static struct ending *ending_begin(struct live *l, const char *reason, bool own) {
    struct ending *e = calloc(1, sizeof(*e));
    struct err err;
    if (!e)
        abort();
    struct journal_record what = verb_record("machine.end", l);
    what.reason = reason;
    e->own = own;
    if (own && note_intent(l->service, NULL, &what, &e->intent, &err) < 0)
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err.text, l->row.id);
    e->last = &e->waiters;
    snprintf(e->reason, sizeof(e->reason), "%s", reason);
    l->changing = true;
    net_detach(l);
    l->row.state = MACHINE_ENDING;
    if (store_machine_set_state(l->service->store, l->row.id, MACHINE_ENDING, &err) < 0)
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err.text, l->row.id);
    if (l->machine)
        l->machine->on_end = NULL;
    steps_end(l);
    return e;
}

void live_end(struct live *l, const char *reason, service_done_fn *done, void *arg) {
    if (!l->ending)
        l->ending = ending_begin(l, reason, !done);
    if (done)
        wait_for_end(l->ending, done, arg);
    if (!l->ending->asked)
        ask_end(l);
}

void live_end_again(struct live *l, uint64_t now_ms) {
    struct ending *e = l->ending;
    if (e && !e->asked && now_ms >= e->again_ms)
        ask_end(l);
}

/* It ended by itself: take away what is left of it, and say why. */
static void on_end(void *arg, struct machine *m, const struct err *why) {
    struct live *l = arg;
    int64_t now = now_ms();
    bool old = l->row.ttl_ms && now + 1000 >= l->row.created_ms + (int64_t)l->row.ttl_ms;
    (void)m;
    (void)why;
    if (l->row.state != MACHINE_ENDING && old)
        l->service->hits[HIT_LIFETIME]++;
    if (l->row.state != MACHINE_ENDING)
        live_end(l, old ? "its lifetime is over" : "it ended by itself", NULL, NULL);
}

/* The connection broke and is there again: the commands went on meanwhile. */
static void on_back(void *arg, struct machine *m) {
    (void)m;
    execs_reattach(arg);
    adopt_back(arg);
}

void live_attach(struct live *l, struct machine *m) {
    l->machine = m;
    m->on_end = on_end;
    m->on_back = on_back;
    m->on_arg = l;
    idle_touch(&l->idle, loop_now_ms(l->service->loop));
}
