/* What the files of the gate share. Only for src/gate. */
#pragma once

#include "base/map.h"
#include "gate/authority.h"
#include "gate/channel.h"
#include "gate/gate.h"
#include "gate/hello.h"
#include "gate/names.h"
#include "gate/pending.h"
#include "gate/refused.h"
#include "gate/resolver.h"
#include "io/http.h"

enum {
    GATE_DOORS = 4,           /* sockets that we listen on; then come the counters */
    GATE_CONNECTIONS = 1024,  /* a machine's; those above are reset */
    GATE_FIRST_MS = 10000,    /* for the first bytes, or a request's head */
    GATE_DENIED_MS = 2000,    /* for them, when they only say how to refuse */
    GATE_IDLE_MS = 75000,     /* between two requests */
    GATE_DIAL_MS = 10000,     /* an address */
    GATE_LINGER_MS = 2000,    /* for the peer to read a refusal */
    GATE_NEW_NAMES = 200,     /* a second: each is written down */
    GATE_BACKLOG = 256 << 10, /* queued for one side: the other is not read meanwhile */
    GATE_TAINT_SENT = 16384, /* by a tunnel that tainted a guarded machine, after it was answered */
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
        const char *name; /* NULL: none */
        gate_serve_fn *fn;
        void *arg;
    } served;
    SSL_CTX *trust; /* of servers, where TLS ends here; NULL: it does not */
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
    uint64_t refused[REFUSED_KINDS]; /* by the kernel, as told last */
    struct loop_timer *again;        /* accepts again, when descriptors had run out */
    struct authority *authority;     /* that the machine trusts; NULL: TLS is not looked into */
    struct secret_grants grants;
    struct pg_database database;
    struct pending *pending;
    size_t held_bytes; /* of bodies that wait for an approval */
    int64_t looked_ms; /* for rules that have ended, since 1970 */
    struct conn *conns;
    size_t conn_count;
    uint64_t named_ms; /* since when so many names were new */
    unsigned named;
};

enum conn_state {
    CONN_FIRST,  /* waits for the first bytes */
    CONN_REFUSE, /* the same, only to refuse in the language it speaks */
    CONN_HELD,   /* a tunnel that waits for an approval */
    CONN_DIAL,   /* waits for the other side */
    CONN_RELAY,  /* bytes go through, unlooked at */
    CONN_WEB,    /* requests and answers go through, one by one */
    CONN_PG,     /* a session with a database, which is looked at until it is open */
    CONN_LINGER, /* everything is said: waits for the peer to have read it */
};

struct relay;
struct web;
struct pg;

struct conn {
    struct gate_machine *machine;
    struct conn *next, **at;
    enum conn_state state;
    bool is_proxy; /* came to the explicit proxy */
    bool ended;    /* to be freed when the stack has unwound */
    struct loop_call later;
    struct loop_call more; /* web: there is more to do, but others come first */
    bool timed_out;        /* nobody approved it in time */
    struct channel client, server;
    struct loop_timer *timer;

    char host[NAME_SIZE]; /* what it wants; empty: not known yet (proxy) */
    bool is_address;      /* host is an address that the machine used itself */
    uint16_t port;
    bool knows_protocol;
    enum policy_protocol protocol;
    uint64_t rule;       /* that allowed it */
    bool local;          /* that rule's */
    char sni[NAME_SIZE]; /* as TLS said it */
    bool is_hello;       /* it was a hello that can be answered */
    bool is_terminated;  /* TLS ends here */
    bool is_told;        /* its refusal is in the journal */
    char refusal[256];   /* why nothing it could say will be allowed; empty: nothing is decided */
    struct pending *held;
    struct conn *held_next;

