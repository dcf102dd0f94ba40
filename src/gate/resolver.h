/*
 * Resolves host names with the host's resolver, in worker threads.
 *
 * Only a few lookups run at a time, so a slow name server does not use up the workers. Answers are
 * cached for a moment. Names in the hosts file that carrel.conf sets come first.
 */
#pragma once

#include <sys/socket.h>

#include "base/err.h"
#include "io/loop.h"

enum { RESOLVER_ADDRESSES = 8 };

struct resolved {
    struct sockaddr_storage list[RESOLVER_ADDRESSES]; /* addresses with port 0 */
    size_t count;
};

struct resolver;
struct resolver_call;

struct resolver *resolver_new(struct loop *loop);
/* Frees the resolver; pending calls are not answered. */
void resolver_free(struct resolver *r);

/* Adds a fixed host name, such as "a.test", that resolves to this address. */
int resolver_set(struct resolver *r, const char *name, const char *address, struct err *err);
void resolver_unset(struct resolver *r, const char *name);

/* Called once, possibly before resolver_ask() returns. If err is NULL, there is at least one
 * address. */
typedef void resolver_fn(void *arg, const struct resolved *ret, const struct err *err);
/* Looks up `name`, a host name or an address. Returns NULL if fn was already called. */
struct resolver_call *resolver_ask(struct resolver *r, const char *name, resolver_fn *fn,
                                   void *arg);
void resolver_cancel(struct resolver_call *call); /* call may be NULL */
