/*
 * Private declarations of src/gate: machines, connections and their limits.
 *
 * Everything belongs to the loop's thread. Each connection belongs to one machine and ends with it.
 */
#pragma once

#include "base/map.h"
#include "gate/authority.h"
#include "gate/channel.h"
#include "gate/gate.h"
#include "gate/hello.h"
#include "gate/names.h"
#include "gate/pending.h"
#include "gate/refusal.h"
#include "gate/refused.h"
#include "gate/resolver.h"
#include "io/http.h"

enum {
    GATE_DOORS = 4,           /* number of listening sockets (doors) of a machine */
    GATE_CONNECTIONS = 1024,  /* open connections per machine; further ones are reset */
    GATE_FIRST_MS = 10000,    /* timeout for the first bytes, or for a request head */
    GATE_DENIED_MS = 2000,    /* timeout for the first bytes of a refused connection */
    GATE_IDLE_MS = 75000,     /* timeout between two requests of a connection */
    GATE_DIAL_MS = 10000,     /* timeout for the connection to one address */
    GATE_LINGER_MS = 2000,    /* time for the peer to read a refusal */
    GATE_NEW_NAMES = 200,     /* new host names per second; limited because each is stored */
    GATE_BACKLOG = 256 << 10, /* bytes queued for one side, above which the other is not read */
    GATE_TAINT_SENT = 16384,  /* bytes that a tunnel to an untrusted host may still send after the
                                 host answered, if the machine is guarded */
};

struct gate {
    struct loop *loop;
    const struct gate_hooks *hooks;
    void *arg;
    struct resolver *resolver;
    struct gate_machine *machines;
    struct gate_stats stats;
    struct relay_pool *pipes;
    struct {
        const char *name; /* host name given to gate_serve(); NULL: no name is served */
        gate_serve_fn *fn;
        void *arg;
    } served;
    SSL_CTX *trust; /* verifies servers if the gate terminates TLS; NULL: no termination */
};

struct door {
    struct gate_machine *machine;
    int fd;
    struct loop_watch *watch;
};

struct gate_machine {
    struct gate *gate;
    struct gate_machine *next, **at;
    char id[ID_SIZE];
    struct policy policy;
    struct names names;
    struct door doors[GATE_DOORS];
    bool listening;
    int counters[PLAN_GATE_FDS - GATE_DOORS];
    uint64_t refused[REFUSED_KINDS]; /* kernel counters at the last report */
    struct loop_timer *again;        /* resumes accepting after descriptors ran out */
    struct authority *authority;     /* CA that the machine trusts; NULL: TLS is not terminated */
    /* NULL: none until now. Its memory stays until the end: requests point to grants. */
    struct secret_grants *grants;
    struct pg_database database;
    struct pending *pending;
    size_t held_bytes; /* total size of bodies that wait for an approval */
    int64_t looked_ms; /* last check for expired rules, ms since 1970 */
    struct conn *conns;
    size_t conn_count;
    uint64_t named_ms; /* start of the second in which new host names are counted */
    unsigned named;
};

enum conn_state {
    CONN_FIRST,  /* waiting for the first bytes */
    CONN_REFUSE, /* waiting for the first bytes, to refuse in their protocol */
    CONN_HELD,   /* a tunnel that waits for an approval */
    CONN_DIAL,   /* connecting to the server */
    CONN_RELAY,  /* bytes are relayed without inspection */
    CONN_WEB,    /* HTTP requests and answers are relayed one by one */
    CONN_PG,     /* a PostgreSQL session, inspected until it is authenticated */
    CONN_LINGER, /* refused: waiting for the peer to read the answer */
};

struct relay;
struct web;
struct pg;

struct conn {
    struct gate_machine *machine;
    struct conn *next, **at;
    enum conn_state state;
    bool is_proxy; /* the client uses the gate as an HTTP proxy */
    bool ended;    /* freed by the loop after the current callbacks */
    struct loop_call later;
    struct loop_call more; /* web: continues later, so that other connections get their turn */
    bool timed_out;        /* the approval timed out */
    struct channel client, server;
    struct loop_timer *timer;

    char host[NAME_SIZE]; /* destination host; empty: not known yet (proxy) */
    bool is_address;      /* the machine used an address instead of a name */
    uint16_t port;
    bool knows_protocol;
    enum policy_protocol protocol;
    uint64_t rule;       /* id of the rule that decided */
    bool local;          /* flag `local` of that rule */
    char sni[NAME_SIZE]; /* server name from the ClientHello */
    bool is_hello;       /* the first bytes are a well-formed ClientHello */
    bool is_terminated;  /* the gate terminates TLS */
    bool is_told;        /* the refusal is already in the journal */
    char refusal[256];   /* reason of a final refusal; empty: not refused */
    enum remedy remedy;  /* remedy of that refusal */
    struct pending *held;
    struct conn *held_next;

