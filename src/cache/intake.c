/*
 * Filling the cache. An answer is copied into a temporary file while the machine gets it. Complete
 * answers wait in one queue, so that a package list is verified before the packages that follow it.
 *
 * An answer goes through up to three stages: a job looks at it (checks a package, or whether a
 * document is new), carrel-packages reads a new document, and a job gives the index its name.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/fs_room.h"
#include "base/log.h"
#include "cache/index.h"
#include "cache/inner.h"
#include "cache/object.h"
#include "io/child.h"

enum {
    INTAKES_MAX = 64,   /* answers that are copied or wait, per owner */
    PART = 4,           /* packages and temporary files use at most max_bytes / PART each */
    ROOM = 20,          /* stores nothing if less than 1/ROOM of the disk is free */
    WORKER_MS = 120000, /* timeout of carrel-packages */
    DOCUMENT_MAX = 64 << 20,
    TEMPORARY_SIZE = 32,
};

struct cache_intake {
    struct cache *cache;
    struct cache_intake *next; /* in the queue */
    struct cache_subject subject;
    char temporary[TEMPORARY_SIZE], index[TEMPORARY_SIZE]; /* names of the two temporary files */
    int fd, index_fd;
    uint64_t bytes;
    bool failed;                  /* too large, or it could not be written */
    bool is_known;                /* nothing is left to do */
    char source[CACHE_PATH_SIZE]; /* the document that the index is named after */
    char digest[DIGEST_SIZE];
    char root[CACHE_PATH_SIZE];
};

/* ---- temporary files ---- */