    struct buf first; /* bytes that came and went nowhere yet */
    struct resolver_call *resolving;
    struct resolved addresses;
    size_t address; /* the next one to dial */
    bool tried;     /* one of them was */
    char address_text[48];
    void (*dialled)(struct conn *c, const struct err *err);
    uint64_t sent, received;
    uint64_t pause_ms; /* a rate: not read again before that */
    bool is_open;      /* counted as allowed: its end is told */
    bool approved;     /* somebody let it through */
    bool taints; /* a guarded machine is tainted because of it: it may finish, and send little */
    uint64_t sent_late; /* then: by a tunnel, after it was answered */

    struct relay *relay;
    struct web *web;
    struct pg *pg;
};

/* ---- conn.c ---- */

/* A connection that was accepted; takes the descriptor. */
void conn_new(struct gate_machine *m, int fd, bool is_proxy);
/* Frees it when the stack has unwound; with why (may be NULL) as the reason. reset: the peer is
 * told by a reset. */
void conn_end(struct conn *c, bool reset, const char *why);
void conn_free(struct conn *c);
void conn_begin(struct conn *c);
/* After CONNECT: host and port are known, c->first is what came behind it. */
void conn_restart(struct conn *c);
void conn_review(struct conn *c); /* the policy has changed */
/* Once nothing is left to say: waits a moment for the peer to read. */
void conn_linger(struct conn *c);

void conn_timer(struct conn *c, uint64_t ms); /* 0: none */
/* Its host is answered in this process, without TLS. */
bool conn_is_served(const struct conn *c);

/* About what it wants, as far as that is known; c->rule is the one that decided. */
struct policy_answer conn_decide(struct conn *c, const char *method, const char *path,
                                 const char *query);
struct policy_care conn_cares(const struct conn *c);
bool conn_tell(struct conn *c, enum gate_outcome outcome, const char *method, const char *path,
               const char *why);
/* False: that could not be written down, and it was ended. */
bool conn_tell_allowed(struct conn *c, const char *method, const char *path);

void conn_tell_secret(struct conn *c, const char *method, const char *path,
                      const struct secret_grant *grant);

/* Connects `server` to the host, under the rule that allowed it. Answered by fn, perhaps at once.
 */
void conn_dial(struct conn *c, const struct policy_rule *rule,
               void (*fn)(struct conn *c, const struct err *err));

/* Somebody has decided, or nobody in time; WAITS: ask the policy again. */
void conn_released(struct conn *c, enum pending_state state);

/* So many bytes may still go to the server. */
size_t conn_may_send(const struct conn *c);
/* Bytes that went one way. False: a budget is used up, and the connection has been ended. */
bool conn_count(struct conn *c, size_t sent, size_t received);

/* The answer that the machine reads: the error's JSON, as a whole HTTP response. */
bool refusal_response(const struct conn *c, const char *method, const char *why, struct buf *out);

/* ---- relay.c ---- */

struct relay_pool *relay_pool_new(void);
void relay_pool_free(struct relay_pool *p);
/* Takes over both channels' sockets. */
void relay_start(struct conn *c);
void relay_resume(struct conn *c); /* after a pause */
void relay_reset(struct relay *r); /* its ends will see a reset */
void relay_free(struct relay *r);

/* ---- web.c ---- */

/* Takes what is in c->first as the beginning of the first request. */
void web_start(struct conn *c);
void web_event(struct conn *c); /* either channel has something to say */
void web_released(struct conn *c, enum pending_state state);
void web_expire(struct conn *c); /* its time is up */
void web_free(struct web *w);
/* The policy has changed: asked again about what is under way. */
struct policy_answer web_decide_again(struct conn *c);
enum web_stage { WEB_IDLE, WEB_SENDS, WEB_RECEIVES };
enum web_stage web_stage(const struct conn *c);

/* ---- pg.c ---- */

/* It wants a server that is known here by one machine's grant only. */
bool pg_is_for(const struct conn *c);
/* Under the rule that allowed it; what is in c->first is the beginning. */
void pg_start(struct conn *c, const struct policy_rule *rule);
void pg_event(struct conn *c);
void pg_expire(struct conn *c);
void pg_free(struct pg *p);
