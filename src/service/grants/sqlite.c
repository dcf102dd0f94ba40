/*
 * SQLite databases: the machine gets a copy, and the daemon keeps another copy as the base of diffs
 * (the base copy), since the owner's file may change meanwhile.
 *
 * Only carrel-sqlite reads a file written by a machine, after it has dropped all rights.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "base/log.h"
#include "io/child.h"
#include "service/files.h"
#include "service/grants/grants.h"
#include "service/grants/inner.h"
#include "service/review/baselines.h"
#include "service/strays.h"

enum {
    PATH_SIZE = PLACE_SIZE + 64,
    DIFF_MAX_BYTES = 1 << 20,
    SAID_MAX = 1024,
    LIMIT_MS = 60000,
    AT_ONCE = 4,            /* comparisons per owner */
    AT_ONCE_OF_MACHINE = 2, /* comparisons per machine: one that hangs must not block the others */
    HIGH_FD = 20            /* above the descriptor numbers that carrel-sqlite uses */
};

/* ---- the base copy ---- */

static void sqlite_path_of(const struct service *s, const char *id, char ret[PATH_SIZE]) {
    snprintf(ret, PATH_SIZE, "%s/databases/%s", s->place->home, id);
}

static int sqlite_make_dir(const struct service *s, struct err *err) {
    char path[PATH_SIZE];
    sqlite_path_of(s, "", path);
    int status = folder_make(path);
    return status < 0 ? err_num(err, status, "cannot create directory '%s'", path) : 0;
}

int grant_copy_path(const struct service *s, const char *id, char ret[PATH_SIZE], struct err *err) {
    sqlite_path_of(s, id, ret);
    return sqlite_make_dir(s, err);
}

struct giving {
    struct live *live;
    char id[ID_SIZE], place[PLAN_PATH_SIZE];
    int fd;
    bool failed;
    struct err err;
    service_done_fn *done;
    void *arg;
};

static int keep_copy(const struct giving *g, struct err *err) {
    char path[PATH_SIZE], piece[65536];
    ssize_t n;
    off_t at = 0;
    sqlite_path_of(g->live->service, g->id, path);
    if (sqlite_make_dir(g->live->service, err) < 0)
        return -1;
    int out DEFER_CLOSE = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (out < 0)
        return err_sys(err, "cannot create file '%s' for the copy of a database", path);
    while ((n = pread(g->fd, piece, sizeof(piece), at)) > 0 && at < SQLITE_FILE_MAX) {
        int status = write_all(out, piece, (size_t)n);
        if (status < 0)
            return err_num(err, status, "cannot write file '%s', the copy of a database", path);
        at += n;
    }
    if (n < 0)
        return err_sys(err, "cannot read the database to grant");
    int status = fsync(out) < 0 ? -errno : folder_sync_above(path);
    if (status < 0)
        return err_num(err, status, "cannot flush file '%s', the copy of a database, to disk",
                       path);
    return baseline_begin(g->live->service, g->live->row.id, g->place, true, err);
}

static void keep_job(void *arg) {
    struct giving *g = arg;
    g->failed = keep_copy(g, &g->err) < 0;
}

static void given(void *arg, const struct err *err) {
    struct giving *g = arg;
    g->done(g->arg, err);
    close_fd(&g->fd);
    live_unref(g->live);
    free(g);
}

static void sqlite_kept(void *arg) {
    struct giving *g = arg;
    const struct handover to = {g->place, 0644};
    if (g->failed)
        given(g, &g->err);
    else
        handover_file(g->live, g->fd, &to, given, g);
}

static void sqlite_give(struct live *l, const struct grant_row *row, int fd, service_done_fn *done,
                        void *arg) {
    struct giving *g = xnew(struct giving);
    *g = (struct giving){.live = l, .done = done, .arg = arg};
    g->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    snprintf(g->id, sizeof(g->id), "%s", row->id);
    snprintf(g->place, sizeof(g->place), "%s", row->place);
    live_ref(l);
    loop_work(l->service->loop, keep_job, sqlite_kept, g);
}

/* Links the base copy to the id of the fork's grant. */
static int sqlite_follow(struct live *l, const char *of, const char *id, const char *place,
                         struct err *err) {
    char from[PATH_SIZE], to[PATH_SIZE];
    sqlite_path_of(l->service, of, from);
    sqlite_path_of(l->service, id, to);
    if (link(from, to) < 0 && errno != ENOENT)
        return err_sys(err, "cannot link the saved copy of a database for a fork");
    return baseline_begin(l->service, l->row.id, place, false, err);
}

