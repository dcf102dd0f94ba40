#include "service/steps/durable.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/image_id.h"
#include "base/log.h"
#include "service/grants/bases.h"
#include "service/steps/inner.h"
#include "service/strays.h"
#include "store/grants.h"
#include "store/saved.h"

enum {
    SWEEP_MS = 2000,
    AT_ONCE = 2,
    LONGEST = 10,
    LOOK_MS = 20,
    TRIES_FIRST = 4,
    STEPS_LOOKED_AT = 50
};

/* A copy of the layers of a step to the store. */
struct saving {
    struct live *live;
    struct saved_row row; /* the row to write */
    struct saved_plan plan;
    uint32_t number; /* number of the step */
    size_t at;
    struct loop_timer *timer;
};

static void saving_free(struct saving *v) {
    v->live->steps->durable.saving = NULL;
    v->live->service->steps->saving--;
    loop_timer_free(v->timer);
    saved_row_done(&v->row);
    live_unref(v->live);
    free(v);
}

void durable_release(struct live *l) {
    if (l->steps->durable.saving)
        saving_free(l->steps->durable.saving);
}

/* While a user takes one step after the other, saving is delayed, but only up to a limit. */
void durable_want(struct live *l) {
    struct durable *d = &l->steps->durable;
    uint64_t after = l->service->conf->durable_after_ms, now = loop_now_ms(l->service->loop);
    if (!after)
        return;
    if (!d->wanted)
        d->since_ms = now;
    d->wanted = true;
    uint64_t latest = d->since_ms + LONGEST * after;
    d->due_ms = now + after < latest ? now + after : latest;
}

