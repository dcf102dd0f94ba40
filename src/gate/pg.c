/* Opens a session with the machine's own database and checks its first packets: see gate/pg.h. */
#include "gate/pg.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "gate/address.h"
#include "gate/inner.h"
#include "gate/pg_wire.h"

/* SQLSTATE codes: invalid authorization, connection failed, protocol violation. */
#define NOT_ALLOWED "28000"
#define NOT_REACHED "08001"
#define NOT_UNDERSTOOD "08P01"

enum pg_state {
    PG_FIRST,     /* waiting for the machine's first packet */
    PG_DIAL,      /* connecting to the server */
    PG_ASK_TLS,   /* waiting for one byte that says whether the server supports TLS */
    PG_HANDSHAKE, /* TLS handshake with the server */
    PG_GREET,     /* authentication: the server's messages are inspected */
    PG_OPEN,      /* bytes are relayed without inspection */
};

struct pg {
    enum pg_state state;
    struct buf first;    /* bytes from the machine, up to its first packet */
    struct buf greeting; /* an incomplete message from the server */
    unsigned asked;      /* number of the machine's requests for TLS or Kerberos */
    bool client_ended, server_ended;
    struct pg_key key; /* the cancel key of this session */
};

enum pg_tls pg_tls_read(const char *sslmode) {
    static const struct {
        const char *name;
        enum pg_tls tls;
    } modes[] = {{"disable", PG_TLS_NEVER},
                 {"require", PG_TLS_ALWAYS},
                 {"verify-ca", PG_TLS_CHAIN},
                 {"verify-full", PG_TLS_NAME}};
    for (size_t i = 0; sslmode && i < sizeof(modes) / sizeof(*modes); i++)
        if (strcmp(modes[i].name, sslmode) == 0)
            return modes[i].tls;
    return PG_TLS_IF_OFFERED;
}

void pg_free(struct pg *p) {
    if (!p)
        return;
    buf_done(&p->first);
    buf_done(&p->greeting);
    free(p);
}

static const struct pg_database *database_of(const struct conn *c) {
    const struct pg_database *d = &c->machine->database;
    return strcmp(d->host, c->host) == 0 ? d : NULL;
}

bool pg_is_for(const struct conn *c) {
    return !c->is_address && name_is_below(c->host, PG_HOSTS_BELOW);
}

/* Refuses with a PostgreSQL error, which the client can show. */
static void pg_refuse(struct conn *c, const char *code, const char *why) {
    struct buf out DEFER(buf_done) = BUF(4096);
    conn_tell(c, GATE_DENIED, NULL, NULL, why);
    channel_close(&c->server);
    if (pg_put_error(code, why, "reported by the gate of the machine, not by the server", &out) &&
        channel_write(&c->client, out.data, out.len))
        conn_linger(c);
    else
        conn_end(c, true, NULL);
}

/* ---- connecting to the server ---- */

static bool send_first(struct conn *c) {
    struct pg *p = c->pg;
    if (!conn_tell_allowed(c, NULL, NULL))
        return false;
    p->state = PG_GREET;
    conn_timer(c, 0);
    bool ok = channel_write(&c->server, p->first.data, p->first.len);
    if (ok)
        ok = conn_count(c, p->first.len, 0);
    else
        conn_end(c, true, "the connection broke");
    buf_done(&p->first);
    p->first = BUF(PG_FIRST_MAX);
    return ok;
}

static bool begin_handshake(struct conn *c) {
    const struct pg_database *d = database_of(c);
    char address[ADDRESS_TEXT_SIZE];
    enum trust_proof proof = d && d->tls == PG_TLS_NAME    ? TRUST_NAME
                             : d && d->tls == PG_TLS_CHAIN ? TRUST_CHAIN
                                                           : TRUST_ANYBODY;
    SSL *ssl = d ? trust_connect_any(c->machine->gate->trust, d->server,
                                     address_read(d->server, strlen(d->server), address), proof)
                 : NULL;
    if (!ssl) {
        pg_refuse(c, NOT_REACHED, "cannot prepare TLS with the database server");
        return false;
    }
    channel_secure(&c->server, ssl, NULL, 0);
    c->pg->state = PG_HANDSHAKE;
    return true;
}

/* Reads the server's answer to the request for TLS. Reads only one byte, because the bytes after it
 * belong to TLS. */
static bool step_ask(struct conn *c) {
    const struct pg_database *d = database_of(c);
    char byte = 0;
    ssize_t n = channel_read(&c->server, &byte, 1);
    if (n == -EAGAIN)
        return false;
    if (n == 1 && byte == 'S')
        return begin_handshake(c);
    if (n == 1 && byte == 'N' && d && d->tls == PG_TLS_IF_OFFERED)
        return send_first(c);
    pg_refuse(c, NOT_REACHED,
              n == 1 && byte == 'N'
                  ? "the database server does not support TLS, which the owner requires"
                  : "the database server did not answer the request for TLS");
    return false;
}

