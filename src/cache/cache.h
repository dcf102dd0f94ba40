/*
 * The package cache of one owner: packages that machines of the owner downloaded, to be delivered
 * again without their server.
 *
 * A package is kept only if its bytes have the digest that a verified document names for its server
 * and path: a package list of apt that a trusted key signed, or the document of an npm registry
 * that came over verified TLS. Documents are never delivered from here. The caller decides first
 * whether a request is allowed at all. Belongs to the loop's thread; slow work is done by jobs and
 * by the confined worker carrel-packages.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "cache/subject.h"
#include "io/loop.h"

struct cache;
struct cache_intake;
struct cache_wish;
struct wish_queue;

struct cache_options {
    struct loop *loop;
    struct wish_queue *wishes; /* the one of all caches of the loop */
    const char *dir;           /* directory of the cache; it is created, but not those above it */
    const char *program;       /* path of carrel-packages */
    const char *keyring;       /* keys that sign package lists */
    uint64_t max_bytes;        /* limit of all files of the cache, temporary ones included */
};

struct cache *cache_new(const struct cache_options *o, struct err *err);
/* Ends the cache; files that were not complete are deleted. NULL is allowed. */
void cache_free(struct cache *c);

/* ---- filling (intake.c) ---- */

/* Begins to copy the answer about this subject; NULL: the cache is busy. c may be NULL. */
struct cache_intake *cache_intake_new(struct cache *c, const struct cache_subject *s);
/* Whether the answer may have the coding gzip. */
bool cache_intake_unpacks(const struct cache_intake *i);
void cache_intake_add(struct cache_intake *i, const void *bytes, size_t n);
/* The answer is complete: verifies it, and keeps what is verified. Takes ownership. */
void cache_intake_end(struct cache_intake *i);
void cache_intake_drop(struct cache_intake *i); /* NULL is allowed, here and below */

/* ---- delivering (serve.c) ---- */

/*
 * Requests of all caches for packages. At most two are worked on at the same time, in their order:
 * each reads a whole file, and other parts of the daemon need the threads of the loop too.
 */
struct wish_queue *wish_queue_new(void);
/* Each cache keeps it as long as it needs it. NULL is allowed. */
void wish_queue_unref(struct wish_queue *q);

/*
 * fd: a socket that delivers an HTTP answer with the package and is then closed; it belongs to the
 * callee. -1: the package is not in the cache, or the kept file was damaged and is deleted. The
 * socket is closed early, so that the answer is cut off, if the file is damaged meanwhile.
 */
typedef void cache_fn(void *arg, int fd);
/* Looks for a package. NULL: it is not in the cache, and fn is not called. c may be NULL. */
struct cache_wish *cache_ask(struct cache *c, const struct cache_subject *s, cache_fn *fn,
                             void *arg);
/* fn is not called any more. Work that has not begun never begins; the rest ends soon. */
void cache_wish_cancel(struct cache_wish *w);

/* ---- looking (cache.c) ---- */

struct cache_entry {
    char *url;
    char digest[7 + 128 + 1];
    uint64_t bytes;
    int64_t used_ms; /* when the package was last stored or delivered, ms since 1970 */
};

struct cache_listing {
    struct cache_entry *v; /* used last first */
    size_t count;
    uint64_t bytes, max_bytes; /* of all files of the cache */
};

typedef void cache_list_fn(void *arg, const struct cache_listing *l);
void cache_list(struct cache *c, cache_list_fn *fn, void *arg);
typedef void cache_clear_fn(void *arg, uint64_t count, uint64_t bytes);
/* Deletes all packages, and the digests that are known. */
void cache_clear(struct cache *c, cache_clear_fn *fn, void *arg);
