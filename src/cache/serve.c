/*
 * Delivering from the cache. A job checks the whole file before the first byte is delivered. Then a
 * feed writes the answer to one end of a socket pair, and computes the digest once more: the last
 * piece is written only if the digest is right, so a file that is damaged meanwhile is cut off.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/log.h"
#include "cache/index.h"
#include "cache/inner.h"
#include "cache/object.h"

enum { FEED_PIECE = 64 << 10 };

/* ---- a feed ---- */

struct feed {
    struct cache *cache;
    struct feed *next, **at;
    struct cache_subject subject;
    int fd, socket;
    struct loop_watch *watch;
    int64_t offset, end;
    EVP_MD_CTX *sum;
    char digest[DIGEST_SIZE];
    char piece[FEED_PIECE];
    size_t from, to; /* the part of `piece` that is not written yet */
};

void feed_free(struct feed *f) {
    *f->at = f->next;
    if (f->next)
        f->next->at = f->at;
    loop_watch_free(f->watch);
    EVP_MD_CTX_free(f->sum);
    close_fd(&f->fd);
    close_fd(&f->socket);
    free(f);
}

static void object_discard(struct cache *c, const struct cache_subject *s) {
    char name[OBJECT_NAME_SIZE];
    object_name(s, name);
    unlinkat(c->dir, name, 0);
    log_line(LOG_WARN, "cache", "deliver package '%s%s': the kept file is damaged and was deleted",
             s->origin, s->path);
}

/* Reads the next piece. False: the file is damaged, or cannot be read. */
static bool feed_read(struct feed *f) {
    char found[DIGEST_SIZE];
    int64_t left = f->end - f->offset;
    ssize_t n = pread(f->fd, f->piece, left < FEED_PIECE ? (size_t)left : FEED_PIECE, f->offset);
    if (n <= 0)
        return false;
    EVP_DigestUpdate(f->sum, f->piece, (size_t)n);
    f->offset += n;
    f->from = 0;
    f->to = (size_t)n;
    if (f->offset < f->end)
        return true;
    digest_end(TAKE(f->sum), found);
    return strcmp(found, f->digest) == 0;
}

static void feed_go(void *arg, unsigned events) {
    struct feed *f = arg;
    if (events & LOOP_ERROR) {
        feed_free(f);
        return;
    }
    while (f->from < f->to || f->offset < f->end) {
        if (f->from == f->to && !feed_read(f)) {
            object_discard(f->cache, &f->subject);
            break;
        }
        ssize_t n = send(f->socket, f->piece + f->from, f->to - f->from, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            break;
        f->from += (size_t)n;
    }
    feed_free(f);
}

/* Returns the end of the socket pair that the answer comes from, or -1. */
static int feed_start(struct cache *c, const struct cache_subject *s, const char *digest, int fd) {
    struct stat st;
    int ends[2];
    if (fstat(fd, &st) < 0 || st.st_size < OBJECT_HEAD ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) < 0) {
        close(fd);
        return -1;
    }
    struct feed *f = xnew(struct feed);
    f->cache = c;
    f->subject = *s;
    f->fd = fd;
    f->socket = ends[1];
    f->offset = OBJECT_HEAD;
    f->end = st.st_size;
    f->sum = digest_begin(digest);
    memcpy(f->digest, digest, DIGEST_SIZE);
    f->to = (size_t)snprintf(f->piece, sizeof(f->piece),
                             "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n"
                             "Content-Length: %" PRId64 "\r\nConnection: close\r\n\r\n",
                             f->end - f->offset);
    f->next = c->feeds;
    f->at = &c->feeds;
    if (f->next)
        f->next->at = &f->next;
    c->feeds = f;
    if (loop_watch_new(c->loop, f->socket, LOOP_WRITE, feed_go, f, &f->watch, NULL) < 0) {
        feed_free(f);
        close(ends[0]);
        return -1;
    }
    return ends[0];
}

/* ---- requests ---- */

enum { WISHES_WORKING = 2 };

struct cache_wish {
    struct cache *cache;
    struct cache_wish *next, **at; /* in the queue; at is NULL: it is worked on */
    struct cache_subject subject;
    char digest[DIGEST_SIZE];
    int fd;
    bool damaged;
    atomic_bool stop;
    cache_fn *fn; /* NULL: canceled */
    void *arg;
};

struct wish_queue {
    unsigned refs, working;
    struct cache_wish *first, **last;
};

struct wish_queue *wish_queue_new(void) {
    struct wish_queue *q = xnew(struct wish_queue);
    *q = (struct wish_queue){.refs = 1};
    q->last = &q->first;
    return q;
}

struct wish_queue *wish_queue_ref(struct wish_queue *q) {
    q->refs++;
    return q;
}

void wish_queue_unref(struct wish_queue *q) {
    if (q && --q->refs == 0)
        free(q);
}

static void wish_leave_queue(struct cache_wish *w) {
    *w->at = w->next;
    if (w->next)
        w->next->at = w->at;
    else
        w->cache->wishes->last = w->at;
    w->next = NULL;
    w->at = NULL;
}

static void wish_free(struct cache_wish *w) {
    close_fd(&w->fd);
    cache_unref(w->cache);
    free(w);
}

static void wish_run(void *arg) {
    struct cache_wish *w = arg;
    const struct cache_subject *s = &w->subject;
    if (w->stop || !index_find(w->cache->dir, 'l', s->origin, s->path, w->digest))
        return;
    w->fd = object_open(w->cache->dir, s, w->digest);
    bool whole = w->fd >= 0 && object_is_whole(w->fd, w->digest, &w->stop);
    w->damaged = w->fd >= 0 && !whole && !w->stop;
    if (whole)
        object_touch(w->fd);
    else
        close_fd(&w->fd);
}

static void wish_queue_go_on(struct wish_queue *q);

static void wish_done(void *arg) {
    struct cache_wish *w = arg;
    struct cache *c = w->cache;
    struct wish_queue *q = wish_queue_ref(c->wishes);
    q->working--;
    if (w->damaged)
        object_discard(c, &w->subject);
    if (w->fn && w->fd >= 0 && !c->closed)
        w->fn(w->arg, feed_start(c, &w->subject, w->digest, TAKE_FD(w->fd)));
    else if (w->fn)
        w->fn(w->arg, -1);
    wish_free(w);
    wish_queue_go_on(q);
    wish_queue_unref(q);
}

static void wish_queue_go_on(struct wish_queue *q) {
    while (q->first && q->working < WISHES_WORKING) {
        struct cache_wish *w = q->first;
        wish_leave_queue(w);
        w->stop = w->cache->closed;
        q->working++;
        loop_work(w->cache->loop, wish_run, wish_done, w);
    }
}

struct cache_wish *cache_ask(struct cache *c, const struct cache_subject *s, cache_fn *fn,
                             void *arg) {
    char name[OBJECT_NAME_SIZE];
    object_name(s, name);
    if (!c || c->closed || s->kind != CACHE_PACKAGE || faccessat(c->dir, name, F_OK, 0) < 0)
        return NULL;
    struct wish_queue *q = c->wishes;
    struct cache_wish *w = xnew(struct cache_wish);
    *w = (struct cache_wish){.cache = c, .subject = *s, .fd = -1, .fn = fn, .arg = arg};
    c->refs++;
    w->at = q->last;
    *q->last = w;
    q->last = &w->next;
    wish_queue_go_on(q);
    return w;
}

void cache_wish_cancel(struct cache_wish *w) {
    if (!w)
        return;
    if (w->at) {
        wish_leave_queue(w);
        wish_free(w);
        return;
    }
    w->fn = NULL;
    w->stop = true;
}
