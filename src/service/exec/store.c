/*
 * Stores the running commands of a cell machine (exec/stored.h). Nothing here blocks: guests answer
 * when they can, files are synced by a job, and a timer gives up what takes too long.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/cells.h"
#include "service/exec/inner.h"
#include "service/exec/logs.h"
#include "service/exec/stored.h"

enum {
    STORE_LOOK_MS = 50,
    STORE_BEGIN_MS = 5000, /* for a resumed program to go on, before it is stored again */
    STORE_STUCK_MS = 5000, /* for a file that does not grow, and whose program is not stored */
    STORE_MAX_MS = 120000,
    STORE_SLACK = 128 << 20, /* a file has the module and tables beside the memory */
};

struct storing_one {
    struct storing *of;
    struct exec *x;
    int fd;
    bool is_stored; /* its worker waits */
    uint64_t blocks, grew_ms;
};

struct storing {
    struct live *live;
    enum state_by by;
    struct storing_one *list;
    size_t count, waiting;
    uint64_t begun_ms, room;
    bool failed, leaving;
    bool early; /* commands are still being resumed */
    struct err err;
    struct loop_timer *timer;
    service_done_fn *done;
    void *arg;
};

/* ---- what can be stored ---- */

/* The caller's pipes must be known, because the next worker gets them too. */
static bool has_streams(const struct exec *x) {
    for (int i = 0; i < 3; i++)
        if (x->stdio[i] == MSG_STDIO_PTY || (x->stdio[i] == MSG_STDIO_FD && x->handed[i] < 0))
            return false;
    return x->log.fd >= 0 && !x->input;
}

static bool exec_can_store(const struct exec *x) {
    return x->phase == EXEC_OPEN && x->sent && !x->keeping && has_streams(x);
}

bool execs_can_store(const struct live *l) {
    uint32_t count = 0;
    if (!live_is_cell(l) || !l->machine || !guest_stores_commands(l->machine->guest))
        return false;
    for (const struct exec *x = l->execs->first; x; x = x->next) {
        if (x->runs && !exec_can_store(x))
            return false;
        count += x->runs;
    }
    return count == l->execs->running; /* else tools or programs without a row run */
}

/* ---- the end ---- */

static void storing_finish(struct storing *v) {
    struct live *l = v->live;
    service_done_fn *done = v->done;
    void *arg = v->arg;
    bool failed = v->failed;
    struct err err = v->err;
    for (size_t i = 0; i < v->count; i++) {
        struct storing_one *o = &v->list[i];
        o->x->storing = false;
        if (failed)
            stored_remove(l->service->place->home, l->row.id, o->x->row.id);
        close_fd(&o->fd);
        if (failed) {
            exec_feed(o->x);
            exec_tell(o->x);
        }
        exec_settle(o->x); /* it may have ended while its output was saved */
        exec_unref(o->x);
    }
    loop_timer_free(v->timer);
    free(v->list);
    free(v);
    done(arg, failed ? &err : NULL);
    live_unref(l);
}

/* Lets all programs go on. Requests that are pending are answered with an error. */
static void storing_fail(struct storing *v, const struct err *err) {
    if (v->failed)
        return;
    v->failed = true;
    v->err = *err;
    for (size_t i = 0; i < v->count; i++)
        if (v->list[i].x->sent && v->live->machine)
            guest_tell(v->live->machine->guest,
                       (struct frame_head){.type = MSG_GO_ON, .id = v->list[i].x->row.number}, NULL,
                       NULL);
}

/* ---- the processes end ---- */

static uint64_t time_left(const struct exec *x) {
    int64_t since = x->row.started_ms ? x->row.started_ms : x->row.created_ms;
    int64_t ran = wall_ms() - since;
    if (!x->row.timeout_ms)
        return 0;
    if (x->time_left_ms) /* it was resumed before */
        ran = (int64_t)(loop_now_ms(x->service->loop) - x->resumed_ms);
    uint64_t all = x->time_left_ms ? x->time_left_ms : x->row.timeout_ms;
    return ran > 0 && (uint64_t)ran < all ? all - (uint64_t)ran : 1;
}

static void one_left(void *arg, const struct frame *frame, const struct err *err) {
    struct storing *v = arg;
    (void)frame;
    if (err)
        log_line(LOG_WARN, "service", "end a stored command: %s id=%s", err->text, v->live->row.id);
    if (--v->waiting == 0)
        storing_finish(v);
}

static void storing_leave(struct storing *v) {
    struct guest *guest = v->live->machine->guest;
    v->waiting = v->count + 1;
    for (size_t i = 0; i < v->count; i++) {
        struct exec *x = v->list[i].x;
        x->time_left_ms = time_left(x);
        exec_becomes_stored(x);
        guest_forget(guest, &x->command, false);
        x->sent = x->waiting = false;
        guest_request(guest, (struct frame_head){.type = MSG_LEAVE, .id = x->row.number}, NULL,
                      NULL, 0, one_left, v);
    }
    if (--v->waiting == 0)
        storing_finish(v);
}