static bool step_handshake(struct conn *c) {
    struct err err;
    int r = channel_handshake(&c->server, &err);
    if (r > 0)
        return send_first(c);
    if (r < 0)
        pg_refuse(c, NOT_REACHED, err.text);
    return false;
}

static void pg_dialled(struct conn *c, const struct err *err) {
    uint8_t request[PG_REQUEST_BYTES];
    const struct pg_database *d = database_of(c);
    if (err || !d) {
        pg_refuse(c, NOT_REACHED, err ? err->text : "the grant of the database was revoked");
        return;
    }
    if (d->tls == PG_TLS_NEVER) {
        if (send_first(c))
            pg_event(c);
        return;
    }
    pg_put_tls_request(request);
    c->pg->state = PG_ASK_TLS;
    conn_timer(c, GATE_DIAL_MS);
    if (channel_write(&c->server, request, sizeof(request)))
        pg_event(c);
    else
        pg_refuse(c, NOT_REACHED, "the database server closed the connection");
}

/* ---- the machine's first packet ---- */

static bool is_own_key(const struct conn *c, const struct pg_key *key) {
    for (const struct conn *other = c->machine->conns; other; other = other->next)
        if (other->pg && !other->ended && pg_key_equal(&other->pg->key, key))
            return true;
    return false;
}

/* Returns the reason to refuse the first packet; NULL: allowed. */
static const char *check_first(const struct conn *c, enum pg_first what,
                               const struct pg_startup *s) {
    const struct pg_database *d = database_of(c);
    if (!d)
        return "the machine was not granted a database on this server";
    if (what == PG_CANCEL)
        return is_own_key(c, &s->key)
                   ? NULL
                   : "the request would cancel a session that does not belong to the machine";
    if (s->replicates)
        return "replication is not allowed";
    if (strcmp(s->user, d->name) != 0)
        return "only the machine's own role may log in";
    return strcmp(s->database, d->name) == 0 ? NULL : "only the machine's own database may be used";
}

/* Declines a request for TLS or Kerberos: the client is on this host. */
static bool answer_request(struct conn *c, size_t size) {
    struct pg *p = c->pg;
    buf_drop(&p->first, size);
    if (++p->asked > 2) {
        pg_refuse(c, NOT_UNDERSTOOD, "the client sent too many requests for TLS");
        return false;
    }
    if (channel_write(&c->client, "N", 1))
        return true;
    conn_end(c, true, NULL);
    return false;
}

static bool judge_first(struct conn *c) {
    struct pg *p = c->pg;
    struct pg_startup s;
    enum pg_first what = pg_first_read((const uint8_t *)p->first.data, p->first.len, &s);
    if (what == PG_MORE)
        return false;
    if (what == PG_WANTS_TLS)
        return answer_request(c, s.size);
    const char *wrong = what == PG_BAD ? "the first packet of the client is not a PostgreSQL packet"
                                       : check_first(c, what, &s);
    struct policy_rule *rule = policy_find(&c->machine->policy, c->rule);
    if (!wrong && !rule)
        wrong = "the network policy of the machine has changed";
    if (wrong) {
        pg_refuse(c, what == PG_BAD ? NOT_UNDERSTOOD : NOT_ALLOWED, wrong);
        return false;
    }
    p->state = PG_DIAL;
    conn_dial(c, rule, pg_dialled);
    return false;
}

static bool step_first(struct conn *c) {
    struct pg *p = c->pg;
    char bytes[4096];
    if (p->first.len && judge_first(c))
        return true;
    if (c->ended || c->state != CONN_PG || p->state != PG_FIRST)
        return false;
    ssize_t n = channel_read(&c->client, bytes, sizeof(bytes));
    if (n == -EAGAIN)
        return false;
    if (n <= 0)
        conn_end(c, true, NULL);
    else if (!buf_add(&p->first, bytes, (size_t)n))
        pg_refuse(c, NOT_UNDERSTOOD, "the first packet of the client is too long");
    else
        return true;
    return false;
}

/* ---- relaying ---- */

/* Relays one piece of bytes in one direction. True: bytes were moved. */
static bool pump(struct conn *c, bool out, bool *ended) {
    struct channel *from = out ? &c->client : &c->server, *to = out ? &c->server : &c->client;
    char bytes[16384];
    if (*ended || channel_backlog(to) > GATE_BACKLOG)
        return false;
    ssize_t n = channel_read(from, bytes, sizeof(bytes));
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        *ended = true;
        channel_finish(to);
        return false;
    }
    if (!channel_write(to, bytes, (size_t)n)) {
        conn_end(c, true, "the connection broke");
        return false;
    }
    return conn_count(c, out ? (size_t)n : 0, out ? 0 : (size_t)n);
}

/* Relays a message of the server. Removes authentication mechanisms with channel binding, which
 * cannot work, because TLS with the server ends at the gate. */
