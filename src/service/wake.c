/* Creates a new box for a machine without a box, from its saved layers. */
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/cells.h"
#include "service/exec/live.h"
#include "service/grants/live.h"
#include "service/image_disk.h"
#include "service/net/live.h"
#include "service/state.h"
#include "service/steps/durable.h"
#include "service/steps/live.h"
#include "service/vm/memory.h"
#include "service/vm/vms.h"
#include "service/volumes/live.h"
#include "store/saved.h"

struct waking {
    struct live *live;
    struct grant_list gone;    /* grants that the machine had before */
    struct grant_list volumes; /* its volumes, which it gets again */
    struct plan_grant grants[PLAN_MAX_GRANTS];
    int fds[PLAN_MAX_GRANTS];
    size_t count;
    char disk[ID_SIZE];            /* its saved layers; empty: none */
    uint64_t saved;                /* bytes in them */
    char memory[MEMORY_PATH_SIZE]; /* in which a paused vm goes on; empty: none */
    char step[ID_SIZE];            /* which has it */
    struct err why;                /* it cannot */
    machine_done_fn *done, *late;
    void *arg;
};

static void wake_finish(struct waking *w, const struct err *err) {
    machine_done_fn *done = w->done;
    void *arg = w->arg;
    grant_list_done(&w->gone);
    grant_list_done(&w->volumes);
    while (w->count)
        close_fd(&w->fds[--w->count]);
    live_unref(w->live);
    free(w);
    done(arg, err);
}

/* Writes the row with the new box and the id of this boot of the host. */
static int write_woken(void *arg, struct err *err) {
    struct waking *w = arg;
    struct live *l = w->live;
    struct store *store = l->service->store;
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    if (grants_write_woken(l, &w->gone, err) < 0 ||
        store_saved_get(store, l->row.id, &row, err) < 0)
        return -1;
    for (size_t i = 0; i < w->count; i++)
        if (store_grant_put(store, &w->volumes.rows[i], err) < 0)
            return -1;
    durable_boot(row.boot);
    return store_saved_put(store, &row, err) < 0 ? -1 : store_machine_update(store, &l->row, err);
}

static void wake_told(void *arg, const struct err *err) {
    (void)err; /* logged; the gate still enforces the rules */
    wake_finish(arg, NULL);
}

static void trusted(void *arg, const struct err *err) {
    struct waking *w = arg;
    (void)err;
    net_tell(w->live, wake_told, w);
}

/* If writing failed, the box is kept, because it holds the only copy of its content. */
static void woken_written(void *arg, const struct err *failed) {
    struct waking *w = arg;
    struct live *l = w->live;
    if (!failed)
        grants_note_woken(l, &w->gone);
    if (!failed && w->memory[0])
        memory_drop(l->service, l->row.id, w->step);
    if (failed && w->memory[0])
        l->row.state = MACHINE_PAUSED;
    if (failed)
        wake_finish(w, failed);
    else if (gate_policy(l->gate)->count > 0 || gate_grants(l->gate)->count > 0)
        net_trust_again(l, trusted, w);
    else
        wake_finish(w, NULL);
}

static void woken_late(void *arg, const struct err *why) {
    const struct waking *w = arg;
    w->late(w->arg, why);
}

/* A vm never boots in place of going on, unless its owner says so. */
static void wake_refuse(struct waking *w) {
    const char *id = w->live->row.id;
    struct err err = w->why;
    err_wrap(&err, "vm '%s' cannot go on, and stays paused", id);
    err_remedy(&err,
               "to lose what ran and boot it with its files: carrel stop %s, then carrel resume %s",
               id, id);
    wake_finish(w, &err);
}

static void wake_box_gone(void *arg, const struct err *err) {
    struct waking *w = arg;
    if (err && err->code != ERR_NOT_FOUND)
        log_line(LOG_WARN, "service", "end the box of a machine: %s id=%s", err->text,
                 w->live->row.id);
    wake_refuse(w);
}

/* The commands of a vm went on with it. Those that an earlier daemon started are found again. */
static void wake_programs(struct live *l) {
    l->row.state = MACHINE_RUNNING; /* with its new box, in one transaction */
    l->reach.heard = false;
    execs_reattach(l);
    adopt_back(l);
}

static void made(void *arg, struct machine *m, const char *warnings, const struct err *failed) {
    struct waking *w = arg;
    struct live *l = w->live;
    if (failed && w->memory[0]) {
        w->why = *failed;
        l->service->driver->destroy(l->service->host, l->row.id, wake_box_gone, w);
        return;
    }
    if (failed) {
        wake_finish(w, failed);
        return;
    }
    live_attach(l, m);
    net_attach_made(l);
    if (warnings && *warnings && !l->row.warnings)
        l->row.warnings = xstrdup(warnings);
    l->dormant = false;
    l->row.end_reason[0] = '\0';
    l->row.incarnation = guest_incarnation(m->guest);
    if (w->memory[0])
        wake_programs(l);
    const struct commit commit = {write_woken, woken_written, woken_late, w};
    commit_run(l->service->commits, &l->lane, &commit);
}

