/*
 * Requests that wait for an approval.
 *
 * An item describes a request (host, port, protocol; for HTTP also method, path, query, header
 * fields and body), not a connection: a retry of the client joins it, and it stays when the client
 * gives up. An approval lets exactly one request through and is remembered for a while, because the
 * client may be between two attempts. An item whose request passed is remembered too, so that the
 * owner can make a rule of it. Items expire.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/id.h"
#include "gate/name.h"

struct conn;
struct gate_machine;

enum {
    PENDING_MAX = 64,
    PENDING_REMEMBER_MS = 120000,
    PENDING_PASSED_MS = 600000,
    PENDING_METHOD_SIZE = 32,
    PENDING_FIRST = 1024,
    PENDING_HASH_SIZE = 65,
};

enum pending_state {
    PENDING_WAITS,
    PENDING_APPROVED,
    PENDING_REFUSED,
    PENDING_EXPIRED,
    PENDING_PASSED, /* the request was let through: no other request can join */
};

/* The request that needs the approval. */
struct pending_wish {
    const char *method, *path, *query; /* empty: none */
    uint64_t body;                     /* size of the body in bytes */
    const char *hash;                  /* SHA-256 of the body, in hexadecimal; empty: no body */
    const char *fields;                /* SHA-256 of the header fields; empty: a tunnel */
};

struct pending {
    struct pending *next;
    struct gate_machine *machine;
    char id[ID_SIZE];
    char host[NAME_SIZE];
    uint16_t port;
    char protocol[8];
    char method[PENDING_METHOD_SIZE]; /* empty: no request, a tunnel */
    char *path, *query;
    uint64_t body;
    char hash[PENDING_HASH_SIZE], fields[PENDING_HASH_SIZE];
    uint64_t rule;
    int64_t since_ms;  /* time of the request, in ms since 1970 */
    uint64_t until_ms; /* when the item expires, on the loop's clock */
    enum pending_state state;
    bool decided;              /* the policy has changed and no longer requires an approval */
    char first[PENDING_FIRST]; /* the first bytes of the request to show, without credentials */
    struct conn *held;         /* waiting connections, linked by conn->held_next */
};

/* Finds or creates the item for this connection; NULL: too many items. */
struct pending *pending_for(struct conn *c, const struct pending_wish *w, uint64_t hold_ms);
/* True if the item was approved. Only one request can use an approval. */
bool pending_use(struct pending *p);
void pending_hold(struct pending *p, struct conn *c);
void pending_leave(struct conn *c);
/* Returns the first bytes of the request to show; for a tunnel, the bytes received so far. */
const char *pending_first(struct pending *p);
/* Returns the next connection that waits for the same item; NULL: none. */
const struct conn *pending_next(const struct conn *c);
/*
 * Decides an item. PENDING_APPROVED lets one request pass: a waiting one, or the next that comes.
 * all: the policy has changed too, so every waiting request asks it again. Frees the item unless it
 * is remembered or other requests wait.
 */
void pending_decide(struct pending *p, enum pending_state state, bool all);
/* Call after each change of the policy: finds the rule that now requires the approval. */
void pending_review(struct gate_machine *m);
/* Call periodically: expires waiting and remembered items, and lets requests whose items are
 * decided ask the policy again. */
void pending_look(struct gate_machine *m, uint64_t now_ms);
void pending_clear(struct gate_machine *m);
