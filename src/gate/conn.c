/* One connection of a machine: reads the first bytes, decides by policy, connects to the server. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "gate/address.h"
#include "gate/inner.h"

enum { METHOD_MAX = 16 };

static void on_client(void *arg);
static void conn_look(struct conn *c);

/* ---- start, timeouts and end ---- */

static void expire(struct conn *c) {
    switch (c->state) {
    case CONN_FIRST:
        c->knows_protocol = true;
        c->protocol = PROTOCOL_TCP; /* the client seems to wait for the server to send first */
        conn_look(c);
        break;
    case CONN_REFUSE:
        conn_end(c, true, NULL);
        break;
    case CONN_LINGER:
        conn_end(c, false, NULL);
        break;
    case CONN_RELAY:
        c->pause_ms = 0;
        relay_resume(c);
        break;
    case CONN_WEB:
        web_expire(c);
        break;
    case CONN_PG:
        pg_expire(c);
        break;
    default:
        break;
    }
}

static void on_timer(void *arg) {
    struct conn *c = arg;
    if (c->ended)
        return;
    if (c->dialled && c->server.fd >= 0)
        conn_dial_next(c, "no answer");
    else
        expire(c);
}

void conn_timer(struct conn *c, uint64_t ms) {
    if (!ms) {
        loop_timer_stop(c->timer);
        return;
    }
    loop_timer_start(c->timer, ms, 0);
}

static void go_on(void *arg) {
    struct conn *c = arg;
    if (!c->ended && c->state == CONN_WEB)
        web_event(c);
    else if (!c->ended && c->state == CONN_PG)
        pg_event(c);
}

static void free_later(void *arg) {
    conn_free(arg);
}

void conn_free(struct conn *c) {
    struct loop *loop = c->machine->gate->loop;
    *c->at = c->next;
    if (c->next)
        c->next->at = c->at;
    c->machine->conn_count--;
    c->machine->gate->stats.open--;
    loop_call_cancel(loop, &c->later);
    loop_call_cancel(loop, &c->more);
    pending_leave(c);
    resolver_cancel(c->resolving);
    loop_timer_free(c->timer);
    web_free(c->web);
    pg_free(c->pg);
    relay_free(c->relay);
    channel_close(&c->client);
    channel_close(&c->server);
    buf_done(&c->first);
    free(c);
}

