/*
 * Uploads of the files of a build: archives that are stored until its steps copy them. The loop
 * only collects bytes. A worker thread writes them, because a full or slow disk makes writes wait.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "service/images/build_inner.h"

enum {
    UPLOAD_WAITING_MAX = 1 << 20, /* bytes of an upload that wait to be written */
    UPLOAD_FULL = 256 << 10,      /* with so many, the client is not read */
};

/* A write in progress. It has a descriptor of its own: its upload may end meanwhile. */
struct upload_write {
    struct build_upload *upload; /* NULL: it was cancelled */
    int fd;
    struct buf bytes;
    int result;
};

struct build_upload {
    struct service *service;
    struct build_upload_events events;
    char build[ID_SIZE];
    size_t number;
    uint64_t room;      /* what the disk quotas leave for files of builds; 0: no quota */
    struct buf waiting; /* bytes after those of `write` */
    struct upload_write *write;
    bool finished; /* no bytes follow */
};

/* The archive, unless its build has ended meanwhile. */
static struct build_archive *upload_archive(const struct build_upload *u, struct build **ret,
                                            struct err *err) {
    struct build *b = build_live(u->service, u->build);
    if (b && b->row.state == BUILD_UPLOADING && !b->cancelled && !b->has_failed) {
        *ret = b;
        return &b->archives[u->number];
    }
    err_set(err, ERR_GONE, "build '%s' does not wait for files", u->build);
    return NULL;
}

/* Finds what the disk quotas leave. Nothing stays reserved: the build itself needs the space. */
static int upload_find_room(struct service *s, const struct caller *who, uint64_t *ret,
                            struct err *err) {
    struct disk_hold hold = {.who = who};
    int r = quota_hold(s, &hold, err);
    quota_release(s, &hold);
    *ret = hold.bytes;
    return r;
}

static void upload_free(struct build_upload *u) {
    buf_done(&u->waiting);
    free(u);
}

/* ---- start ---- */

static struct build_archive *upload_find(struct build_upload *u, struct err *err) {
    struct build *live = build_live(u->service, u->build), *b;
    if (live && u->number >= live->archive_count) {
        err_set(err, ERR_NOT_FOUND, "build '%s' has no archive %zu", u->build, u->number);
        return NULL;
    }
    struct build_archive *a = upload_archive(u, &b, err);
    if (a && (a->whole || a->coming)) {
        err_set(err, ERR_EXISTS, "archive %zu of build '%s' has been sent", u->number, u->build);
        return NULL;
    }
    return a;
}

struct build_upload *service_build_upload(struct service *s, const struct caller *who,
                                          const char *id, uint64_t number,
                                          const struct build_upload_events *events,
                                          struct err *err) {
    struct build_row row DEFER(build_row_done) = {.state = 0};
    uint64_t room;
    if (allow(who, SCOPE_RUN, err) < 0 || build_find(s, who, id, &row, err) < 0 ||
        upload_find_room(s, who, &room, err) < 0)
        return NULL;
    struct build_upload *u = xnew(struct build_upload);
    *u = (struct build_upload){.service = s,
                               .events = *events,
                               .number = (size_t)number,
                               .room = room,
                               .waiting = BUF(UPLOAD_WAITING_MAX)};
    memcpy(u->build, row.id, sizeof(u->build));
    struct build_archive *a = upload_find(u, err);
    if (a && (a->fd = open(s->place->home, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600)) < 0) {
        err_sys(err, "cannot create a file for the archive of build '%s'", row.id);
        a = NULL;
    }
    if (!a) {
        upload_free(u);
        return NULL;
    }
    a->coming = true;
    return u;
}

