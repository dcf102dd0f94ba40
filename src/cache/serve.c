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

/* ---- a request ---- */

struct cache_wish {
    struct cache *cache;
    struct cache_subject subject;
    char digest[DIGEST_SIZE];
    int fd;
    bool damaged;
    cache_fn *fn; /* NULL: canceled */
    void *arg;
};

static void wish_run(void *arg) {
    struct cache_wish *w = arg;
    const struct cache_subject *s = &w->subject;
    if (!index_find(w->cache->dir, 'l', s->origin, s->path, w->digest))
        return;
    w->fd = object_open(w->cache->dir, s, w->digest);
    w->damaged = w->fd >= 0 && !object_is_whole(w->fd, w->digest);
    if (w->damaged)
        close_fd(&w->fd);
    else if (w->fd >= 0)
        object_touch(w->fd);
}

static void wish_done(void *arg) {
    struct cache_wish *w = arg;
    struct cache *c = w->cache;
    if (w->damaged)
        object_discard(c, &w->subject);
    if (w->fn && w->fd >= 0 && !c->closed)
        w->fn(w->arg, feed_start(c, &w->subject, w->digest, TAKE_FD(w->fd)));
    else if (w->fn)
        w->fn(w->arg, -1);
    close_fd(&w->fd);
    cache_unref(c);
    free(w);
}

struct cache_wish *cache_ask(struct cache *c, const struct cache_subject *s, cache_fn *fn,
                             void *arg) {
    char name[OBJECT_NAME_SIZE];
    object_name(s, name);
    if (!c || c->closed || s->kind != CACHE_PACKAGE || faccessat(c->dir, name, F_OK, 0) < 0)
        return NULL;
    struct cache_wish *w = xnew(struct cache_wish);
    *w = (struct cache_wish){.cache = c, .subject = *s, .fd = -1, .fn = fn, .arg = arg};
    c->refs++;
    loop_work(c->loop, wish_run, wish_done, w);
    return w;
}

void cache_wish_cancel(struct cache_wish *w) {
    if (w)
        w->fn = NULL;
}
