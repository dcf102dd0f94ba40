#include "service/net/packages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/folder.h"
#include "base/log.h"
#include "base/sha256.h"
#include "service/net/inner.h"
#include "service/rights.h"

enum { LISTING_MAX = 16 << 20 };

struct owner_cache {
    char owner[STORE_NAME_SIZE];
    struct cache *cache; /* NULL: it cannot be opened */
};

/* The directory of an owner is named by a hash, because names of owners may hold any character. */
static struct cache *owner_cache_open(struct service *s, const char *owner, struct err *err) {
    char hex[SHA256_HEX], above[PLACE_SIZE + 16], dir[PLACE_SIZE + 64], program[PLACE_SIZE + 32];
    sha256_hex(owner, strlen(owner), hex);
    snprintf(above, sizeof(above), "%s/packages", s->place->home);
    snprintf(dir, sizeof(dir), "%s/%.32s", above, hex);
    snprintf(program, sizeof(program), "%s/carrel-packages", s->place->libexec);
    if (!s->net->wishes)
        s->net->wishes = wish_queue_new();
    const struct cache_options o = {.loop = s->loop,
                                    .wishes = s->net->wishes,
                                    .dir = dir,
                                    .program = program,
                                    .keyring = s->conf->package_keyring,
                                    .max_bytes = s->conf->package_cache_bytes};
    int r = folder_make(above);
    if (r < 0) {
        err_num(err, r, "cannot create directory '%s'", above);
        return NULL;
    }
    return cache_new(&o, err);
}

static struct cache *owner_cache(struct service *s, const char *owner, struct err *err) {
    struct owner_cache *c = map_get(&s->net->caches, owner);
    if (c)
        return c->cache;
    struct cache *opened = owner_cache_open(s, owner, err);
    if (!opened)
        return NULL;
    c = xnew(struct owner_cache);
    snprintf(c->owner, sizeof(c->owner), "%s", owner);
    c->cache = opened;
    map_put(&s->net->caches, c->owner, c);
    return opened;
}

struct cache *net_cache(void *service, const char *machine) {
    struct service *s = service;
    struct live *l = map_get(&s->machines, machine);
    struct err err;
    if (!l || !s->conf->package_cache_bytes)
        return NULL;
    struct cache *c = owner_cache(s, l->row.owner, &err);
    if (!c)
        log_line(LOG_WARN, "service", "open the package cache: %s id=%s", err.text, machine);
    return c;
}

void net_caches_free(struct service_net *n) {
    struct owner_cache *c;
    for (size_t at = 0; (c = map_next(&n->caches, &at));) {
        map_take(&n->caches, c->owner);
        cache_free(c->cache);
        free(c);
    }
    map_done(&n->caches);
    wish_queue_unref(TAKE(n->wishes));
}

/* ---- verbs ---- */

struct package_call {
    struct service *service;
    struct caller who;
    uint64_t intent;
    service_net_fn *done;
    void *arg;
};

static struct package_call *package_call_new(struct service *s, const struct caller *who,
                                             service_net_fn *done, void *arg) {
    struct package_call *p = xnew(struct package_call);
    *p = (struct package_call){.service = s, .who = *who, .done = done, .arg = arg};
    return p;
}

static void package_listed(void *arg, const struct cache_listing *l) {
    struct package_call *p = arg;
    struct buf text DEFER(buf_done) = BUF(LISTING_MAX);
    struct jot j = JOT(&text);
    struct err err;
    jot_object(&j, NULL);
    jot_u64(&j, "bytes", l->bytes);
    jot_u64(&j, "max_bytes", l->max_bytes);
    jot_array(&j, "packages");
    for (size_t i = 0; i < l->count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "url", l->v[i].url);
        jot_string(&j, "digest", l->v[i].digest);
        jot_u64(&j, "bytes", l->v[i].bytes);
        jot_u64(&j, "used_ms", (uint64_t)l->v[i].used_ms);
        jot_end(&j, '}');
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed)
        err_set(&err, ERR_LIMIT, "the list of cached packages is too long");
    p->done(p->arg, j.failed ? NULL : text.data, j.failed ? &err : NULL);
    free(p);
}

void service_package_list(struct service *s, const struct caller *who, service_net_fn *done,
                          void *arg) {
    struct err err;
    struct cache *c = allow(who, SCOPE_READ, &err) < 0 ? NULL : owner_cache(s, who->owner, &err);
    if (c)
        cache_list(c, package_listed, package_call_new(s, who, done, arg));
    else
        done(arg, NULL, &err);
}

static void package_cleared(void *arg, uint64_t count, uint64_t bytes) {
    struct package_call *p = arg;
    struct buf text DEFER(buf_done) = BUF(256);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_u64(&j, "removed", count);
    jot_u64(&j, "bytes", bytes);
    jot_end(&j, '}');
    note_result(p->service, &p->who, &(struct journal_record){.verb = "package.clear"}, p->intent,
                NULL);
    p->done(p->arg, text.data, NULL);
    free(p);
}

void service_package_clear(struct service *s, const struct caller *who, service_net_fn *done,
                           void *arg) {
    const struct journal_record what = {.verb = "package.clear"};
    struct err err;
    uint64_t intent;
    struct cache *c = allow(who, SCOPE_RUN, &err) < 0 ? NULL : owner_cache(s, who->owner, &err);
    if (!c || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct package_call *p = package_call_new(s, who, done, arg);
    p->intent = intent;
    cache_clear(c, package_cleared, p);
}