int service_build_spool(struct service *s, const struct caller *who, struct err *err) {
    if (allow(who, SCOPE_RUN, err) < 0 || store_admit(s->store, STORE_USES, err) < 0)
        return -1;
    int fd = open(s->place->home, O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
    return fd < 0 ? err_sys(err, "cannot create a file for the files of a build") : fd;
}

/* ---- end ---- */

void build_upload_cancel(struct build_upload *u) {
    struct build *b;
    struct err ignored;
    struct build_archive *a = upload_archive(u, &b, &ignored);
    if (a) {
        a->coming = false;
        a->size = 0;
        close_fd(&a->fd);
    }
    if (u->write)
        u->write->upload = NULL;
    upload_free(u);
}

static void upload_fail(struct build_upload *u, const struct err *err) {
    struct build_upload_events events = u->events;
    build_upload_cancel(u);
    events.ended(events.arg, err);
}

/* All bytes are on the disk. The last archive starts the build. */
static void upload_end(struct build_upload *u, struct build *b, struct build_archive *a) {
    struct build_upload_events events = u->events;
    bool all = true;
    a->coming = false;
    a->whole = true;
    upload_free(u);
    for (size_t i = 0; i < b->archive_count; i++)
        all &= b->archives[i].whole;
    if (all)
        build_uploaded(b);
    events.ended(events.arg, NULL);
}

/* ---- writing ---- */

static void upload_go_on(struct build_upload *u);

/* Runs on a worker thread. */
static void upload_write_run(void *arg) {
    struct upload_write *w = arg;
    w->result = write_all(w->fd, w->bytes.data, w->bytes.len);
}

static void upload_write_free(struct upload_write *w) {
    close_fd(&w->fd);
    buf_done(&w->bytes);
    free(w);
}

static void upload_write_done(void *arg) {
    struct upload_write *w = arg;
    struct build_upload *u = w->upload;
    struct err err;
    int result = w->result;
    upload_write_free(w);
    if (!u)
        return;
    u->write = NULL;
    if (result < 0) {
        err_num(&err, result, "cannot store the files of build '%s'", u->build);
        upload_fail(u, &err);
        return;
    }
    upload_go_on(u);
}

static int upload_write_begin(struct build_upload *u, const struct build_archive *a,
                              struct err *err) {
    struct upload_write *w = xnew(struct upload_write);
    *w = (struct upload_write){.upload = u, .fd = fcntl(a->fd, F_DUPFD_CLOEXEC, 3)};
    if (w->fd < 0) {
        err_sys(err, "cannot store the files of build '%s'", u->build);
        free(w);
        return -1;
    }
    w->bytes = u->waiting;
    u->waiting = BUF(UPLOAD_WAITING_MAX);
    u->write = w;
    loop_work(u->service->loop, upload_write_run, upload_write_done, w);
    return 0;
}

/* No write is in progress: begins the next one, or ends the upload. */
static void upload_go_on(struct build_upload *u) {
    struct build *b;
    struct err err;
    struct build_archive *a = upload_archive(u, &b, &err);
    if (!a || (u->waiting.len && upload_write_begin(u, a, &err) < 0))
        upload_fail(u, &err);
    else if (u->finished && !u->write)
        upload_end(u, b, a);
    else if (!u->finished)
        u->events.room(u->events.arg);
}

/* ---- bytes ---- */

static uint64_t uploaded_by(const struct service *s, const char *owner) {
    uint64_t sum = 0;
    for (const struct build *b = s->images->builds; b; b = b->next)
        for (size_t i = 0; strcmp(b->who.owner, owner) == 0 && i < b->archive_count; i++)
            sum += b->archives[i].size;
    return sum;
}

/* sum: bytes of files of all builds of the owner, with the `n` bytes that have just come */
static int upload_check_room(const struct build_upload *u, uint64_t sum, size_t n,
                             struct err *err) {
    struct store_room room;
    if (sum > BUILD_FILES_MAX)
        return err_set(err, ERR_LIMIT,
                       "the files of all builds of the owner are larger than %llu GiB",
                       BUILD_FILES_MAX >> 30);
    if (u->room && sum > u->room) {
        err_set(err, ERR_LIMIT, "they are larger than the rest of the disk quota");
        return err_remedy(err, "delete machines or images of the same owner");
    }
    if (store_admit(u->service->store, STORE_USES, err) < 0)
        return -1;
    store_room(u->service->store, &room);
    if (room.free_bytes > n)
        return 0;
    err_set(err, ERR_LIMIT, "no disk space left in CARREL_HOME");
    return err_remedy(err, "free space, for example with: carrel image prune");
}

int build_upload_add(struct build_upload *u, const void *bytes, size_t n, struct err *err) {
    struct build *b;
    struct build_archive *a = upload_archive(u, &b, err);
    if (!a)
        return -1;
    if (upload_check_room(u, uploaded_by(u->service, b->who.owner) + n, n, err) < 0)
        return err_wrap(err, "cannot store the files of build '%s'", u->build);
    if (!buf_add(&u->waiting, bytes, n))
        return err_set(err, ERR_LIMIT,
                       "the files of build '%s' arrive faster than they can be stored", u->build);
    a->size += n;
    loop_timer_start(b->timer, BUILD_UPLOAD_MS, 0);
    if (!u->write && upload_write_begin(u, a, err) < 0)
        return -1;
    return u->waiting.len >= UPLOAD_FULL;
}

void build_upload_finish(struct build_upload *u) {
    u->finished = true;
    if (!u->write)
        upload_go_on(u);
}
