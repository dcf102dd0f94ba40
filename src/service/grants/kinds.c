/* The simple kinds of grants: directories, files and variables. */
#include "service/grants/inner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "grant/dirs.h"
#include "service/vm/vms.h"
#include "service/volumes/live.h"

/* ---- directories ---- */

static int dir_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err) {
    (void)s, (void)owner, (void)r, (void)row;
    err_set(err, ERR_UNSUPPORTED, "a directory can be granted only when a machine is created");
    return err_remedy(err,
                      "use `carrel new --dir` or the field `dirs`; files can be granted later");
}

static void dir_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                     void *arg) {
    (void)l, (void)row, (void)fd;
    done(arg, NULL); /* the directory was mounted when the machine was created */
}

struct unlending {
    struct live *live;
    char *stay; /* places of the other directories, a line per place */
    service_done_fn *done;
    void *arg;
};

static void unlent(void *arg, const struct err *err) {
    struct unlending *u = arg;
    u->live->resting = false;
    live_verb_over(u->live);
    u->done(u->arg, err);
    live_unref(u->live);
    free(u->stay);
    free(u);
}

/*
 * Open files survive an unmount. If the directory is in use, every process of the machine is
 * killed, because any of them may have received a descriptor of such a file.
 */
static void unmounted(void *arg, bool in_use, const struct err *err) {
    struct unlending *u = arg;
    struct live *l = u->live;
    if (err || !in_use || !l->machine)
        unlent(u, err);
    else
        machine_halt(l->machine, l->service->loop, unlent, u);
}

/* err: programs of a vm that do not end end with it. */
static void unlend_ask(void *arg, const struct err *err) {
    struct unlending *u = arg;
    struct live *l = u->live;
    struct err gone;
    (void)err;
    if (l->machine && !l->ending) {
        l->service->driver->lend(l->machine, u->stay, unmounted, u);
        return;
    }
    err_set(&gone, ERR_GONE, "machine '%s' has ended", l->row.id);
    unlent(u, &gone);
}

static bool is_below(const char *path, const char *top) {
    size_t n = strlen(top);
    return strncmp(path, top, n) == 0 && path[n] == '/';
}

static bool is_mounted(const struct grant_row *row) {
    return strcmp(row->kind, grant_dir.name) == 0 || strcmp(row->kind, grant_volume.name) == 0;
}

/* Lists the places of all other directories and volumes in the machine, a line per place. */
static int others(struct live *l, const struct grant_row *row, struct buf *ret, struct err *err) {
    struct grant_list list DEFER(grant_list_done) = {0};
    if (store_grant_list(l->service->store, l->row.id, NULL, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.rows[i].id, row->id) == 0 || !is_mounted(&list.rows[i]))
            continue;
        if (is_below(list.rows[i].place, row->place)) {
            err_set(err, ERR_BUSY,
                    "cannot revoke the directory: it contains another granted directory, '%.100s'",
                    list.rows[i].place);
            return err_remedy(err, "revoke that grant first: %s", list.rows[i].id);
        }
        if (!buf_addf(ret, "%s\n", list.rows[i].place))
            return err_set(err, ERR_LIMIT,
                           "the paths of the granted directories are too long in total");
    }
    return 0;
}

static void dir_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                     void *arg) {
    struct buf stay DEFER(buf_done) = BUF(PLAN_TEXT_SIZE - 1);
    struct err err;
    bool fit = l->machine && (l->row.state == MACHINE_RUNNING || l->row.state == MACHINE_STOPPED);
    if (!fit || others(l, row, &stay, &err) < 0) {
        if (!fit)
            live_state_error(l, &err);
        done(arg, &err);
        return;
    }
    struct unlending *u = xnew(struct unlending);
    *u = (struct unlending){l, xstrdup(stay.data ? stay.data : ""), done, arg};
    live_ref(l);
    l->changing = true;
    l->resting = live_is_vm(l); /* requests wait while it boots again */
    if (l->resting)
        machine_halt(l->machine, l->service->loop, unlend_ask, u);
    else
        unlend_ask(u, NULL);
}

const struct grant_kind grant_dir = {
    .name = "dir", .read = dir_read, .give = dir_give, .take = dir_take};

/* ---- volumes ---- */

static int volume_read(struct service *s, const char *owner, const struct grant_request *r,
                       struct grant_row *row, struct err *err) {
    (void)s, (void)owner, (void)r, (void)row;
    err_set(err, ERR_UNSUPPORTED, "a volume can be attached only when a machine is created");
    return err_remedy(err, "use `carrel new --volume` or the field `volumes`");
}

/* In the transaction that writes the row: at most one machine writes to a volume. */
static int volume_settle(struct live *l, struct grant_row *row, struct err *err) {
    return volume_check(l->service, l->row.owner, row, err);
}

const struct grant_kind grant_volume = {.name = "volume",
                                        .read = volume_read,
                                        .settle = volume_settle,
                                        .give = dir_give,
                                        .take = dir_take};

/* ---- files ---- */

int grant_file_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err) {
    (void)s, (void)owner;
    const char *at = r->at ? r->at : r->what;
    if (place_check(at, err) < 0)
        return -1;
    row->what = xstrdup(r->what);
    row->place = xstrdup(at);
    snprintf(row->mode, sizeof(row->mode), "copy");
    return 0;
}

static void file_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                      void *arg) {
    const struct handover to = {row->place, 0644};
    handover_file(l, fd, &to, done, arg);
}

static void file_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                      void *arg) {
    handover_remove(l, row->place, done, arg);
}

const struct grant_kind grant_file = {.name = "file",
                                      .copies = true,
                                      .delivered = true,
                                      .inherited = true,
                                      .read = grant_file_read,
                                      .give = file_give,
                                      .take = file_take};

/* ---- variables ---- */

static int env_read(struct service *s, const char *owner, const struct grant_request *r,
                    struct grant_row *row, struct err *err) {
    (void)s, (void)owner;
    if (!r->value)
        return err_set(err, ERR_INVALID, "an environment variable requires a value");
    if (!*r->what || strchr(r->what, '=') || strlen(r->what) > 255)
        return err_set(err, ERR_INVALID, "'%.60s' is not a valid name of an environment variable",
                       r->what);
    row->what = xstrdup(r->what);
    row->place = xstrdup(r->value); /* only until env_settle() moves it to the variables */
    return 0;
}

/* Stores the value with the machine's other variables; the row keeps only the name. */
static int env_settle(struct live *l, struct grant_row *row, struct err *err) {
    char *value DEFER_FREE = row->place;
    row->place = NULL;
    const struct env_change set = {row->what, value};
    return value ? live_set_env(l, &set, 1, err) : 0;
}

static void env_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                     void *arg) {
    (void)l, (void)row, (void)fd;
    done(arg, NULL); /* env_settle() has set the variable */
}

static void env_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                     void *arg) {
    (void)l, (void)row;
    done(arg, NULL); /* env_unsettle() unsets the variable when the row is deleted */
}

static int env_unsettle(struct live *l, const struct grant_row *row, struct err *err) {
    return live_set_env(l, &(struct env_change){row->what, NULL}, 1, err);
}

const struct grant_kind grant_env = {.name = "env",
                                     .inherited = true,
                                     .read = env_read,
                                     .settle = env_settle,
                                     .give = env_give,
                                     .take = env_take,
                                     .unsettle = env_unsettle};
