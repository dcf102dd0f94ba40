#include "cache/cache.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/folder.h"
#include "cache/inner.h"
#include "cache/object.h"
#include "io/child.h"

struct cache *cache_new(const struct cache_options *o, struct err *err) {
    int r = folder_make(o->dir);
    int dir = r < 0 ? r : dir_open(AT_FDCWD, o->dir);
    if (dir < 0) {
        err_num(err, dir, "cannot open the package cache '%s'", o->dir);
        return NULL;
    }
    object_sweep(dir);
    struct cache *c = xnew(struct cache);
    *c = (struct cache){.loop = o->loop,
                        .dir = dir,
                        .program = xstrdup(o->program),
                        .keyring = xstrdup(o->keyring),
                        .max_bytes = o->max_bytes,
                        .wishes = wish_queue_ref(o->wishes),
                        .refs = 1};
    c->last = &c->queue;
    return c;
}

void cache_unref(struct cache *c) {
    if (--c->refs)
        return;
    close(c->dir);
    wish_queue_unref(c->wishes);
    free(c->program);
    free(c->keyring);
    free(c);
}

void cache_free(struct cache *c) {
    if (!c)
        return;
    c->closed = true;
    while (c->feeds)
        feed_free(c->feeds);
    child_drop(TAKE(c->child));
    intakes_drop_queue(c);
    cache_unref(c);
}

/* ---- list and clear ---- */

struct look {
    struct cache *cache;
    struct cache_listing listing;
    uint64_t count, bytes;
    cache_list_fn *list;
    cache_clear_fn *clear;
    void *arg;
};

static void look_run(void *arg) {
    struct look *l = arg;
    if (l->list)
        object_list(l->cache->dir, &l->listing);
    else
        object_clear(l->cache->dir, &l->count, &l->bytes);
}

static void look_done(void *arg) {
    struct look *l = arg;
    l->listing.max_bytes = l->cache->max_bytes;
    if (l->list)
        l->list(l->arg, &l->listing);
    else
        l->clear(l->arg, l->count, l->bytes);
    for (size_t i = 0; i < l->listing.count; i++)
        free(l->listing.v[i].url);
    free(l->listing.v);
    cache_unref(l->cache);
    free(l);
}

static void look_start(struct cache *c, cache_list_fn *list, cache_clear_fn *clear, void *arg) {
    struct look *l = xnew(struct look);
    *l = (struct look){.cache = c, .list = list, .clear = clear, .arg = arg};
    c->refs++;
    loop_work(c->loop, look_run, look_done, l);
}

void cache_list(struct cache *c, cache_list_fn *fn, void *arg) {
    look_start(c, fn, NULL, arg);
}

void cache_clear(struct cache *c, cache_clear_fn *fn, void *arg) {
    look_start(c, NULL, fn, arg);
}