static void set_linger(int fd) {
    struct linger now = {.l_onoff = 1};
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

void conn_end(struct conn *c, bool reset, const char *why) {
    if (c->ended)
        return;
    c->ended = true;
    conn_timer(c, 0);
    pending_leave(c);
    if (c->is_open)
        conn_tell(c, GATE_CLOSED, NULL, NULL, why);
    if (reset) {
        if (c->relay)
            relay_reset(c->relay);
        set_linger(c->client.fd);
    }
    loop_defer(c->machine->gate->loop, &c->later);
}

static void conn_add(struct gate_machine *m, int fd, const struct conn *kind) {
    struct conn *c = xnew(struct conn);
    struct err err;
    *c = *kind;
    c->machine = m;
    c->first = BUF(HELLO_MAX);
    c->client.fd = c->server.fd = -1;
    c->later = (struct loop_call){.fn = free_later, .arg = c};
    c->more = (struct loop_call){.fn = go_on, .arg = c};
    c->next = m->conns;
    c->at = &m->conns;
    if (c->next)
        c->next->at = &c->next;
    m->conns = c;
    m->conn_count++;
    m->gate->stats.open++;
    c->timer = loop_timer_new(m->gate->loop, on_timer, c);
    if (channel_open(&c->client, m->gate->loop, fd, on_client, c, &err) < 0) {
        conn_end(c, true, err.text);
        return;
    }
    conn_begin(c);
}

void conn_new(struct gate_machine *m, int fd, bool is_proxy) {
    conn_add(m, fd, &(struct conn){.is_proxy = is_proxy});
}

/* As if the gate had terminated TLS: requests are decided one by one, and go to a TLS server. */
void conn_new_inside(struct gate_machine *m, int fd, bool is_tls) {
    conn_add(m, fd,
             &(struct conn){.is_proxy = true,
                            .is_terminated = is_tls,
                            .knows_protocol = is_tls,
                            .protocol = is_tls ? PROTOCOL_TLS : PROTOCOL_HTTP});
}

void conn_linger(struct conn *c) {
    c->state = CONN_LINGER;
    channel_finish(&c->client);
    channel_listen(&c->client, true);
    conn_timer(c, GATE_LINGER_MS);
}

/* ---- deciding ---- */

static struct policy_query query_of(const struct conn *c, const char *method, const char *path,
                                    const char *query) {
    return (struct policy_query){.host = c->host,
                                 .port = c->port,
                                 .knows_protocol = c->knows_protocol,
                                 .protocol = c->protocol,
                                 .method = method,
                                 .path = path,
                                 .query = query,
                                 .now_ms = wall_ms()};
}

struct policy_care conn_cares(const struct conn *c) {
    const struct policy_query q = query_of(c, NULL, NULL, NULL);
    return policy_cares(&c->machine->policy, &q);
}

const struct policy_rule *conn_denied(const struct conn *c, const struct sockaddr *to) {
    const struct policy_query q = query_of(c, NULL, NULL, NULL);
    return policy_denies_address(&c->machine->policy, c->rule, &q, to);
}

bool conn_is_cut_off(const struct conn *c) {
    return c->address_text[0] && c->address &&
           conn_denied(c, (const struct sockaddr *)&c->addresses.list[c->address - 1]);
}

struct policy_answer conn_decide(struct conn *c, const char *method, const char *path,
                                 const char *query) {
    const struct policy_query q = query_of(c, method, path, query);
    struct policy_answer a = policy_decide(&c->machine->policy, &q);
    c->rule = a.rule ? a.rule->id : 0;
    return a;
}

static struct gate_crossing crossing_of(const struct conn *c, enum gate_outcome outcome,
                                        const char *method, const char *path) {
    return (struct gate_crossing){
        .outcome = outcome,
        .host = c->host,
        .port = c->port,
        .protocol = c->knows_protocol ? policy_protocol_name(c->protocol) : NULL,
        .method = method,
        .path = path,
        .address = c->address_text[0] ? c->address_text : NULL,
        .rule = c->rule,
        .pending = c->held ? c->held->id : NULL,
        .sent = c->sent,
        .received = c->received,
        .cached = c->cached && outcome == GATE_ALLOWED,
    };
}

static bool tell_crossing(struct conn *c, const struct gate_crossing *crossing) {
    struct gate *g = c->machine->gate;
    enum gate_outcome outcome = crossing->outcome;
    g->stats.allowed += outcome == GATE_ALLOWED;
    g->stats.denied += outcome == GATE_DENIED;
    const struct policy *p = &c->machine->policy;
    bool was_closed = policy_is_closed(p);
    if (outcome == GATE_ALLOWED)
        c->is_open = true;
    bool explain = g->hooks->crossed(g->arg, c->machine->id, crossing);
    if (outcome == GATE_ALLOWED && !was_closed && policy_is_closed(p)) {
        c->taints = true;
        gate_changed(c->machine); /* other connections may no longer be allowed */
    }
    return explain;
}

bool conn_tell(struct conn *c, enum gate_outcome outcome, const char *method, const char *path,
               const char *why) {
    struct gate_crossing crossing = crossing_of(c, outcome, method, path);
    crossing.why = why;
    return tell_crossing(c, &crossing);
}

void conn_tell_failed(struct conn *c, const char *method, const char *path, const char *why) {
    struct gate_crossing crossing = crossing_of(c, GATE_DENIED, method, path);
    crossing.why = why;
    crossing.failed = true;
    tell_crossing(c, &crossing);
}

bool conn_tell_allowed(struct conn *c, const char *method, const char *path) {
    /* The server may have answered by now, so stop reading from it. */
    if (!conn_tell(c, GATE_ALLOWED, method, path, NULL))
        conn_end(c, true, "cannot store that the machine has read data from an untrusted source");
    return !c->ended;
}

void conn_tell_secret(struct conn *c, const char *method, const char *path,
                      const struct secret_grant *grant) {
    struct gate *g = c->machine->gate;
    struct gate_crossing crossing = crossing_of(c, GATE_USED, method, path);
    crossing.secret = grant->name;
    crossing.way = secret_way_name(grant->way);
    g->hooks->crossed(g->arg, c->machine->id, &crossing);
}

/* ---- refusing ---- */

/* Terminates TLS at the gate, with a certificate that the machine trusts, so that web.c can decide
 * about each request. */
static void terminate(struct conn *c) {
    SSL *ssl = authority_accept(c->machine->authority, c->sni[0] ? c->sni : c->host);
    if (!ssl) {
        conn_end(c, true, "the gate could not make a certificate for the host");
        return;
    }
    channel_secure(&c->client, ssl, c->first.data, c->first.len);
    buf_done(&c->first);
    c->first = BUF(HELLO_MAX);
    c->is_terminated = true;
    web_start(c);
}

static bool can_terminate(const struct conn *c) {
    return c->knows_protocol && c->protocol == PROTOCOL_TLS && c->machine->authority &&
           c->machine->gate->trust && !c->is_terminated && c->is_hello;
}

/* The fatal TLS alert `access_denied`, unencrypted. A client that does not trust the machine's CA
 * (gate/authority.h) can read no other answer. */
static const char tls_denied[] = {21, 3, 3, 0, 2, 2, 49};

/* Refuses a connection that is not HTTP; web.c answers those. Inside TLS the client gets an answer
 * if the machine has a CA. Another TLS client gets an alert, and any other client a reset. */
static void conn_explain_refusal(struct conn *c, const char *why, enum remedy remedy) {
    bool explain = conn_tell(c, GATE_DENIED, NULL, NULL, why);
    c->is_told = true;
    if (!explain) {
        conn_end(c, true, NULL);
        return;
    }
    if (can_terminate(c)) {
        if (why != c->refusal)
            snprintf(c->refusal, sizeof(c->refusal), "%s", why);
        c->remedy = remedy;
        terminate(c);
        return;
    }
    bool is_tls = c->knows_protocol && c->protocol == PROTOCOL_TLS && c->is_hello;
    if (is_tls && !c->is_terminated && channel_write(&c->client, tls_denied, sizeof(tls_denied)))
        conn_linger(c);
    else
        conn_end(c, true, NULL);
}

/* The policy denies the connection whatever follows. Waits for the first bytes only to refuse in
 * the protocol of the client. */
static void await_to_refuse(struct conn *c, const struct policy_answer *a) {
    c->state = CONN_REFUSE;
    snprintf(c->refusal, sizeof(c->refusal), "%s", a->why);
    c->remedy = remedy_of(a);
    channel_listen(&c->client, true);
    conn_timer(c, GATE_DENIED_MS);
}

/* ---- tunnels: bytes that are not inspected ---- */

static void tunnel_open(struct conn *c, const struct err *err) {
    if (!err) {
        if (conn_tell_allowed(c, NULL, NULL))
            relay_start(c);
    } else if (err->code == ERR_DENIED) {
        conn_explain_refusal(c, err->text, c->dial_remedy);
    } else {
        conn_tell_failed(c, NULL, NULL, err->text);
        conn_end(c, true, NULL);
    }
}

static void open_tunnel(struct conn *c, const struct policy_rule *rule) {
    if (pg_is_for(c)) {
        pg_start(c, rule);
        return;
    }
    c->state = CONN_DIAL;
    conn_dial(c, rule, tunnel_open);
}

static void hold_tunnel(struct conn *c, const struct policy_rule *rule) {
    const struct pending_wish w = {.method = "", .path = "", .query = "", .hash = "", .fields = ""};
    struct pending *p = pending_for(c, &w, rule->hold_ms);
    if (!p) {
        conn_explain_refusal(c, "too many requests already wait for approval", REMEDY_APPROVE);
    } else if (pending_use(p)) {
        c->approved = true;
        open_tunnel(c, rule);
    } else {
        bool first = !p->held;
        if (policy_asks_first(rule)) {
            conn_explain_refusal(c, POLICY_NOT_YET, REMEDY_RETRY);
            return;
        }
        c->state = CONN_HELD;
        conn_timer(c, 0);
        channel_listen(&c->client, false);
        pending_hold(p, c);
        if (first)
            conn_tell(c, GATE_HELD, NULL, NULL, NULL);
    }
}

void conn_released(struct conn *c, enum pending_state state) {
    const struct policy_rule *rule = policy_find(&c->machine->policy, c->rule);
    if (c->ended)
        return;
    c->approved = state == PENDING_APPROVED && rule;
    if (c->state == CONN_WEB)
        web_released(c, state);
    else if (state == PENDING_WAITS || (state == PENDING_APPROVED && !rule))
        conn_look(c);
    else if (state == PENDING_APPROVED)
        open_tunnel(c, rule);
    else if (state == PENDING_EXPIRED)
        conn_explain_refusal(c, "the request was not approved in time", REMEDY_APPROVE);
    else
        conn_explain_refusal(c, "the owner denied the request", REMEDY_NONE);
}

/* ---- the first bytes ---- */

/* 1: the bytes begin with an HTTP method and a space. 0: more bytes are needed. -1: not HTTP. */
static int looks_like_http(const char *p, size_t n) {
    for (size_t i = 0; i < n && i <= METHOD_MAX; i++) {
        if (p[i] == ' ')
            return i > 0 ? 1 : -1;
        if (p[i] < 'A' || p[i] > 'Z')
            return -1;
    }
    return n > METHOD_MAX ? -1 : 0;
}

static void speaks(struct conn *c, enum policy_protocol protocol) {
    c->knows_protocol = true;
    c->protocol = protocol;
}

/* The machine connected to a synthetic address, which stands for a host name. The server name in
 * the ClientHello must be this name. */
static const char *check_hello(const struct conn *c, enum hello_verdict v, const struct hello *h) {
    if (v == HELLO_BAD)
        return "malformed TLS ClientHello";
    if (v == HELLO_UNNAMED)
        return c->is_address ? NULL : "the TLS ClientHello has no server name";
    if (strcmp(h->name, c->host) != 0)
        return "the server name in the TLS ClientHello differs from the host of the connection";
    return NULL;
}

/* Detects the protocol from the first bytes. False: more bytes are needed. */
static bool find_protocol(struct conn *c, const char **ret_wrong) {
    struct hello hello;
    const uint8_t *p = (const uint8_t *)c->first.data;
    size_t n = c->first.len;
    enum hello_verdict v = hello_read(p, n, &hello);
    if (v == HELLO_MORE)
        return false;
    if (v != HELLO_NOT_TLS) {
        speaks(c, PROTOCOL_TLS);
        c->is_hello = v != HELLO_BAD;
        memcpy(c->sni, hello.name, sizeof(c->sni));
        *ret_wrong = check_hello(c, v, &hello);
        return true;
    }
    int http = looks_like_http(c->first.data, n);
    if (http == 0)
        return false;
    speaks(c, http > 0 ? PROTOCOL_HTTP : PROTOCOL_TCP);
    return true;
}

/* Carries out the decision of the policy. No request was read yet. */
static void act(struct conn *c, const struct policy_answer *a) {
    bool asks = a->want != POLICY_KNOWN || a->action == POLICY_ASK ||
                (a->action == POLICY_ALLOW &&
                 (conn_is_served(c) || secret_grants_for(gate_grants(c->machine), c->host)));
    if (asks && can_terminate(c))
        terminate(c); /* decide or ask for each request */
    else if (a->want != POLICY_KNOWN)
        conn_explain_refusal(c,
                             "a rule depends on the request, but the gate cannot read the requests "
                             "of this connection",
                             REMEDY_ALLOW);
    else if (a->action == POLICY_ALLOW)
        open_tunnel(c, a->rule);
    else if (a->action == POLICY_ASK)
        hold_tunnel(c, a->rule);
    else
        conn_explain_refusal(c, a->why, remedy_of(a));
}

static void conn_look(struct conn *c) {
    const char *wrong = NULL;
    if (!c->knows_protocol && c->first.len && !find_protocol(c, &wrong))
        return;
    struct policy_answer a = conn_decide(c, NULL, NULL, NULL);
    if (wrong) {
        conn_explain_refusal(c, wrong, REMEDY_NONE);
    } else if (c->knows_protocol && c->protocol == PROTOCOL_HTTP) {
        web_start(c); /* decides about each request */
    } else if (c->state == CONN_REFUSE && c->knows_protocol) {
        conn_explain_refusal(c, c->refusal, c->remedy);
    } else if (c->knows_protocol || (a.want == POLICY_KNOWN && a.action != POLICY_DENY)) {
        act(c, &a);
    } else if (a.want == POLICY_KNOWN) {
        await_to_refuse(c, &a);
    } else {
        c->state = CONN_FIRST;
        channel_listen(&c->client, true);
        conn_timer(c, GATE_FIRST_MS);
    }
}

static void read_first(struct conn *c) {
    char bytes[4096];
    ssize_t n = channel_read(&c->client, bytes, sizeof(bytes));
    if (n == -EAGAIN)
        return;
    if (n <= 0)
        conn_end(c, true, NULL);
    else if (!buf_add(&c->first, bytes, (size_t)n))
        conn_explain_refusal(c, "too many bytes arrived before the protocol was known",
                             REMEDY_NONE);
    else if (c->is_proxy && !c->host[0])
        web_start(c);
    else
        conn_look(c);
}

/* Discards bytes that the client sends after the refusal. */
static void read_rest(struct conn *c) {
    char bytes[4096];
    ssize_t n;
    size_t most = 1 << 20;
    while ((n = channel_read(&c->client, bytes, sizeof(bytes))) > 0 && most > (size_t)n)
        most -= (size_t)n;
    if (n != -EAGAIN)
        conn_end(c, n > 0, NULL);
}

static void on_client(void *arg) {
    struct conn *c = arg;
    if (c->ended)
        return;
    switch (c->state) {
    case CONN_FIRST:
    case CONN_REFUSE:
        read_first(c);
        break;
    case CONN_WEB:
        web_event(c);
        break;
    case CONN_PG:
        pg_event(c);
        break;
    case CONN_LINGER:
        read_rest(c);
        break;
    default:
        break; /* these states do not read: the event is an error, which the next write reports */
    }
}

/* Finds the destination: the address that the machine connected to and, if the address is
 * synthetic, the name it stands for. False: the machine connected to the gate's own port. */
static bool find_target(struct conn *c) {
    struct sockaddr_in to;
    socklen_t size = sizeof(to);
    if (getsockname(c->client.fd, (struct sockaddr *)&to, &size) < 0 || to.sin_family != AF_INET)
        return false;
    uint32_t address = ntohl(to.sin_addr.s_addr);
    const char *name = names_find(&c->machine->names, address);
    c->port = ntohs(to.sin_port);
    c->is_address = !name;
    if (name)
        snprintf(c->host, sizeof(c->host), "%s", name);
    else
        address_text((struct sockaddr *)&to, c->host);
    return address >> 24 != 127;
}

void conn_begin(struct conn *c) {
    setsockopt(c->client.fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (c->is_proxy) {
        c->state = CONN_FIRST;
        channel_listen(&c->client, true);
        conn_timer(c, GATE_FIRST_MS);
    } else if (!find_target(c)) {
        conn_explain_refusal(c, "the destination is the gate itself", REMEDY_NONE);
    } else {
        conn_look(c);
    }
}

/* Bytes after CONNECT are handled like those of a connection that did not use the proxy. */
void conn_restart(struct conn *c) {
    c->is_proxy = false;
    c->knows_protocol = false;
    c->state = CONN_FIRST;
    conn_look(c);
}
