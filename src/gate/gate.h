/*
 * The gate: the only way out of a machine's network. It owns the listeners in the machine's network
 * namespace, finds the destination of each connection, decides by the machine's policy, and then
 * connects, refuses, or holds the connection until the owner approves.
 *
 * Everything runs on the loop's thread and never blocks: sockets are nonblocking, buffers have a
 * cap, and every wait has a timeout.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/wire/plan.h"
#include "cache/cache.h"
#include "gate/authority.h"
#include "gate/pending.h"
#include "gate/pg.h"
#include "gate/policy.h"
#include "gate/secrets.h"
#include "gate/stats.h"
#include "io/loop.h"

struct gate;
struct gate_machine;

/* The outcome of a connection or request. */
enum gate_outcome {
    GATE_ALLOWED, /* connected */
    GATE_DENIED,
    GATE_CLOSED, /* an allowed connection ended; reported with its byte counts */
    GATE_HELD,   /* the connection or request waits for an approval */
    GATE_USED,   /* a secret was used in the request */
};

/* A report about a connection or request. Its strings are valid only during the callback. */
struct gate_crossing {
    enum gate_outcome outcome;
    const char *host; /* destination: a host name, or an address if the machine used one */
    uint16_t port;
    const char *protocol;      /* http, tls, tcp; NULL: not known */
    const char *method, *path; /* of an HTTP request; else NULL */
    const char *address;       /* the address that the gate connected to; NULL: none */
    uint64_t rule;             /* id of the rule that decided; 0: none */
    const char *pending;       /* id of the request that waits for an approval; NULL: none */
    const char *secret, *way; /* GATE_USED: name of the secret; its place: header, basic or query */
    const char *why;          /* reason why the gate denied or ended the connection */
    bool failed;              /* GATE_DENIED: it was allowed, but the server could not be reached */
    bool cached;              /* GATE_ALLOWED: delivered from the package cache */
    uint64_t sent, received;  /* bytes that the machine sent and received */
};

/* Packets that the kernel refused since the last report (gate/refused.h). */
struct gate_refusal {
    const char *protocol, *why;
    uint64_t packets, total; /* number since the last report; since the network was created */
};

/* Callbacks by which the gate reports and stores; arg is that of gate_options. */
struct gate_hooks {
    /* A connection or request was allowed, refused, held or closed. False: reset the connection,
     * because the machine had too many refusals to explain another, or because the taint of an
     * allowed connection could not be stored. */
    bool (*crossed)(void *arg, const char *machine, const struct gate_crossing *c);
    void (*named)(void *arg, const char *machine, uint32_t number, const char *name);
    /* A request that waits for an approval was added, changed or removed. Not called when its
     * machine is removed. */
    void (*pended)(void *arg, const char *machine, const struct pending *p, bool gone);
    /* Returns the current value of a secret, owned by the caller; NULL: no such secret. */
    struct secret *(*secret)(void *arg, const char *machine, const char *name);
    void (*refused)(void *arg, const char *machine, const struct gate_refusal *r);
    /* Returns the package cache that the machine shares with other machines of its owner, which
     * outlives the gate's machines; NULL: none. The hook itself may be NULL. */
    struct cache *(*cache)(void *arg, const char *machine);
};

struct gate_options {
    struct loop *loop;
    const struct gate_hooks *hooks;
    void *arg;
};

struct gate *gate_new(const struct gate_options *options);
void gate_free(struct gate *g);

/* Maps a host name to a fixed address, which is used instead of the answer of the host's
 * resolver. */
int gate_set_name(struct gate *g, const char *name, const char *address, struct err *err);
void gate_unset_name(struct gate *g, const char *name);
struct resolver *gate_resolver(struct gate *g); /* looks names up as for connections */

/*
 * HTTP requests to this name are answered in this process: instead of a dialled socket, fn gets one
 * end of a socket pair and owns it. Only one name is possible. The policy of the machine decides
 * about these requests as about any other.
 */
typedef void gate_serve_fn(void *arg, const char *machine, int fd);
void gate_serve(struct gate *g, const char *name, gate_serve_fn *fn, void *arg);

/* Allows TLS termination for machines that have a certificate authority. more: a file of CA
 * certificates in addition to the system's. */
int gate_trust(struct gate *g, const char *more, struct err *err);

/* Adds a machine without listeners: until gate_listen() the kernel refuses its connections. */
struct gate_machine *gate_add(struct gate *g, const char *id);
/* Removes the machine and resets its connections. */
void gate_remove(struct gate_machine *m);

/* Listens on the machine's sockets. Takes ownership of PLAN_GATE_FDS descriptors (sockets, then
 * files with the kernel's counters) and closes those of an earlier call. */
int gate_listen(struct gate_machine *m, const int *doors, struct err *err);
bool gate_listens(const struct gate_machine *m);
/* Closes the listeners and resets connections; the kernel's counters stay readable. */
void gate_silence(struct gate_machine *m);
/* Reads the kernel's counters of refused packets and reports an increase. */
void gate_count_refused(struct gate_machine *m);

/* Restores a host name and its number, which the callback `named` stored. After the last name,
 * gate_restored_names() gets the number of the newest name: new names continue after it. */
void gate_restore_name(struct gate_machine *m, uint32_t number, const char *name);
void gate_restored_names(struct gate_machine *m, uint32_t newest);

/* Sets the machine's certificate authority and takes ownership of it. From now on the gate
 * terminates TLS where a rule or a refusal needs it. */
void gate_set_authority(struct gate_machine *m, struct authority *a);
struct authority *gate_authority(struct gate_machine *m); /* NULL: the machine has no authority */

/* Sets the secrets that are granted to the machine; open connections use them at once. */
void gate_set_grants(struct gate_machine *m, const struct secret_grants *grants);
const struct secret_grants *gate_grants(const struct gate_machine *m);

/* Sets the one database that the machine may use; NULL: none. */
void gate_set_database(struct gate_machine *m, const struct pg_database *d);

/*
 * Makes a connection of the machine that begins in this process, for requests of cells. Returns the
 * client's end, nonblocking, or -1. The client sends requests with absolute URLs, as to a proxy;
 * all of them are https (is_tls) or all http. The gate itself speaks TLS with the server.
 */
int gate_enter(struct gate_machine *m, bool is_tls, struct err *err);

const char *gate_machine_id(const struct gate_machine *m);

/* Returns a linked list of the requests that wait for an approval and of those that were let
 * through. */
struct pending *gate_pending(struct gate_machine *m);
bool gate_waits(const struct gate_machine *m);
struct pending *gate_pending_find(struct gate *g, const char *id);
/* Restores a waiting request that the callback `pended` stored. It has no connection until the
 * client tries again. Copies the path. */
void gate_restore_pending(struct gate_machine *m, const struct pending *kept, uint64_t left_ms);
void gate_look(struct gate_machine *m); /* call periodically */

/* The policy of the machine. After a change call gate_changed(), which ends connections that are no
 * longer allowed. */
struct policy *gate_policy(struct gate_machine *m);
void gate_changed(struct gate_machine *m);

void gate_stats(const struct gate *g, struct gate_stats *ret);