/* ---- the rows ---- */

static void mark_of(const struct exec *x, char ret[STORE_STORED_SIZE]) {
    struct stored_mark m = {.is_stored = true,
                            .left_ms = time_left(x),
                            .stdin_at = x->stdin_sent,
                            .stdin_ended = x->stdin_ended};
    memcpy(m.stdio, x->stdio, sizeof(m.stdio));
    stored_print(&m, ret);
}

static int storing_write(struct storing *v, struct err *err) {
    struct store *store = v->live->service->store;
    if (commit_waits(&v->live->lane))
        return err_set(err, ERR_BUSY, "a change of machine '%s' is not saved yet", v->live->row.id);
    if (store_begin(store, err) < 0)
        return -1;
    int r = store_machine_set_state(store, v->live->row.id, MACHINE_PAUSED, v->by, err);
    for (size_t i = 0; r == 0 && i < v->count; i++) {
        char mark[STORE_STORED_SIZE];
        mark_of(v->list[i].x, mark);
        r = store_exec_store(store, v->list[i].x->row.id, mark, err);
    }
    if (r == 0 && store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

/* A worker that was killed has ended its log, before or after its exit is known. */
static bool has_died(const struct exec *x) {
    if (x->phase != EXEC_OPEN || x->log.fd < 0)
        return true;
    for (int i = 0; i < 2; i++) {
        uint8_t mode = x->stdio[1 + i];
        if ((mode == MSG_STDIO_PIPE || mode == MSG_STDIO_FD) && outlog_extent(&x->log.log, i).ended)
            return true;
    }
    return false;
}

/* A kill or signal that was answered counts, even if the guest has not reported the end yet. */
static bool storing_is_late(const struct storing *v) {
    for (size_t i = 0; i < v->count; i++)
        if (v->list[i].x->signalled || has_died(v->list[i].x))
            return true;
    return false;
}

static void storing_commit(struct storing *v) {
    struct err err;
    loop_timer_stop(v->timer);
    if (!v->failed && (v->live->ending || !v->live->machine)) {
        err_set(&err, ERR_GONE, "machine '%s' is ending", v->live->row.id);
        storing_fail(v, &err);
    }
    if (!v->failed && storing_is_late(v)) {
        err_set(&err, ERR_BUSY, "a command ends while it is stored");
        storing_fail(v, &err);
    }
    if (!v->failed && storing_write(v, &err) < 0)
        storing_fail(v, &err);
    if (v->failed)
        storing_finish(v);
    else
        storing_leave(v);
}

/* ---- files and output ---- */

static void output_kept(void *arg, bool kept, const struct outlog_kept *now) {
    struct storing_one *o = arg;
    struct storing *v = o->of;
    struct err err;
    o->x->copying = false;
    if (kept)
        o->x->kept_so_far = *now;
    err_set(&err, ERR_LIMIT, "cannot save the output of command '%s'", o->x->row.id);
    if (!kept)
        storing_fail(v, &err);
    if (--v->waiting == 0)
        storing_commit(v);
}

/* A job of the tick may be saving the same output: then the timer tries again. */
static void storing_keep(struct storing *v) {
    struct service *s = v->live->service;
    for (size_t i = 0; i < v->count; i++)
        if (v->list[i].x->copying)
            return;
    loop_timer_stop(v->timer);
    v->waiting = v->count + 1;
    for (size_t i = 0; i < v->count; i++) {
        struct exec *x = v->list[i].x;
        x->copying = true;
        logs_keep(s->loop, s->place->home, x->row.machine, x->row.id, &x->log, &x->kept_so_far,
                  output_kept, &v->list[i]);
    }
    if (--v->waiting == 0)
        storing_commit(v);
}

static void sync_files(void *arg) {
    struct storing *v = arg;
    for (size_t i = 0; i < v->count && !v->failed; i++)
        if (fsync(v->list[i].fd) < 0) {
            v->failed = true;
            err_sys(&v->err, "cannot sync the file of a stored command");
        }
    if (!v->failed && v->count)
        v->failed = stored_sync(v->live->service->place->home, v->live->row.id, &v->err) < 0;
}

static void files_synced(void *arg) {
    struct storing *v = arg;
    struct err err = v->err;
    if (v->failed) {
        v->failed = false;
        storing_fail(v, &err);
        storing_finish(v);
        return;
    }
    v->leaving = true;
    loop_timer_start(v->timer, 0, STORE_LOOK_MS);
}

/* ---- the workers ---- */

static void one_stored(void *arg, const struct frame *frame, const struct err *err) {
    struct storing_one *o = arg;
    struct storing *v = o->of;
    (void)frame;
    o->is_stored = !err;
    if (err)
        storing_fail(v, err);
    if (--v->waiting)
        return;
    loop_timer_stop(v->timer);
    if (v->failed)
        storing_finish(v);
    else
        loop_work(v->live->service->loop, sync_files, files_synced, v);
}

/*
 * Returns the size of the file. *stuck is set if nothing happens: the program waits in a call of
 * the host and does not begin, or nobody reads its output, which must come before its end.
 */
static uint64_t storing_measure(struct storing_one *o, uint64_t now, bool *stuck) {
    struct stat st;
    if (fstat(o->fd, &st) < 0)
        return 0;
    if ((uint64_t)st.st_blocks != o->blocks || o->grew_ms == 0) {
        o->blocks = (uint64_t)st.st_blocks;
        o->grew_ms = now;
    }
    *stuck |= !o->is_stored && now - o->grew_ms > STORE_STUCK_MS;
    return (uint64_t)st.st_size;
}

static void storing_begin(struct storing *v);

static void storing_look(void *arg) {
    struct storing *v = arg;
    if (v->early) {
        storing_begin(v);
        return;
    }
    uint64_t now = loop_now_ms(v->live->service->loop), all = 0;
    struct err err;
    if (v->leaving) {
        storing_keep(v);
        return;
    }
    bool stuck = false;
    for (size_t i = 0; i < v->count; i++)
        all += storing_measure(&v->list[i], now, &stuck);
    if (all > v->room)
        err_set(&err, ERR_LIMIT, "the stored commands need more than the disk of the machine has");
    else if (stuck || now - v->begun_ms > STORE_MAX_MS)
        err_set(&err, ERR_TIMEOUT, "a command does not store itself, or nobody reads its output");
    else
        return;
    storing_fail(v, &err);
}

/* Stored commands count as disk of the machine, and so for the quota of its owner. */
static uint64_t room_of(const struct live *l) {
    return l->row.disk_bytes > l->disk_bytes ? l->row.disk_bytes - l->disk_bytes : 0;
}

static void storing_ask(struct storing *v, struct exec *x) {
    struct live *l = v->live;
    struct storing_one *o = &v->list[v->count];
    struct msg_pause m = {.max = v->room};
    if (l->row.mem_bytes && m.max > l->row.mem_bytes + STORE_SLACK)
        m.max = l->row.mem_bytes + STORE_SLACK;
    struct err err;
    *o = (struct storing_one){.of = v, .x = x};
    o->fd = stored_create(l->service->place->home, l->row.id, x->row.id, &err);
    if (o->fd < 0) {
        storing_fail(v, &err);
        return;
    }
    v->count++;
    v->waiting++;
    x->storing = true;
    x->signalled = false;
    exec_ref(x);
    guest_request(l->machine->guest, (struct frame_head){.type = MSG_PAUSE, .id = x->row.number},
                  &m, &o->fd, 1, one_stored, o);
}

static bool resumes_some(const struct live *l) {
    for (const struct exec *x = l->execs->first; x; x = x->next)
        if (x->is_stored && x->phase == EXEC_OPEN)
            return true;
    return false;
}

/* A command that is being resumed is not stored before it goes on. */
static void storing_begin(struct storing *v) {
    struct live *l = v->live;
    struct err err;
    uint64_t now = loop_now_ms(l->service->loop);
    v->early = resumes_some(l) && now - v->begun_ms < STORE_BEGIN_MS;
    if (v->early) {
        loop_timer_start(v->timer, STORE_LOOK_MS, 0);
        return;
    }
    v->begun_ms = now;
    v->list = xcalloc(l->execs->running + 1, sizeof(*v->list));
    v->waiting = 1;
    err_set(&err, ERR_BUSY, "a command of machine '%s' cannot be stored", l->row.id);
    if (!execs_can_store(l) || l->ending || resumes_some(l))
        storing_fail(v, &err);
    for (struct exec *x = l->execs->first; x && !v->failed; x = x->next)
        if (x->runs)
            storing_ask(v, x);
    if (--v->waiting) {
        loop_timer_start(v->timer, STORE_LOOK_MS, STORE_LOOK_MS);
    } else if (v->failed) {
        storing_finish(v);
    } else {
        storing_commit(v);
    }
}

void execs_store(struct live *l, enum state_by by, service_done_fn *done, void *arg) {
    struct storing *v = xnew(struct storing);
    *v = (struct storing){.live = l,
                          .by = by,
                          .begun_ms = loop_now_ms(l->service->loop),
                          .room = room_of(l),
                          .done = done,
                          .arg = arg};
    v->timer = loop_timer_new(l->service->loop, storing_look, v);
    live_ref(l);
    storing_begin(v);
}
