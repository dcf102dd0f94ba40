/* Private declarations of src/cache. Jobs use the descriptor `dir`, and nothing else of the cache.
 */
#pragma once

#include "cache/cache.h"
#include "cache/digest.h"

struct child;
struct feed;

struct cache {
    struct loop *loop;
    int dir;
    char *program, *keyring;
    uint64_t max_bytes;
    unsigned refs;                      /* one of the owner, and one for each job */
    bool closed;                        /* cache_free() was called */
    uint64_t named;                     /* number of temporary files so far */
    struct cache_intake *queue, **last; /* complete answers, verified one after the other */
    bool working;                       /* a job for the first of them is under way */
    struct child *child;                /* verifies the first of them; NULL: none */
    size_t intakes;
    uint64_t pending_bytes; /* of temporary files */
    struct feed *feeds;
    struct wish_queue *wishes;
};

void cache_unref(struct cache *c);

/* ---- serve.c ---- */

void feed_free(struct feed *f);
struct wish_queue *wish_queue_ref(struct wish_queue *q);

/* ---- intake.c ---- */

void intakes_drop_queue(struct cache *c);
