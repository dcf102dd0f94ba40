/*
 * The gate: the only door of a machine's network. It holds the listeners in the machine's network
 * namespace, learns where each connection was meant to go, decides by the machine's policy, and
 * connects, refuses, or holds it until somebody has approved.
 *
 * All of it runs on the loop's thread and nothing in it waits for a machine: every socket is
 * nonblocking, every buffer has a cap, every wait a time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/plan.h"
#include "gate/authority.h"
#include "gate/pending.h"
#include "gate/pg.h"
#include "gate/policy.h"
#include "gate/secrets.h"
#include "io/loop.h"

struct gate;
struct gate_machine;

/* What became of something that wanted to cross. Texts live during the call. */
enum gate_outcome {
    GATE_ALLOWED, /* it goes on its way */
    GATE_DENIED,
    GATE_CLOSED, /* the end of what was allowed, with the bytes it moved */
    GATE_HELD,   /* it waits for an approval */
    GATE_USED,   /* a secret goes with it */
};

struct gate_crossing {
    enum gate_outcome outcome;
    const char *host; /* a name, or the address that was dialled */
    uint16_t port;
    const char *protocol;      /* http, tls, tcp; NULL: not known */
    const char *method, *path; /* of a request; else NULL */
    const char *address;       /* that it was connected to; NULL: to none */
    uint64_t rule;             /* 0: none */
    const char *pending;       /* id, of what waits */
    const char *secret, *way;  /* its name and where it stands, of one that is used */
    const char *why;           /* of a denial, or of an end that was not its own */
    uint64_t sent, received;   /* bytes, as the machine sees it */
};

/* What the kernel refused by itself, since this was told last; see gate/refused.h. */
struct gate_refusal {
    const char *protocol, *why;
    uint64_t packets, total; /* since then, and since its network began */
};

/* How the gate tells and keeps things; arg is that of gate_options. */
struct gate_hooks {
    /* False: the connection is reset. The machine was refused too often to be told why, or it was
     * allowed, and that this taints it could not be stored. */
    bool (*crossed)(void *arg, const char *machine, const struct gate_crossing *c);
    void (*named)(void *arg, const char *machine, uint32_t number, const char *name);
    /* An item that waits is new or has changed, or is no more; not when its machine is removed. */
    void (*pended)(void *arg, const char *machine, const struct pending *p, bool gone);
    /* The value as it is now, the caller's; NULL: there is none (any more). */
    struct secret *(*secret)(void *arg, const char *machine, const char *name);
    void (*refused)(void *arg, const char *machine, const struct gate_refusal *r);
};

struct gate_options {
    struct loop *loop;
    const struct gate_hooks *hooks;
    void *arg;
};

struct gate *gate_new(const struct gate_options *options);
void gate_free(struct gate *g);

/* A name that is always this address, before the host's resolver is asked. */
int gate_set_name(struct gate *g, const char *name, const char *address, struct err *err);
void gate_unset_name(struct gate *g, const char *name);

/*
 * Requests to this name, at the ports of HTTP, are answered in this process: where they would be
 * dialled, fn gets one end of a pair of sockets instead, and owns it. One name; what a machine may
 * ask of it is its policy's affair as everywhere.
 */
typedef void gate_serve_fn(void *arg, const char *machine, int fd);
void gate_serve(struct gate *g, const char *name, gate_serve_fn *fn, void *arg);

/* Looks into TLS for machines that have an authority. more: certificates besides the system's. */
int gate_trust(struct gate *g, const char *more, struct err *err);

/* A machine without doors: it has a policy, and its connections are refused by the kernel. */
struct gate_machine *gate_add(struct gate *g, const char *id);
/* Its tunnels are reset. */
void gate_remove(struct gate_machine *m);

/* Takes the descriptors, PLAN_GATE_FDS of them; those from before are closed. */
int gate_listen(struct gate_machine *m, const int *doors, struct err *err);
bool gate_listens(const struct gate_machine *m);
/* Closes its doors and resets its tunnels; what the kernel counts can still be read. */
void gate_silence(struct gate_machine *m);
/* Reads what the kernel refused there, and tells it if that is more than before. */
void gate_count_refused(struct gate_machine *m);

/* A name that was kept by `named`, and the newest number of them. */
void gate_restore_name(struct gate_machine *m, uint32_t number, const char *name);
void gate_restored_names(struct gate_machine *m, uint32_t newest);

/* Takes it; from now on TLS is looked into where a rule needs that, or a refusal is to be read. */
void gate_set_authority(struct gate_machine *m, struct authority *a);
struct authority *gate_authority(struct gate_machine *m); /* NULL: none */

/* What it has placeholders of; taken at once, also by connections that are open. */
void gate_set_grants(struct gate_machine *m, const struct secret_grants *grants);
const struct secret_grants *gate_grants(const struct gate_machine *m);

/* The one database that it may use, on a server of its owner's; NULL: none (any more). */
void gate_set_database(struct gate_machine *m, const struct pg_database *d);

const char *gate_machine_id(const struct gate_machine *m);

/* What waits for an approval. */
struct pending *gate_pending(struct gate_machine *m); /* a list; some went through already */
bool gate_waits(const struct gate_machine *m);
struct pending *gate_pending_find(struct gate *g, const char *id);
/* One that was kept by `pended`, without anybody who waits: a retry joins it. Its path is copied.
 */
void gate_restore_pending(struct gate_machine *m, const struct pending *kept, uint64_t left_ms);
void gate_look(struct gate_machine *m); /* from time to time */

/* To be looked at; changes are told by gate_changed(), which ends what is no longer allowed. */
struct policy *gate_policy(struct gate_machine *m);
void gate_changed(struct gate_machine *m);

struct gate_stats {
    uint64_t open; /* connections now */
    uint64_t allowed, denied, refused, lookups, sent, received, overflows;
};
void gate_stats(const struct gate *g, struct gate_stats *ret);