/* Opens the volumes of the machine. Their numbers in the new box are in the rows. */
static int wake_volumes(struct waking *w, struct err *err) {
    struct live *l = w->live;
    if (store_grant_list(l->service->store, l->row.id, "volume", &w->volumes, err) < 0)
        return -1;
    for (; w->count < w->volumes.count && w->count < PLAN_MAX_GRANTS; w->count++) {
        w->fds[w->count] = volume_reopen(l->service, l->row.owner, &w->volumes.rows[w->count],
                                         w->count, &w->grants[w->count], err);
        if (w->fds[w->count] < 0)
            return -1;
    }
    return 0;
}

/*
 * A cell machine sleeps whenever it likes, and has a new disk afterwards. Its limit is that of the
 * saved layers and the disk together. Without root, saved files cannot be counted.
 */
static struct machine_limits wake_limits(const struct waking *w) {
    const struct machine_row *row = &w->live->row;
    struct machine_limits limits = row_limits(w->live->service->conf, row);
    if (w->saved)
        limits.disk_bytes = row->disk_bytes > w->saved + LIMIT_DISK_MIN ? row->disk_bytes - w->saved
                                                                        : LIMIT_DISK_MIN;
    return limits;
}

static void wake_create(struct waking *w) {
    struct live *l = w->live;
    struct service *s = l->service;
    struct machine_vm vm;
    const struct machine_spec spec = {
        .id = l->row.id,
        .image = l->row.image,
        .hostname = l->row.name[0] ? l->row.name : l->row.id,
        .limits = wake_limits(w),
        .deadline_ms = live_deadline(&l->row, live_time_left(l)),
        .linger = true,
        .same = true,
        .cell = live_is_cell(l),
        .vm = live_vm(l, w->memory[0] ? w->memory : NULL, &vm),
        .gate = true,
        .stack = steps_stack(l),
        .grants = w->grants,
        .grant_fds = w->fds,
        .grant_count = w->count,
    };
    vm.was_paused = w->memory[0];
    s->driver->create(s->host, &spec, made, w);
}

enum { SAVED_LEAST = 4096 }; /* an empty file takes space too */

static void wake_measure(void *arg) {
    struct waking *w = arg;
    char path[PATH_MAX];
    snprintf(path, sizeof(path), "%s/saved/%s", w->live->service->place->home, w->disk);
    int dir DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* A tree that cannot be counted leaves no room. */
    if (dir >= 0 && image_disk(dir, SAVED_LEAST, &w->saved) < 0)
        w->saved = w->live->row.disk_bytes;
}

static void wake_measured(void *arg) {
    wake_create(arg);
}

static int wake_disk(struct waking *w, struct err *err) {
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    struct live *l = w->live;
    if (!live_is_cell(l) || geteuid() != 0)
        return 0;
    if (store_saved_get(l->service->store, l->row.id, &row, err) < 0)
        return -1;
    snprintf(w->disk, sizeof(w->disk), "%s", row.stack && *row.stack ? row.disk : "");
    return 0;
}

/* The box that the pause left may still be ending, on behalf of an earlier daemon. */
static void wake_cleared(void *arg, const struct err *err) {
    struct waking *w = arg;
    if (!err || err->code == ERR_NOT_FOUND) {
        wake_create(w);
        return;
    }
    w->why = *err;
    wake_refuse(w);
}

void live_wake(struct live *l, machine_done_fn *done, machine_done_fn *late, void *arg) {
    struct err err;
    if (steps_load(l, &err) < 0) {
        done(arg, &err);
        return;
    }
    struct waking *w = xnew(struct waking);
    *w = (struct waking){.live = l, .done = done, .late = late, .arg = arg};
    live_ref(l);
    bool was_paused = live_is_vm(l) && l->row.state == MACHINE_PAUSED;
    if (was_paused && memory_of_paused(l, w->memory, w->step, &w->why) < 0)
        wake_refuse(w);
    else if (wake_volumes(w, &err) < 0 || wake_disk(w, &err) < 0)
        wake_finish(w, &err);
    else if (w->disk[0])
        loop_work(l->service->loop, wake_measure, wake_measured, w);
    else if (was_paused)
        l->service->driver->destroy(l->service->host, l->row.id, wake_cleared, w);
    else
        wake_create(w);
}
