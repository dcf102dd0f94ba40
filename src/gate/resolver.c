#include "gate/resolver.h"

#include <netdb.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/map.h"
#include "gate/name.h"

enum { JOBS_MAX = 2, WAITING_MAX = 1024, KEPT_MAX = 1024, KEEP_MS = 30000, KEEP_BAD_MS = 2000 };

struct resolver_call {
    struct resolver_call *next;
    resolver_fn *fn; /* NULL: cancelled */
    void *arg;
};

/* A host name that is being looked up, or whose answer is cached. */
struct entry {
    struct resolver *resolver; /* NULL: the resolver was freed while the job ran */
    struct entry *next;        /* next entry in the queue for a worker thread */
    char name[NAME_SIZE];
    bool running, fixed;
    uint64_t until_ms;
    int code; /* result of getaddrinfo() */
    struct resolved result;
    struct resolver_call *calls;
};

struct resolver {
    struct loop *loop;
    struct map entries;
    struct entry *first, **end;
    unsigned jobs;
    size_t waiting;
};

struct resolver *resolver_new(struct loop *loop) {
    struct resolver *r = xnew(struct resolver);
    r->loop = loop;
    r->end = &r->first;
    return r;
}

static void entry_free(struct entry *e) {
    for (struct resolver_call *c = e->calls, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(e);
}

void resolver_free(struct resolver *r) {
    struct entry *e;
    if (!r)
        return;
    for (size_t at = 0; (e = map_next(&r->entries, &at));) {
        if (e->running)
            e->resolver = NULL; /* the running job frees the entry */
        else
            entry_free(e);
    }
    map_done(&r->entries);
    free(r);
}

static int resolver_look_up(const char *name, int flags, struct resolved *ret) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = flags}, *list = NULL;
    int code = getaddrinfo(name, NULL, &hints, &list);
    ret->count = 0;
    for (struct addrinfo *a = list; a && ret->count < RESOLVER_ADDRESSES; a = a->ai_next)
        if (a->ai_addrlen <= sizeof(ret->list[0]))
            memcpy(&ret->list[ret->count++], a->ai_addr, a->ai_addrlen);
    if (list)
        freeaddrinfo(list);
    return code ? code : ret->count ? 0 : EAI_NONAME;
}

static void resolver_tell(resolver_fn *fn, void *arg, const struct entry *e) {
    struct err err;
    if (e->code == 0) {
        fn(arg, &e->result, NULL);
        return;
    }
    err_set(&err, e->code == EAI_NONAME || e->code == EAI_NODATA ? ERR_NOT_FOUND : ERR_UNKNOWN,
            "cannot look up host '%s': %s", e->name, gai_strerror(e->code));
    fn(arg, NULL, &err);
}

static struct entry *entry_new(struct resolver *r, const char *name) {
    struct entry *e = xnew(struct entry);
    e->resolver = r;
    snprintf(e->name, sizeof(e->name), "%s", name);
    map_put(&r->entries, e->name, e);
    return e;
}

int resolver_set(struct resolver *r, const char *name, const char *address, struct err *err) {
    char checked[NAME_SIZE];
    struct resolved result;
    if (!name_read(name, strlen(name), checked))
        return err_set(err, ERR_INVALID, "'%.60s' is not a host name", name);
    if (resolver_look_up(address, AI_NUMERICHOST, &result) != 0)
        return err_set(err, ERR_INVALID, "'%.60s' is not an address", address);
    struct entry *e = map_get(&r->entries, checked);
    if (!e)
        e = entry_new(r, checked);
    e->fixed = true;
    e->result = result;
    return 0;
}

void resolver_unset(struct resolver *r, const char *name) {
    struct entry *e = map_get(&r->entries, name);
    if (!e || !e->fixed || e->running || e->calls)
        return;
    map_take(&r->entries, name);
    entry_free(e);
}

static void resolver_run(void *arg) {
    struct entry *e = arg;
    e->code = resolver_look_up(e->name, AI_ADDRCONFIG, &e->result);
}

static void start_next(struct resolver *r);

static void done(void *arg) {
    struct entry *e = arg;
    struct resolver *r = e->resolver;
    e->running = false;
    if (!r) {
        entry_free(e);
        return;
    }
    r->jobs--;
    e->until_ms = loop_now_ms(r->loop) + (e->code ? KEEP_BAD_MS : KEEP_MS);
    while (e->calls) {
        struct resolver_call *c = e->calls;
        e->calls = c->next;
        if (c->fn)
            resolver_tell(c->fn, c->arg, e);
        free(c);
    }
    start_next(r);
}

static void start_next(struct resolver *r) {
    while (r->first && r->jobs < JOBS_MAX) {
        struct entry *e = r->first;
        r->first = e->next;
        if (!r->first)
            r->end = &r->first;
        r->waiting--;
        r->jobs++;
        e->running = true;
        loop_work(r->loop, resolver_run, done, e);
    }
}

/* Makes room in the cache: drops entries that nobody waits for, first expired ones, then any. */
static void resolver_forget(struct resolver *r, uint64_t now) {
    struct entry *e;
    bool all = r->entries.count >= 2 * KEPT_MAX;
    for (size_t at = 0; (e = map_next(&r->entries, &at));)
        if (!e->fixed && !e->running && !e->calls && (all || e->until_ms <= now)) {
            map_take(&r->entries, e->name);
            entry_free(e);
        }
}

static bool is_fresh(const struct entry *e, uint64_t now) {
    return e->fixed || (!e->calls && !e->running && e->until_ms > now);
}

struct resolver_call *resolver_ask(struct resolver *r, const char *name, resolver_fn *fn,
                                   void *arg) {
    uint64_t now = loop_now_ms(r->loop);
    struct err err;
    if (r->entries.count >= KEPT_MAX)
        resolver_forget(r, now);
    struct entry *e = map_get(&r->entries, name);
    if (e && is_fresh(e, now)) {
        resolver_tell(fn, arg, e);
        return NULL;
    }
    if (r->waiting >= WAITING_MAX) {
        err_set(&err, ERR_BUSY, "cannot look up host '%s': too many names are being looked up",
                name);
        fn(arg, NULL, &err);
        return NULL;
    }
    if (!e)
        e = entry_new(r, name);
    bool queued = e->calls != NULL || e->running;
    struct resolver_call *c = xnew(struct resolver_call);
    *c = (struct resolver_call){e->calls, fn, arg};
    e->calls = c;
    if (!queued) {
        e->next = NULL;
        *r->end = e;
        r->end = &e->next;
        r->waiting++;
        start_next(r);
    }
    return c;
}

void resolver_cancel(struct resolver_call *call) {
    if (call)
        call->fn = NULL;
}
