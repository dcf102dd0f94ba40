/*
 * Names to addresses, by the host's own resolver and off the loop.
 *
 * A few lookups at a time, so that a slow name server takes no worker from others; answers are
 * kept for a moment. Names of carrel.conf come first.
 */
#pragma once

#include <sys/socket.h>

#include "base/err.h"
#include "io/loop.h"

enum { RESOLVER_ADDRESSES = 8 };

struct resolved {
    struct sockaddr_storage list[RESOLVER_ADDRESSES]; /* with the port 0 */
    size_t count;
};

struct resolver;
struct resolver_call;

struct resolver *resolver_new(struct loop *loop);
/* What was asked is never answered. */
void resolver_free(struct resolver *r);

/* A name of our own: "a.test" is this address, given as text. */
int resolver_set(struct resolver *r, const char *name, const char *address, struct err *err);
void resolver_unset(struct resolver *r, const char *name);

/* Answered once, perhaps from within the call; err NULL: ret has at least one. */
typedef void resolver_fn(void *arg, const struct resolved *ret, const struct err *err);
/* name is a host name or an address. NULL: it was answered already. */
struct resolver_call *resolver_ask(struct resolver *r, const char *name, resolver_fn *fn,
                                   void *arg);
void resolver_cancel(struct resolver_call *call); /* NULL is fine */
