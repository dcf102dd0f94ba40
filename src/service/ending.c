/*
 * How a machine ends: whoever asks for it, it happens once, and everybody who waits is told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/state.h"

struct ending {
    struct live *live;
    char reason[STORE_REASON_SIZE];
    service_done_fn *done;
    void *arg;
};

static void ending_free(struct ending *e) {
    live_unref(e->live);
    free(e);
}

static void ending_done(void *arg, const struct err *err) {
    struct ending *e = arg;
    struct live *l = e->live;
    struct service *s = l->service;
    struct err why;
    char detail[STORE_REASON_SIZE + 32];
    bool gone = !err || err->code == ERR_NOT_FOUND;
    if (gone && store_machine_end(s->store, l->row.id, now_ms(), e->reason, &why) < 0) {
        gone = false;
        err = &why;
    }
    if (gone) {
        struct buf text DEFER(buf_done) = BUF(sizeof(detail));
        struct jot j = JOT(&text);
        jot_object(&j, NULL);
        jot_string(&j, "reason", e->reason);
        jot_end(&j, '}');
        l->row.state = MACHINE_ENDED;
        l->row.ended_ms = now_ms();
        snprintf(l->row.end_reason, sizeof(l->row.end_reason), "%s", e->reason);
        execs_lose(l, "its machine ended");
        if (store_exec_lose(s->store, l->row.id, now_ms(), "its machine ended", NULL, &why) < 0)
            log_line(LOG_ERROR, "service", "%s id=%s", why.text, l->row.id);
        event_tell(s, l->row.owner, l->row.id, "machine.ended", text.data);
        if (map_take(&s->machines, l->row.id))
            live_unref(l);
    } else {
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err->text, l->row.id);
        l->changing = false;
    }
    if (e->done)
        e->done(e->arg, gone ? NULL : err);
    ending_free(e);
}

void live_end(struct live *l, const char *reason, service_done_fn *done, void *arg) {
    struct service *s = l->service;
    struct ending *e = calloc(1, sizeof(*e));
    struct err err;
    if (!e)
        abort();
    *e = (struct ending){.live = l, .done = done, .arg = arg};
    snprintf(e->reason, sizeof(e->reason), "%s", reason);
    live_ref(l);
    l->changing = true;
    l->row.state = MACHINE_ENDING;
    if (store_machine_set_state(s->store, l->row.id, MACHINE_ENDING, &err) < 0)
        log_line(LOG_ERROR, "service", "end machine: %s id=%s", err.text, l->row.id);
    if (l->machine)
        l->machine->on_end = NULL;
    s->driver->destroy(s->host, l->row.id, ending_done, e);
}

/* It ended by itself: take away what is left of it, and say why. */
static void on_end(void *arg, struct machine *m, const struct err *why) {
    struct live *l = arg;
    int64_t now = now_ms();
    bool old = l->row.ttl_ms && now + 1000 >= l->row.created_ms + (int64_t)l->row.ttl_ms;
    (void)m;
    (void)why;
    if (l->row.state != MACHINE_ENDING)
        live_end(l, old ? "its lifetime is over" : "it ended by itself", NULL, NULL);
}

/* The connection broke and is there again: the commands went on meanwhile. */
static void on_back(void *arg, struct machine *m) {
    (void)m;
    execs_reattach(arg);
}

void live_attach(struct live *l, struct machine *m) {
    l->machine = m;
    m->on_end = on_end;
    m->on_back = on_back;
    m->on_arg = l;
    idle_touch(&l->idle, loop_now_ms(l->service->loop));
}