static int temporary_open(struct cache *c, char ret[TEMPORARY_SIZE]) {
    snprintf(ret, TEMPORARY_SIZE, "t-%" PRIu64, ++c->named);
    return openat(c->dir, ret, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
}

static void intake_free(struct cache_intake *i) {
    struct cache *c = i->cache;
    if (i->fd >= 0)
        unlinkat(c->dir, i->temporary, 0);
    if (i->index_fd >= 0)
        unlinkat(c->dir, i->index, 0);
    close_fd(&i->fd);
    close_fd(&i->index_fd);
    c->intakes--;
    c->pending_bytes -= i->bytes;
    cache_unref(c);
    free(i);
}

struct cache_intake *cache_intake_new(struct cache *c, const struct cache_subject *s) {
    char name[TEMPORARY_SIZE];
    if (!c || c->closed)
        return NULL;
    const struct fs_space space = fs_space(c->dir);
    if (c->intakes >= INTAKES_MAX || space.free_bytes < space.total_bytes / ROOM)
        return NULL;
    int fd = temporary_open(c, name);
    if (fd < 0)
        return NULL;
    struct cache_intake *i = xnew(struct cache_intake);
    i->cache = c;
    i->subject = *s;
    i->fd = fd;
    i->index_fd = -1;
    memcpy(i->temporary, name, sizeof(name));
    c->intakes++;
    c->refs++;
    return i;
}

bool cache_intake_unpacks(const struct cache_intake *i) {
    return i->subject.kind == CACHE_DOCUMENT;
}

static uint64_t intake_max(const struct cache_intake *i) {
    uint64_t part = i->cache->max_bytes / PART;
    return i->subject.kind == CACHE_PACKAGE || part < DOCUMENT_MAX ? part : DOCUMENT_MAX;
}

void cache_intake_add(struct cache_intake *i, const void *bytes, size_t n) {
    struct cache *c = i->cache;
    if (i->failed)
        return;
    i->failed = i->bytes + n > intake_max(i) || c->pending_bytes + n > c->max_bytes / PART ||
                pwrite(i->fd, bytes, n, (off_t)(OBJECT_HEAD + i->bytes)) != (ssize_t)n;
    if (i->failed) {
        (void)!ftruncate(i->fd, 0);
        c->pending_bytes -= i->bytes;
        i->bytes = 0;
        return;
    }
    i->bytes += n;
    c->pending_bytes += n;
}

void cache_intake_drop(struct cache_intake *i) {
    if (i)
        intake_free(i);
}

/* ---- the queue ---- */

static void queue_step(struct cache *c);

/* Ends the first intake of the queue and starts the next one. */
static void intake_over(struct cache_intake *i) {
    struct cache *c = i->cache;
    c->queue = i->next;
    if (!c->queue)
        c->last = &c->queue;
    c->refs++;
    intake_free(i);
    if (!c->closed)
        queue_step(c);
    cache_unref(c);
}

/* A job that is under way still uses the first intake and ends it later. */
void intakes_drop_queue(struct cache *c) {
    struct cache_intake *next = c->queue;
    if (c->working) {
        next = c->queue->next;
        c->queue->next = NULL;
    } else {
        c->queue = NULL;
    }
    for (struct cache_intake *i; (i = next);) {
        next = i->next;
        intake_free(i);
    }
}

/* Runs a job for the first intake of the queue. */
static void queue_work(struct cache_intake *i, loop_fn *run, loop_fn *done) {
    i->cache->working = true;
    loop_work(i->cache->loop, run, done, i);
}

/* ---- third stage: the index of a document ---- */

static void index_run(void *arg) {
    struct cache_intake *i = arg;
    char name[INDEX_NAME_SIZE];
    int dir = i->cache->dir;
    index_name(i->subject.kind == CACHE_RELEASE ? 'r' : 'l', i->subject.origin, i->source, name);
    if (fsync(i->index_fd) == 0 && renameat(dir, i->index, dir, name) == 0) {
        (void)fsync(dir);
        close_fd(&i->index_fd);
        object_trim(dir, i->cache->max_bytes - i->cache->max_bytes / PART);
    }
}

static void index_done(void *arg) {
    struct cache_intake *i = arg;
    i->cache->working = false;
    intake_over(i);
}

/* ---- second stage: carrel-packages ---- */

static void worker_ended(void *arg, const struct child_end *end) {
    struct cache_intake *i = arg;
    struct cache *c = i->cache;
    c->child = NULL;
    if (end->status == 0) {
        queue_work(i, index_run, index_done);
        return;
    }
    const char *why = end->late ? "timed out" : *end->said ? end->said : "carrel-packages failed";
    log_line(LOG_WARN, "cache", "verify package document '%s%s': %.*s", i->subject.origin,
             i->subject.path, (int)strcspn(why, "\n"), why);
    intake_over(i);
}

static void worker_start(struct cache_intake *i) {
    struct cache *c = i->cache;
    const char *const words[][5] = {
        [CACHE_RELEASE] = {"carrel-packages", "release", c->keyring, i->root, NULL},
        [CACHE_LIST] = {"carrel-packages", "list", i->root, NULL},
        [CACHE_DOCUMENT] = {"carrel-packages", "npm", i->subject.origin, i->subject.path, NULL},
    };
    struct err err;
    i->index_fd = temporary_open(c, i->index);
    char head[INDEX_HEAD + 1];
    snprintf(head, sizeof(head), "# %s\n", i->digest);
    if (i->index_fd < 0 || write_all(i->index_fd, head, INDEX_HEAD) < 0 ||
        lseek(i->fd, OBJECT_HEAD, SEEK_SET) < 0) {
        intake_over(i);
        return;
    }
    const int fds[] = {i->fd, i->index_fd};
    const struct child_order o = {.path = c->program,
                                  .argv = words[i->subject.kind],
                                  .input = "",
                                  .fds = fds,
                                  .fd_count = 2,
                                  .out_max = 1024,
                                  .said_max = 1024,
                                  .limit_ms = WORKER_MS};
    c->child = child_start(c->loop, &o, worker_ended, i, &err);
    if (c->child)
        return;
    log_line(LOG_WARN, "cache", "verify a package document: %s", err.text);
    intake_over(i);
}

/* ---- first stage: what is it? ---- */

static void keep_package(struct cache_intake *i) {
    const struct cache_subject *s = &i->subject;
    int dir = i->cache->dir;
    char found[DIGEST_SIZE];
    if (!index_find(dir, 'l', s->origin, s->path, i->digest) ||
        digest_of_file(i->fd, OBJECT_HEAD, i->digest, found) < 0 || strcmp(found, i->digest) != 0)
        return;
    if (object_keep(dir, i->temporary, i->fd, s, i->digest) < 0)
        return;
    close_fd(&i->fd);
    object_trim(dir, i->cache->max_bytes - i->cache->max_bytes / PART);
}

/* A package list counts only if a signed document names its digest. Sets the name of the list. */
static bool list_is_signed(struct cache_intake *i) {
    const struct cache_subject *s = &i->subject;
    char above[CACHE_PATH_SIZE], wanted[DIGEST_SIZE];
    int dir = i->cache->dir;
    if (!cache_root_of(s->path, i->root))
        return false;
    if (cache_by_hash(s->path, above)) {
        if (!index_find_by_digest(dir, 'r', s->origin, above, i->digest, i->source))
            return false;
    } else {
        snprintf(i->source, sizeof(i->source), "%s", s->path);
        if (!index_find(dir, 'r', s->origin, s->path, wanted) || strcmp(wanted, i->digest) != 0)
            return false;
    }
    /* Packages, Packages.gz and Packages.xz are one list. */
    char *dot = strrchr(i->source, '.');
    if (dot && !strchr(dot, '/'))
        *dot = '\0';
    return true;
}

static void look_at_document(struct cache_intake *i) {
    char name[INDEX_NAME_SIZE];
    const struct cache_subject *s = &i->subject;
    i->is_known = true;
    if (digest_of_file(i->fd, OBJECT_HEAD, "sha256:", i->digest) < 0)
        return;
    snprintf(i->source, sizeof(i->source), "%s", s->path);
    if (s->kind == CACHE_LIST && !list_is_signed(i))
        return;
    if (s->kind == CACHE_RELEASE)
        snprintf(i->root, sizeof(i->root), "%.*s", (int)(strrchr(s->path, '/') + 1 - s->path),
                 s->path);
    index_name(s->kind == CACHE_RELEASE ? 'r' : 'l', s->origin, i->source, name);
    i->is_known = index_is_of(i->cache->dir, name, i->digest);
}

static void intake_run(void *arg) {
    struct cache_intake *i = arg;
    if (i->subject.kind == CACHE_PACKAGE)
        keep_package(i);
    else
        look_at_document(i);
}

static void intake_looked(void *arg) {
    struct cache_intake *i = arg;
    i->cache->working = false;
    if (i->subject.kind == CACHE_PACKAGE || i->is_known || i->cache->closed)
        intake_over(i);
    else
        worker_start(i);
}

static void queue_step(struct cache *c) {
    if (c->queue)
        queue_work(c->queue, intake_run, intake_looked);
}

void cache_intake_end(struct cache_intake *i) {
    struct cache *c = i->cache;
    if (i->failed || c->closed) {
        intake_free(i);
        return;
    }
    bool first = !c->queue;
    *c->last = i;
    c->last = &i->next;
    if (first)
        queue_step(c);
}