/* Deletes base copies that no grant of a live machine refers to. */
void sqlite_look(struct service *s) {
    char path[PATH_SIZE];
    struct dirent *entry;
    if (!s->grants->copies_unswept || !strays_may_sweep(s))
        return;
    s->grants->copies_unswept = false;
    sqlite_path_of(s, "", path);
    DIR *dir DEFER(dir_close) = opendir(path);
    while (dir && (entry = readdir(dir))) {
        if (!id_valid(entry->d_name, strlen(entry->d_name), 'g') ||
            store_grant_lives(s->store, entry->d_name))
            continue;
        if (unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            log_line(LOG_WARN, "service", "remove a copy of a database: %s", entry->d_name);
    }
}

/* ---- the request, and revoking the grant ---- */

static int sqlite_read(struct service *s, const char *owner, const struct grant_request *r,
                       struct grant_row *row, struct err *err) {
    const char *name = strrchr(r->what, '/');
    char at[PLAN_PATH_SIZE];
    struct grant_request placed = *r;
    snprintf(at, sizeof(at), "/home/user/%s", name && name[1] ? name + 1 : "database");
    if (!r->at)
        placed.at = at;
    return grant_file_read(s, owner, &placed, row, err);
}

/* Deletes the database in the machine, and the log that SQLite may have created beside it. */
struct untaking {
    struct live *live;
    char log[PLAN_PATH_SIZE + 8];
    service_done_fn *done;
    void *arg;
};

static void log_removed(void *arg, const struct err *err) {
    struct untaking *u = arg;
    u->done(u->arg, err);
    live_unref(u->live);
    free(u);
}

static void db_removed(void *arg, const struct err *err) {
    struct untaking *u = arg;
    if (err)
        log_removed(u, err);
    else
        handover_remove(u->live, u->log, log_removed, u);
}

static void sqlite_take(struct live *l, const struct grant_row *row, service_done_fn *done,
                        void *arg) {
    struct untaking *u = xnew(struct untaking);
    *u = (struct untaking){.live = l, .done = done, .arg = arg};
    snprintf(u->log, sizeof(u->log), "%s-wal", row->place);
    live_ref(l);
    handover_remove(l, row->place, db_removed, u);
}

const struct grant_kind grant_sqlite = {.name = "sqlite",
                                        .copies = true,
                                        .delivered = true,
                                        .inherited = true,
                                        .read = sqlite_read,
                                        .give = sqlite_give,
                                        .take = sqlite_take,
                                        .follow = sqlite_follow};

/* ---- comparing the machine's database with the base copy ---- */

enum { BEFORE, AFTER, AFTER_LOG, IMAGES, FROZEN = IMAGES, FILES };

struct comparing {
    struct service *service;
    struct comparing *next, **link; /* links of the service's list of comparisons */
    char owner[STORE_NAME_SIZE];
    struct grant_row row;
    int fds[FILES]; /* FROZEN: receives the machine's database as one file; or -1 */
    service_net_fn *done;
    void *arg;
};

static void comparing_end(struct comparing *c, const char *json, const struct err *err) {
    if (c->next)
        c->next->link = c->link;
    *c->link = c->next;
    c->done(c->arg, json, err);
    for (int i = 0; i < FILES; i++)
        close_fd(&c->fds[i]);
    grant_row_done(&c->row);
    free(c);
}

void grant_put_head(struct jot *j, const struct grant_row *row) {
    jot_object(j, NULL);
    jot_string(j, "machine", row->machine);
    jot_string(j, "grant", row->id);
    jot_string(j, "kind", row->kind);
    jot_string(j, "what", row->what);
    jot_string(j, "at", row->place);
}

static void compared(void *arg, const struct child_end *end) {
    struct comparing *c = arg;
    struct buf text DEFER(buf_done) = BUF(8 * DIFF_MAX_BYTES);
    struct jot j = JOT(&text);
    struct err err;
    if (end->status != 0) {
        if (end->late)
            err_set(&err, ERR_TIMEOUT, "the comparison of database '%s' timed out", c->row.place);
        else
            err_set(&err, ERR_INVALID, "database '%s': %.*s", c->row.place,
                    (int)strcspn(end->said, "\n"),
                    *end->said ? end->said : "carrel-sqlite ended without a result");
        comparing_end(c, NULL, &err);
        return;
    }
    grant_put_head(&j, &c->row);
    jot_bool(&j, "same", !end->out_bytes);
    jot_bytes(&j, "diff", end->out, end->out_bytes);
    jot_bool(&j, "cut", end->cut);
    jot_end(&j, '}');
    if (j.failed)
        err_set(&err, ERR_LIMIT, "the changes in the database are too large to show");
    comparing_end(c, j.failed ? NULL : text.data, j.failed ? &err : NULL);
}

static void compare(struct comparing *c) {
    char path[PLACE_SIZE + 32];
    bool freezes = c->fds[FROZEN] >= 0;
    const char *const argv[] = {"carrel-sqlite", freezes ? "freeze" : "diff", NULL};
    struct err err;
    snprintf(path, sizeof(path), "%s/carrel-sqlite", c->service->place->libexec);
    for (int i = 0; i < IMAGES; i++)
        lseek(c->fds[i], 0, SEEK_SET);
    const struct child_order order = {.path = path,
                                      .argv = argv,
                                      .input = "",
                                      .fds = c->fds,
                                      .fd_count = freezes ? FILES : IMAGES,
                                      .out_max = DIFF_MAX_BYTES,
                                      .said_max = SAID_MAX,
                                      .limit_ms = LIMIT_MS};
    if (!child_start(c->service->loop, &order, compared, c, &err))
        comparing_end(c, NULL, &err);
}

static void fetched(void *arg, const struct err *err) {
    struct comparing *c = arg;
    if (err)
        comparing_end(c, NULL, err);
    else
        compare(c);
}

static int above(int low, struct err *err) {
    int fd = fcntl(low, F_DUPFD_CLOEXEC, HIGH_FD);
    return fd < 0 ? err_sys(err, "cannot open a file for the comparison of a database") : fd;
}

/* Creates a temporary file without a name: the kernel deletes it when it is closed. */
static int open_nameless(const struct service *s, struct err *err) {
    char path[PATH_SIZE];
    sqlite_path_of(s, ".new-XXXXXX", path);
    int low DEFER_CLOSE = mkostemp(path, O_CLOEXEC);
    if (low < 0)
        return err_sys(err, "cannot create a temporary file for a database");
    unlink(path);
    return above(low, err);
}

int sqlite_base(const struct service *s, const struct grant_row *row, struct err *err) {
    char path[PATH_SIZE];
    sqlite_path_of(s, row->id, path);
    int low DEFER_CLOSE = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (low < 0)
        return err_set(err, ERR_GONE, "the saved copy of database '%s' no longer exists",
                       row->what);
    return above(low, err);
}

static int open_images(struct comparing *c, int frozen, struct err *err) {
    if ((c->fds[BEFORE] = sqlite_base(c->service, &c->row, err)) < 0)
        return -1;
    for (int i = AFTER; i < IMAGES; i++)
        if ((c->fds[i] = open_nameless(c->service, err)) < 0)
            return -1;
    return frozen < 0 || (c->fds[FROZEN] = above(frozen, err)) >= 0 ? 0 : -1;
}

/* ---- requests ---- */

void grant_row_copy(const struct grant_row *from, struct grant_row *to) {
    *to = *from;
    to->what = xstrdup(from->what);
    to->place = xstrdup(from->place);
    to->detail = NULL;
}

/* Limits comparisons per owner and machine, so that a slow machine delays only itself. */
static int has_room(const struct service *s, const struct caller *who, const char *machine,
                    struct err *err) {
    int of_owner = 0, of_machine = 0;
    for (const struct comparing *c = s->grants->comparisons; c; c = c->next) {
        of_owner += strcmp(c->owner, who->owner) == 0;
        of_machine += strcmp(c->row.machine, machine) == 0;
    }
    if (of_owner < AT_ONCE && of_machine < AT_ONCE_OF_MACHINE)
        return 0;
    if (of_machine < AT_ONCE_OF_MACHINE)
        err_set(err, ERR_BUSY, "%d of your databases are being compared, which is the limit",
                AT_ONCE);
    else
        err_set(err, ERR_BUSY,
                "%d databases of machine '%s' are being compared, which is the limit",
                AT_ONCE_OF_MACHINE, machine);
    return err_remedy(err, "try again when one of the comparisons is done");
}

static struct comparing *comparing_new(struct service *s, const char *owner,
                                       const struct grant_row *row) {
    struct comparing *c = xnew(struct comparing);
    *c = (struct comparing){
        .service = s, .next = s->grants->comparisons, .link = &s->grants->comparisons};
    snprintf(c->owner, sizeof(c->owner), "%s", owner);
    grant_row_copy(row, &c->row);
    for (int i = 0; i < FILES; i++)
        c->fds[i] = -1;
    if (c->next)
        c->next->link = &c->next;
    s->grants->comparisons = c;
    return c;
}

void sqlite_freeze(struct service *s, const struct caller *who, const struct grant_row *row,
                   int frozen, service_net_fn *done, void *arg) {
    struct err err;
    if (has_room(s, who, row->machine, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct comparing *c = comparing_new(s, who->owner, row);
    c->done = done;
    c->arg = arg;
    if (open_images(c, frozen, &err) < 0)
        comparing_end(c, NULL, &err);
    else
        sqlite_fetch(s, who, &c->row, &c->fds[AFTER], fetched, c);
}

void service_grant_diff(struct service *s, const struct caller *who, const char *machine,
                        const char *id, service_net_fn *done, void *arg) {
    struct grant_row row DEFER(grant_row_done) = {0};
    struct err err;
    struct live *l =
        allow(who, SCOPE_READ, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l || store_grant_get(s->store, l->row.id, id, &row, &err) < 0) {
        done(arg, NULL, &err);
    } else if (strcmp(row.kind, grant_sqlite.name) == 0) {
        sqlite_freeze(s, who, &row, -1, done, arg);
    } else if (strcmp(row.kind, grant_postgres.name) == 0) {
        postgres_tell(l, &row, done, arg);
    } else {
        err_set(&err, ERR_INVALID, "grant '%s' is not a database but %s '%.100s'", row.id, row.kind,
                row.what);
        done(arg, NULL, &err);
    }
}
