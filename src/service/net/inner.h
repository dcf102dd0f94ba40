/*
 * Internal state of the network, shared by the files of src/service/net. Only they include this
 * header; other files call the functions of net/live.h.
 */
#pragma once

#include "gate/ingress.h"
#include "service/net/flood.h"
#include "service/net/live.h"
#include "service/state.h"

struct expose_face;
struct exposures;
struct pending_row;

/* Part of struct service. */
struct service_net {
    struct gate *gate;              /* handles connections from machines */
    struct ingress *ingress;        /* handles connections to their exposed ports */
    const struct expose_face *face; /* decides about ports that nobody exposed; NULL: none */
    void *face_arg;
    struct map caches;         /* owner -> struct owner_cache: package caches in use */
    struct wish_queue *wishes; /* of all of them; NULL: none was opened yet */
};

/* Part of struct live. */
struct live_net {
    bool cutting;
    struct loop_call cut;        /* closes the network if the taint cannot be stored */
    struct exposures *exposures; /* exposed ports; NULL: none */
    unsigned forwards;           /* connections of net/forward.h */
    /* whether the machine trusts its certificate authority */
    enum { TRUST_NONE, TRUST_GOING, TRUST_THERE } trust;
    bool opening;                   /* the gate's sockets in the machine were requested */
    uint64_t doors_ms;              /* when to request the sockets again; 0: never */
    struct flood refusals, entries; /* refusals by the gate; requests to exposed ports */
    struct flood packets;           /* count of packets refused by the kernel */
    uint64_t refused_ms;            /* when to read the kernel's counters again */
    struct texts env;               /* result of the last net_env() */
    char *mirrors;                  /* warning of net_look_up_mirrors(); NULL: none */
    char *warnings;                 /* result of the last net_warnings() */
};

enum { POLICY_MAX = 512 << 10 }; /* limit for the bytes of a policy as JSON */

/* ---- crossings.c ---- */

extern const struct gate_hooks net_hooks;
struct flood_limit net_refusal_limit(const struct live *l);
/* Writes one journal record for all events that were only counted; none if `counted` is 0. */
void net_tell_counted(struct live *l, const char *verb, uint64_t counted);
void net_floods_look(struct live *l, uint64_t now_ms);
void net_restore_pending(void *arg, const struct pending_row *row);

/* ---- packages.c ---- */

/* Returns the package cache of the machine's owner; NULL: none. */
struct cache *net_cache(void *service, const char *machine);
void net_caches_free(struct service_net *n);

/* ---- expose.c ---- */

struct ingress *expose_new(struct service *s);

/* ---- net.c ---- */

/* Logs why the machine has no gate sockets (doors), and requests them again later. */
void net_no_doors(struct live *l, const char *why);
