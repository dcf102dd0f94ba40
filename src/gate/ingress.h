/*
 * The way in: ports inside machines, served by host name on a listener of their own, never on the
 * API's. A connection carries one request (or becomes a websocket): its head is read, its Host says
 * which door it wants, a token must open it, and its body goes through as it is. What follows is
 * thrown away, and the answer says so: it could be another request, with its token.
 *
 * The token comes as the field Carrel-Token, or as ?carrel_token=..., which is always answered with
 * a cookie for that host alone; it never reaches the machine (ingress_head.h).
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "io/http.h"
#include "io/loop.h"

enum { INGRESS_CONNECTIONS = 512, INGRESS_TOKEN_MAX = 80 };
#define INGRESS_DOMAIN ".localhost"

struct ingress;

struct ingress_door {
    char machine[ID_SIZE];
    uint16_t port;
};

typedef void ingress_dialled_fn(void *arg, int fd, const struct err *err);

struct ingress_hooks {
    /* 0, or the status to refuse with: 404 there is no such door, 401 that token does not open it,
     * 403 it would, but what is in the machine may be a stranger's doing. */
    int (*check)(void *arg, const struct ingress_door *door, struct http_text token);
    /* Asked whenever bytes come: a door may be closed while they do. */
    bool (*is_open)(void *arg, const struct ingress_door *door);
    /* A socket that is connected, or is being; the callee's. Answered later, never from within. */
    void (*dial)(void *arg, const struct ingress_door *door, ingress_dialled_fn *fn, void *fn_arg);
    /* A request goes in, or (why) was refused. Texts live during the call. */
    void (*entered)(void *arg, const struct ingress_door *door, const char *method,
                    const char *path, const char *why);
};

struct ingress *ingress_new(struct loop *loop, const struct ingress_hooks *hooks, void *arg);
void ingress_free(struct ingress *g);
/* "ADDRESS:PORT"; done once, further calls do nothing. */
int ingress_listen(struct ingress *g, const char *where, struct err *err);
/* Ends what is open: of a machine (port 0: all), once a door is closed. */
void ingress_close(struct ingress *g, const char *machine, uint16_t port);

/* "8000-m-abc.localhost:7071" as a door; false: it is none. Pure. */
bool ingress_door_read(struct http_text host, struct ingress_door *ret);