    struct buf first; /* bytes received and not yet passed on */
    struct resolver_call *resolving;
    struct resolved addresses;
    size_t address;          /* index of the next address to try */
    bool tried;              /* at least one address was tried */
    char address_text[48];   /* the address of the server; empty: it is inside this process */
    enum remedy dial_remedy; /* what helps if the address of the host was refused */
    void (*dialled)(struct conn *c, const struct err *err);
    uint64_t sent, received;
    uint64_t pause_ms; /* rate limit: length of the current pause; 0: no pause */
    bool is_open;      /* reported as allowed, so its end is reported too */
    bool cached;       /* the request is answered from the package cache */
    bool approved;     /* the owner approved the connection or its request */
    bool taints; /* this connection tainted a guarded machine: it may finish, but not send much more
                  */
    uint64_t sent_late; /* with `taints`: bytes sent after the server answered */

    struct relay *relay;
    struct web *web;
    struct pg *pg;
};

/* ---- conn.c ---- */

/* Starts an accepted connection; takes ownership of fd. */
void conn_new(struct gate_machine *m, int fd, bool is_proxy);
/* Starts a connection of gate_enter(). */
void conn_new_inside(struct gate_machine *m, int fd, bool is_tls);
/* Ends the connection; it is freed later by the loop. why (may be NULL) is the reason; reset: the
 * peer sees a reset. */
void conn_end(struct conn *c, bool reset, const char *why);
void conn_free(struct conn *c);
void conn_begin(struct conn *c);
/* Handles the connection anew after CONNECT: host and port are set, c->first holds the bytes after
 * the request. */
void conn_restart(struct conn *c);
void conn_review(struct conn *c); /* call after the policy has changed */
/* Waits GATE_LINGER_MS for the peer to read the refusal, then ends. */
void conn_linger(struct conn *c);

void conn_timer(struct conn *c, uint64_t ms); /* sets the timeout; 0: none */
/* Whether the host is the name that this process serves (gate_serve()). */
bool conn_is_served(const struct conn *c);

/* Asks the policy to decide, with what is known of the connection so far. */
struct policy_answer conn_decide(struct conn *c, const char *method, const char *path,
                                 const char *query);
/* The rule that denies the address, a server of this connection; NULL: none. */
const struct policy_rule *conn_denied(const struct conn *c, const struct sockaddr *to);
/* Whether the policy denies the address of the server that the connection has. */
bool conn_is_cut_off(const struct conn *c);
struct policy_care conn_cares(const struct conn *c);
bool conn_tell(struct conn *c, enum gate_outcome outcome, const char *method, const char *path,
               const char *why);
/* Reports one that was allowed, and whose server could not be reached. */
void conn_tell_failed(struct conn *c, const char *method, const char *path, const char *why);
/* Reports an allowed connection or request. False: it tainted the machine, which could not be
 * stored, so the connection was ended. */
bool conn_tell_allowed(struct conn *c, const char *method, const char *path);

void conn_tell_secret(struct conn *c, const char *method, const char *path,
                      const struct secret_grant *grant);

/* Connects c->server to the host, under the rule that allowed it. fn gets the result, perhaps
 * before this returns. */
void conn_dial(struct conn *c, const struct policy_rule *rule,
               void (*fn)(struct conn *c, const struct err *err));

/* Called when the owner decided about the waiting request or its time ran out; PENDING_WAITS: ask
 * the policy again. */
void conn_released(struct conn *c, enum pending_state state);

/* Returns the number of bytes that may still be sent to the server. */
size_t conn_may_send(const struct conn *c);
/* Counts bytes that were sent and received. False: a limit is used up and the connection was
 * ended. */
bool conn_count(struct conn *c, size_t sent, size_t received);

/* ---- relay.c ---- */

struct relay_pool *relay_pool_new(void);
void relay_pool_free(struct relay_pool *p);
/* Starts the relay, which takes over the sockets of both channels. */
void relay_start(struct conn *c);
void relay_resume(struct conn *c); /* call when a pause of the rate limit is over */
void relay_reset(struct relay *r); /* both ends will see a reset when they are closed */
void relay_free(struct relay *r);

/* ---- web.c ---- */

/* Starts the HTTP relay; c->first holds the beginning of the first request. */
void web_start(struct conn *c);
void web_event(struct conn *c); /* call when one of the channels has an event */
void web_released(struct conn *c, enum pending_state state);
void web_expire(struct conn *c); /* call when the timeout of c is over */
void web_free(struct web *w);
/* Decides again about the current request, after the policy has changed. */
struct policy_answer web_decide_again(struct conn *c);
enum web_stage { WEB_IDLE, WEB_SENDS, WEB_RECEIVES };
enum web_stage web_stage(const struct conn *c);

/* ---- pg.c ---- */

/* Whether the host is a name for database servers (below PG_HOSTS_BELOW). */
bool pg_is_for(const struct conn *c);
/* Starts a session under the rule that allowed it; c->first holds its first bytes. */
void pg_start(struct conn *c, const struct policy_rule *rule);
void pg_event(struct conn *c);
void pg_expire(struct conn *c);
void pg_free(struct pg *p);

/* conn_dial.c */

/* Uses this socket as the server of the connection; takes ownership of fd. */
int conn_open_server(struct conn *c, int fd, struct err *err);
void conn_dial_next(struct conn *c, const char *why);