void durable_boot(char ret[40]) {
    int dir DEFER_CLOSE = open("/proc/sys/kernel/random", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ssize_t n = dir < 0 ? -1 : read_file_at(dir, "boot_id", ret, 40);
    ret[n > 0 ? strcspn(ret, "\n") : 0] = '\0';
}

/* ---- saving ---- */

static void shed_done(void *arg, const struct err *err) {
    (void)arg;
    if (err)
        log_line(LOG_WARN, "service", "delete saved layers: %s", err->text);
}

void durable_shed(struct live *l) {
    struct service *s = l->service;
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    char *ranges DEFER_FREE = xmalloc(RANGES_SIZE);
    struct err err;
    if (store_saved_get(s->store, l->row.id, &row, &err) == 0 &&
        layers_named(s, row.disk, row.stack, ranges, &err))
        s->driver->shed(s->host, row.disk, ranges, shed_done, NULL);
}

/* The layer numbers of a failed attempt are never used again, so its copies are deleted. */
static void durable_give_up(struct saving *v, const struct err *err) {
    struct live *l = v->live;
    l->steps->durable.wanted = true;
    snprintf(l->steps->durable.why, sizeof(l->steps->durable.why), "%s", err->text);
    l->steps->durable.due_ms =
        loop_now_ms(l->service->loop) + back_off_ms(TRIES_FIRST + l->steps->durable.tries++);
    log_line(LOG_WARN, "service", "save a step: %s id=%s", err->text, l->row.id);
    durable_shed(l);
    saving_free(v);
}

static void durable_tell(const struct saving *v) {
    struct live *l = v->live;
    char json[96];
    snprintf(json, sizeof(json), "{\"step\":\"%s\",\"number\":%u}", v->row.step, v->number);
    event_tell(l->service, l->row.owner, l->row.id, "step.durable", json);
}

static int write_saved(struct saving *v, struct err *err) {
    struct store *store = v->live->service->store;
    if (store_begin(store, err) < 0)
        return -1;
    if (store_saved_put(store, &v->row, err) == 0 &&
        store_step_durable(store, v->row.machine, v->row.step, err) == 0) {
        durable_tell(v);
        if (store_commit(store, err) == 0)
            return 0;
    }
    store_rollback(store);
    return -1;
}

static void durable_finish(struct saving *v) {
    char text[LAYERS_TEXT_SIZE];
    struct err err;
    layers_print(&v->plan.from, text, sizeof(text));
    free(v->row.source);
    v->row.source = xstrdup(text);
    layers_print(&v->plan.to, text, sizeof(text));
    free(v->row.stack);
    v->row.stack = xstrdup(text);
    if (write_saved(v, &err) < 0) {
        durable_give_up(v, &err);
        return;
    }
    v->live->steps->durable.tries = 0;
    v->live->steps->durable.why[0] = '\0';
    durable_shed(v->live);
    saving_free(v);
}

static void copy_next(void *arg);

static void copied(void *arg, const struct err *err) {
    struct saving *v = arg;
    if (err && err->code == ERR_BUSY) {
        loop_timer_start(v->timer, LOOK_MS, 0);
    } else if (err) {
        durable_give_up(v, err);
    } else {
        v->at++;
        copy_next(v);
    }
}

static void copy_next(void *arg) {
    struct saving *v = arg;
    struct live *l = v->live;
    char layer[ID_SIZE + 16];
    while (v->at < v->plan.from.count && !v->plan.missing[v->at])
        v->at++;
    if (!l->machine || l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED) {
        saving_free(v);
    } else if (v->at == v->plan.from.count) {
        durable_finish(v);
    } else {
        snprintf(layer, sizeof(layer), "%s/%u", v->plan.from.v[v->at].machine,
                 v->plan.from.v[v->at].number);
        l->service->driver->save(l->machine, layer, v->row.disk, v->plan.to.v[v->at].number, copied,
                                 v);
    }
}

/* ---- choice of the step to save ---- */

int durable_newest(struct live *l, struct step_row *ret, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    if (store_step_list(l->service->store, l->row.id, 0, false, STEPS_LOOKED_AT, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        if (!list.rows[i].has_point)
            continue;
        *ret = list.rows[i];
        list.rows[i].what = list.rows[i].stack = NULL;
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "machine '%s' has no step (restore point) to save",
                   l->row.id);
}

int durable_row(struct live *l, struct saved_row *ret, struct err *err) {
    if (store_saved_get(l->service->store, l->row.id, ret, err) == 0)
        return 0;
    if (err->code != ERR_NOT_FOUND)
        return -1;
    *ret = (struct saved_row){.next = 1};
    snprintf(ret->machine, sizeof(ret->machine), "%s", l->row.id);
    snprintf(ret->disk, sizeof(ret->disk), "%s", id_new('d').text);
    return 0;
}

/* 1: there are layers to save. The numbers of the copies are reserved before any copy is made. */
static int durable_prepare(struct saving *v, struct err *err) {
    struct live *l = v->live;
    struct step_row step DEFER(step_row_done) = {.what = NULL};
    if (durable_newest(l, &step, err) < 0)
        return err->code == ERR_NOT_FOUND ? 0 : -1;
    if (durable_row(l, &v->row, err) < 0)
        return -1;
    if (strcmp(v->row.step, step.id) == 0)
        return 0;
    if (saved_plan(&v->row, step.stack ? step.stack : "", &v->plan, err) < 0)
        return -1;
    durable_boot(v->row.boot);
    if (store_saved_put(l->service->store, &v->row, err) < 0)
        return -1;
    snprintf(v->row.step, sizeof(v->row.step), "%s", step.id);
    v->number = step.number;
    return 1;
}

/*
 * On a full disk a copy would fail and use up the remaining space, so it waits until there is
 * space.
 */
static bool waits_for_room(struct live *l) {
    struct durable *d = &l->steps->durable;
    if (!d->wanted || d->saving || !l->service->store_full)
        return false;
    snprintf(d->why, sizeof(d->why),
             "the disk that holds CARREL_HOME is full: the step is saved once there is space");
    return true;
}

void durable_look(struct live *l, uint64_t now_ms) {
    struct durable *d = &l->steps->durable;
    struct err err;
    if (waits_for_room(l))
        return;
    bool quiet = !l->steps->taking && !l->steps->held && !l->steps->merging && !l->changing;
    if (!d->wanted || d->saving || !l->machine || now_ms < d->due_ms || !quiet ||
        l->service->steps->saving >= AT_ONCE || l->row.state == MACHINE_ENDING ||
        l->row.state == MACHINE_ENDED)
        return;
    struct saving *v = xnew(struct saving);
    v->live = l;
    v->timer = loop_timer_new(l->service->loop, copy_next, v);
    live_ref(l);
    l->service->steps->saving++;
    d->saving = v;
    d->wanted = false;
    int r = durable_prepare(v, &err);
    if (r < 0) {
        durable_give_up(v, &err);
    } else if (r == 0) {
        d->why[0] = '\0'; /* the step is already saved, for example after a rewind to it */
        saving_free(v);
    } else {
        copy_next(v);
    }
}

/* ---- machines after a restart of the host, or after the end of their first process ---- */

struct fall {
    const char *what, *files;
};
static const struct fall host_restarted = {"the host was restarted",
                                           "its files were lost when the host was restarted"};
static const struct fall box_killed = {FALL_KILLED,
                                       "its files were lost when its first process was killed"};

/*
 * One transaction: the copies of the layers `source` become the root, and steps that were not saved
 * are lost.
 */
static int write_revived(struct live *l, struct saved_row *row, const char *source,
                         const struct fall *fall, struct err *err) {
    struct store *store = l->service->store;
    /* If the root has lower layers, upper 1 is already used by the box that was prepared. */
    bool lies = (row->stack && *row->stack) || image_id_valid(l->row.image);
    struct root_row root = {.layer = lies ? 2 : 1, .stack = row->stack};
    snprintf(root.machine, sizeof(root.machine), "%s", l->row.id);
    if (store_begin(store, err) < 0)
        return -1;
    if (bases_move(l, source, row->stack ? row->stack : "", err) == 0 &&
        store_steps_lose(store, row, fall->files, err) == 0 &&
        store_root_put(store, &root, err) == 0 && store_saved_put(store, row, err) == 0 &&
        store_machine_update(store, &l->row, err) == 0 &&
        store_exec_lose(store, l->row.id, wall_ms(), fall->what, NULL, err) == 0 &&
        store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

/* The box held the descriptors: only the user who granted the directories can open them again. */
static bool had_directories(struct live *l) {
    struct grant_list list DEFER(grant_list_done) = {0};
    struct err err;
    return store_grant_list(l->service->store, l->row.id, "dir", &list, &err) == 0 && list.count;
}

static void say_why(struct live *l, const char *id, const struct fall *fall) {
    struct step_row step DEFER(step_row_done) = {.what = NULL};
    struct err err;
    char at[48] = "a step that was deleted";
    if (store_step_find(l->service->store, l->row.id, id, &step, &err) == 0)
        snprintf(at, sizeof(at), "step %u", step.number);
    snprintf(l->row.end_reason, sizeof(l->row.end_reason), "%s: restored as of %s%s", fall->what,
             at, had_directories(l) ? "; grant its directories again" : "");
}

static int revive(struct live *l, struct saved_row *row, const struct fall *fall, struct err *err) {
    char json[128];
    bool known = !row->boot[0];
    char *source DEFER_FREE = row->source ? row->source : xstrdup("");
    row->boot[0] = '\0';
    row->source = xstrdup(row->stack ? row->stack : "");
    l->row.state = MACHINE_STOPPED;
    if (known)
        return 0;
    l->row.state_by = STATE_BY_OTHER;
    say_why(l, row->step, fall);
    if (write_revived(l, row, source, fall, err) < 0)
        return -1;
    snprintf(json, sizeof(json), "{\"reason\":\"%s\"}", fall->what);
    event_tell(l->service, l->row.owner, l->row.id, "machine.stopped", json);
    return 0;
}

enum durable_fate durable_adopt(struct live *l, struct err *err) {
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    char boot[40], why[STORE_REASON_SIZE];
    if (store_saved_get(l->service->store, l->row.id, &row, err) < 0)
        return err->code == ERR_NOT_FOUND ? DURABLE_NONE : DURABLE_LATER;
    /*
     * A machine whose ttl has passed has ended, even if a step was saved. Without a step, one that
     * waits to be resumed has the files of its image.
     */
    if ((!row.step[0] && row.boot[0]) || live_is_over(l, 0))
        return DURABLE_NONE;
    durable_boot(boot);
    enum machine_state before = l->row.state;
    enum state_by by = l->row.state_by;
    snprintf(why, sizeof(why), "%s", l->row.end_reason);
    if (revive(l, &row, strcmp(row.boot, boot) == 0 ? &box_killed : &host_restarted, err) < 0) {
        log_line(LOG_ERROR, "service", "restore a machine: %s id=%s", err->text, l->row.id);
        l->row.state = before;
        l->row.state_by = by;
        snprintf(l->row.end_reason, sizeof(l->row.end_reason), "%s", why);
        return DURABLE_LATER;
    }
    l->dormant = l->reach.heard = true;
    l->reach.why[0] = '\0'; /* a machine without a box has no guest to wait for */
    return DURABLE_STOPPED;
}

bool durable_is(struct live *l) {
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    struct err err;
    if (store_saved_get(l->service->store, l->row.id, &row, &err) < 0)
        return err.code != ERR_NOT_FOUND;
    return row.step[0] && !live_is_over(l, 0);
}

/* ---- deletion of unused saved layers ---- */

/* Sweeps saved layers only if this machine had some: the sweep reads the whole store. */
void durable_ended(const struct live *l) {
    struct saved_row row DEFER(saved_row_done) = {.source = NULL};
    struct err err;
    bool lay_there = l->steps->stack && strstr(l->steps->stack, "d-");
    if (lay_there || store_saved_get(l->service->store, l->row.id, &row, &err) == 0)
        l->service->steps->saved_unswept = true;
}

/* The disks with saved layers. */
struct saved_disks {
    char (*ids)[ID_SIZE];
    size_t count, size;
    struct map unused; /* id -> its place in ids */
};

static void saved_disks_done(struct saved_disks *d) {
    map_done(&d->unused);
    free(d->ids);
}

static void saved_disks_list(struct service *s, struct saved_disks *ret) {
    char path[4096];
    snprintf(path, sizeof(path), "%s/saved", s->place->home);
    DIR *d DEFER(dir_close) = opendir(path);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (!id_valid(e->d_name, strlen(e->d_name), 'd'))
            continue;
        if (ret->count == ret->size) {
            ret->size = ret->size ? 2 * ret->size : 64;
            ret->ids = xrealloc(ret->ids, ret->size, sizeof(*ret->ids));
        }
        snprintf(ret->ids[ret->count++], ID_SIZE, "%s", e->d_name);
    }
    for (size_t i = 0; i < ret->count; i++) /* now that they do not move any more */
        map_put(&ret->unused, ret->ids[i], ret->ids[i]);
}

/* A disk goes only if the whole store was read: a failure must not delete layers in use. */
void durable_sweep(struct service *s) {
    struct saved_disks disks DEFER(saved_disks_done) = {.count = 0};
    struct err err;
    const char *id;
    uint64_t now = loop_now_ms(s->loop);
    if (!s->steps->saved_unswept || now < s->steps->sweep_again_ms || !strays_may_sweep(s))
        return;
    s->steps->saved_unswept = false;
    s->steps->sweep_again_ms = now + SWEEP_MS;
    saved_disks_list(s, &disks);
    if (store_saved_take_used(s->store, &disks.unused, &err) < 0) {
        log_line(LOG_WARN, "service", "list saved layers: %s", err.text);
        s->steps->saved_unswept = true;
        return;
    }
    for (size_t at = 0; (id = map_next(&disks.unused, &at));)
        s->driver->shed(s->host, id, NULL, shed_done, NULL);
}

const char *durable_why(const struct live *l) {
    return l->steps->durable.why[0] ? l->steps->durable.why : NULL;
}

void durable_want_sweep(struct service *s, bool wanted) {
    s->steps->saved_unswept = wanted;
}