static bool pass_message(struct conn *c, const struct pg_message *m) {
    struct buf ways DEFER(buf_done) = BUF(PG_GREETING_MAX);
    pg_key_read(m, &c->pg->key);
    if (!c->server.ssl || !pg_offers_ways(m))
        return channel_write(&c->client, m->body - 5, m->size);
    return pg_put_ways(m, &ways) && channel_write(&c->client, ways.data, ways.len);
}

static bool step_greeting(struct conn *c) {
    struct pg *p = c->pg;
    struct pg_message m;
    char bytes[4096];
    ssize_t n = channel_read(&c->server, bytes, sizeof(bytes));
    if (n == -EAGAIN)
        return false;
    if (n <= 0) {
        p->server_ended = true;
        channel_finish(&c->client);
        return false;
    }
    int r = buf_add(&p->greeting, bytes, (size_t)n) ? 1 : -1;
    while (r > 0 && p->state == PG_GREET) {
        r = pg_message_read((const uint8_t *)p->greeting.data, p->greeting.len, &m);
        if (r <= 0)
            break;
        p->state = m.kind == 'Z' ? PG_OPEN : PG_GREET;
        r = pass_message(c, &m) ? 1 : -1;
        buf_drop(&p->greeting, m.size);
    }
    if (r >= 0 && p->state == PG_OPEN && p->greeting.len)
        r = channel_write(&c->client, p->greeting.data, p->greeting.len) ? 1 : -1;
    if (r < 0) {
        conn_end(c, true, "the first messages of the database server are malformed");
        return false;
    }
    return conn_count(c, 0, (size_t)n);
}

/* Hands an open session without TLS to relay.c, which moves bytes faster. */
static bool hand_over(struct conn *c) {
    if (c->pg->state != PG_OPEN || c->pause_ms || c->server.ssl || channel_backlog(&c->client) ||
        channel_backlog(&c->server) || c->pg->client_ended || c->pg->server_ended)
        return false;
    relay_start(c);
    return true;
}

static bool step_flow(struct conn *c) {
    struct pg *p = c->pg;
    bool moved = pump(c, true, &p->client_ended);
    if (c->ended)
        return false;
    moved |= p->state == PG_GREET ? !p->server_ended && step_greeting(c)
                                  : pump(c, false, &p->server_ended);
    if (!c->ended && p->client_ended && p->server_ended)
        conn_end(c, false, NULL);
    return moved;
}

static bool step(struct conn *c) {
    switch (c->pg->state) {
    case PG_FIRST:
        return step_first(c);
    case PG_ASK_TLS:
        return step_ask(c);
    case PG_HANDSHAKE:
        return step_handshake(c);
    case PG_GREET:
    case PG_OPEN:
        return step_flow(c);
    default:
        return false;
    }
}

static bool pg_is_over(const struct conn *c) {
    return c->ended || c->state != CONN_PG;
}

static void arm(struct conn *c) {
    const struct pg *p = c->pg;
    bool flows = p->state >= PG_GREET, paused = c->pause_ms != 0;
    channel_listen(&c->client, !paused && (p->state == PG_FIRST ||
                                           (flows && !p->client_ended &&
                                            channel_backlog(&c->server) <= GATE_BACKLOG)));
    if (p->state > PG_DIAL && c->server.fd >= 0)
        channel_listen(&c->server,
                       !paused && !p->server_ended && channel_backlog(&c->client) <= GATE_BACKLOG);
}

void pg_event(struct conn *c) {
    bool moved = true;
    if (c->client.broken || (c->pg->state >= PG_GREET && c->server.broken)) {
        conn_end(c, true, "the connection broke");
        return;
    }
    for (int turn = 0; moved && turn < 64 && !pg_is_over(c) && !c->pause_ms; turn++)
        moved = step(c);
    if (pg_is_over(c) || hand_over(c))
        return;
    arm(c);
    if (moved && !c->pause_ms)
        loop_defer(c->machine->gate->loop, &c->more);
}

void pg_expire(struct conn *c) {
    if (c->pause_ms) {
        c->pause_ms = 0;
        pg_event(c);
    } else if (c->pg->state == PG_FIRST) {
        pg_refuse(c, NOT_UNDERSTOOD, "the first packet of the client did not arrive in time");
    } else {
        pg_refuse(c, NOT_REACHED, "the database server does not answer");
    }
}

void pg_start(struct conn *c, const struct policy_rule *rule) {
    struct pg *p = xnew(struct pg);
    p->first = BUF(PG_FIRST_MAX);
    p->greeting = BUF(PG_GREETING_MAX + 4096);
    pg_free(c->pg);
    c->pg = p;
    c->rule = rule->id;
    c->state = CONN_PG;
    c->knows_protocol = true;
    c->protocol = PROTOCOL_TCP;
    conn_timer(c, GATE_FIRST_MS);
    if (!buf_add(&p->first, c->first.data ? c->first.data : "", c->first.len)) {
        pg_refuse(c, NOT_UNDERSTOOD, "the first packet of the client is too long");
        return;
    }
    buf_done(&c->first);
    c->first = BUF(HELLO_MAX);
    pg_event(c);
}
