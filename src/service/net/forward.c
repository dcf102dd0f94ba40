#include "service/net/forward.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/cells.h"
#include "service/net/inner.h"
#include "service/rest.h"
#include "service/rights.h"
#include "service/vm/vms.h"

enum { CONNECT_MS = 10000 };

struct forward {
    struct service *service;
    struct caller who;
    struct live *live; /* NULL before the machine was found */
    char machine[STORE_NAME_SIZE];
    uint16_t port; /* 0: the serial console of a vm */
    uint64_t offset;
    char what[48]; /* for errors: "port 80" */
    char detail[32];
    uint64_t intent;
    bool dialling; /* the driver will call forward_dialled() */
    bool answered;
    int fd; /* the socket while it connects */
    struct loop_watch *watch;
    struct loop_timer *timer;
    service_forward_fn *done;
    void *arg;
};

static void forward_free(struct forward *f) {
    loop_watch_free(f->watch);
    loop_timer_free(f->timer);
    close_fd(&f->fd);
    free(f);
}

void service_forward_over(struct forward *f) {
    struct live *l = f->live;
    idle_touch(&l->idle, loop_now_ms(f->service->loop));
    l->open--;
    l->net->forwards--;
    live_unref(l);
    forward_free(f);
}

static struct journal_record forward_record(const struct forward *f, const struct live *l) {
    return (struct journal_record){.verb = f->port ? "forward" : "serial",
                                   .machine = l->row.id,
                                   .detail = f->port ? f->detail : NULL};
}

static void forward_note(struct forward *f, const struct err *failed) {
    const struct journal_record what = forward_record(f, f->live);
    note_result(f->service, &f->who, &what, f->intent, failed);
}

/* Answers with the connected socket. A console is told where its client wants to begin. */
static void forward_connected(struct forward *f) {
    if (!f->port)
        dprintf(f->fd, "%" PRIu64 "\n", f->offset);
    f->answered = true;
    loop_watch_free(TAKE(f->watch));
    loop_timer_stop(f->timer);
    forward_note(f, NULL);
    f->done(f->arg, f, TAKE_FD(f->fd), NULL);
}

static void forward_failed(struct forward *f, const struct err *err) {
    struct live *l = TAKE(f->live);
    f->answered = true;
    f->done(f->arg, NULL, -1, err);
    if (l) {
        l->open--;
        l->net->forwards--;
        live_unref(l);
    }
    if (f->dialling)
        loop_timer_stop(f->timer);
    else
        forward_free(f);
}

/* Fails after the intent was written: the journal gets the result. */
static void forward_lost(struct forward *f, const struct err *err) {
    forward_note(f, err);
    forward_failed(f, err);
}

static void forward_late(void *arg) {
    struct forward *f = arg;
    struct err err;
    err_set(&err, ERR_TIMEOUT, "cannot connect to %s of machine '%s': no answer in %d seconds",
            f->what, f->live->row.id, CONNECT_MS / 1000);
    forward_lost(f, &err);
}

static void forward_ready(void *arg, unsigned events) {
    struct forward *f = arg;
    struct err err;
    int failed = 0;
    socklen_t n = sizeof(failed);
    (void)events;
    if (getsockopt(f->fd, SOL_SOCKET, SO_ERROR, &failed, &n) < 0)
        failed = errno;
    if (!failed) {
        forward_connected(f);
        return;
    }
    if (failed == ECONNREFUSED)
        err_set(&err, ERR_BUSY, "no program in machine '%s' listens on %s", f->live->row.id,
                f->what);
    else
        err_num(&err, -failed, "cannot connect to %s of machine '%s'", f->what, f->live->row.id);
    forward_lost(f, &err);
}

static void forward_dialled(void *arg, int fd, const struct err *failed) {
    struct forward *f = arg;
    struct err err;
    f->dialling = false;
    f->fd = fd;
    if (f->answered)
        forward_free(f);
    else if (failed)
        forward_lost(f, failed);
    else if (loop_watch_new(f->service->loop, fd, LOOP_WRITE, forward_ready, f, &f->watch, &err) <
             0)
        forward_lost(f, &err);
}

static void forward_start(struct forward *f);

static void forward_woken(void *arg, const struct err *err) {
    struct forward *f = arg;
    if (err)
        forward_failed(f, err);
    else
        forward_start(f);
}

static int forward_begin(struct forward *f, struct live *l, struct err *err) {
    const struct journal_record what = forward_record(f, l);
    if (cell_refuse(l, f->port ? "forwarded ports" : "a serial console", err) < 0)
        return -1;
    if (!f->port && !live_is_vm(l)) {
        err_set(err, ERR_UNSUPPORTED, "machine '%s' is a box, which has no serial console",
                l->row.id);
        return err_remedy(err, "only a vm has one; for a shell use carrel sh");
    }
    if (l->net->forwards == FORWARDS_MAX)
        return err_set(err, ERR_LIMIT,
                       "machine '%s' already has %d forwarded connections, which is the limit",
                       l->row.id, FORWARDS_MAX);
    return note_intent(f->service, &f->who, &what, &f->intent, err);
}

/* Finds the machine, again after each wait: it may have ended meanwhile. */
static void forward_start(struct forward *f) {
    struct err err;
    struct live *l = live_find(f->service, &f->who, f->machine, LIVE_ANY, &err);
    int turn = l ? rest_wake(l, &f->who, forward_woken, f, &err) : -1;
    if (turn > 0)
        return;
    if (turn < 0 || forward_begin(f, l, &err) < 0) {
        forward_failed(f, &err);
        return;
    }
    f->live = l;
    live_ref(l);
    l->open++;
    l->net->forwards++;
    f->dialling = true;
    loop_timer_start(f->timer, CONNECT_MS, 0);
    f->service->driver->dial(l->machine, f->port, forward_dialled, f);
}

static void forward_new(struct service *s, const struct caller *who, const char *machine,
                        uint16_t port, uint64_t offset, service_forward_fn *done, void *arg) {
    struct err err;
    struct forward *f = xnew(struct forward);
    *f = (struct forward){.service = s,
                          .who = *who,
                          .port = port,
                          .offset = offset,
                          .fd = -1,
                          .done = done,
                          .arg = arg};
    snprintf(f->machine, sizeof(f->machine), "%s", machine);
    snprintf(f->detail, sizeof(f->detail), "{\"port\":%u}", port);
    if (port)
        snprintf(f->what, sizeof(f->what), "port %u", port);
    else
        snprintf(f->what, sizeof(f->what), "the serial console");
    f->timer = loop_timer_new(s->loop, forward_late, f);
    if (allow(who, SCOPE_RUN, &err) < 0)
        forward_failed(f, &err);
    else
        forward_start(f);
}

void service_forward(struct service *s, const struct caller *who, const char *machine,
                     uint16_t port, service_forward_fn *done, void *arg) {
    forward_new(s, who, machine, port, 0, done, arg);
}

void service_serial(struct service *s, const struct caller *who, const char *machine,
                    uint64_t offset, service_forward_fn *done, void *arg) {
    forward_new(s, who, machine, 0, offset, done, arg);
}
