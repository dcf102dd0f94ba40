/*
 * Requests and answers, one by one: the gate between two HTTP/1.1 connections.
 *
 * Nothing is passed on as it came. Heads are parsed by the one strict parser of this project and
 * written anew, bodies are framed anew: what the server reads is what was decided about, and there
 * is no room between two readings to smuggle anything through. One request is under way at a time;
 * the next is not looked at before the answer has ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "gate/address.h"
#include "gate/inner.h"

enum { IN_SIZE = 20480, PIECE = 16384, METHOD_SIZE = 32, HEAD_OUT_MAX = 65536 };

enum request_state {
    REQUEST_HEAD,
    REQUEST_HELD, /* it waits for an approval */
    REQUEST_DIAL, /* it is allowed, and waits for the server */
    REQUEST_BODY,
    REQUEST_SENT, /* the answer is not over yet */
};

enum answer_state { ANSWER_NONE, ANSWER_HEAD, ANSWER_BODY };

/* One side's bytes: the buffer stays where it is, as the parser wants it. */
struct side {
    char in[IN_SIZE];
    size_t n;
    bool ended;
    bool parsing;
    struct http_parser parser;
    struct http_head head;
    struct http_body body;
};

/* What a machine with secrets needs besides: values while a request is under way, and no longer. */
struct shield {
    struct secret_uses uses;
    struct needles forbidden;  /* placeholders, in what it sends */
    struct needles masked;     /* values, in what comes back */
    struct buf sent, received; /* held back, of either */
};

struct web {
    struct side client, server;
    enum request_state request;
    enum answer_state answer;
    bool handshaking;  /* with the server */
    bool tunnel;       /* after 101: bytes both ways */
    bool keeps_client; /* the machine's connection serves another request */
    bool keeps_server;
    bool wants_upgrade; /* to a websocket */
    bool recode;        /* the answer goes out in chunks */
    bool old_client;    /* HTTP/1.0: no chunks */
    bool answered;      /* a part of the answer has gone out */
    char method[METHOD_SIZE];
    char *path;
    uint64_t server_rule;  /* under which the server was dialled */
    bool is_timed;         /* a head has begun, and has its time */
    struct shield *shield; /* NULL: there is nothing to hide */
};

static void shield_free(struct shield *s) {
    if (!s)
        return;
    secret_uses_done(&s->uses);
    needles_done(&s->forbidden);
    needles_done(&s->masked);
    secret_wipe(&s->sent);
    secret_wipe(&s->received);
    free(s);
}

void web_free(struct web *w) {
    if (!w)
        return;
    shield_free(w->shield);
    free(w->path);
    free(w);
}

static void client_waits(struct conn *c, uint64_t ms) {
    if (!c->pause_ms)
        conn_timer(c, ms);
}

/* ---- refusing ---- */

static void say_no(struct conn *c, const char *why) {
    struct buf out DEFER(buf_done) = BUF(16384);
    struct web *w = c->web;
    if (!c->is_told)
        conn_tell(c, GATE_DENIED, w->method[0] ? w->method : NULL, w->path, why);
    channel_close(&c->server);
    if (refusal_response(c, w->method, why, &out) && channel_write(&c->client, out.data, out.len))
        conn_linger(c);
    else
        conn_end(c, true, NULL);
}

/* What cannot be read, or a server that cannot: an answer of a few words. */
static void say_status(struct conn *c, int status, const char *why) {
    struct buf out DEFER(buf_done) = BUF(4096);
    if (c->web->answered || !http_put_status_line(&out, status) ||
        !http_put_pairs(&out,
                        HTTP_FIELDS({"Content-Type", "text/plain"}, {"Connection", "close"})) ||
        !http_put_number(&out, "Content-Length", strlen(why) + 1) || !http_put_end(&out) ||
        !buf_addf(&out, "%s\n", why) || !channel_write(&c->client, out.data, out.len)) {
        conn_end(c, true, why);
        return;
    }
    channel_close(&c->server);
    conn_linger(c);
}

/* A request that was never one. */
static void refuse_unread(struct conn *c, int status, const char *why) {
    conn_tell(c, GATE_DENIED, NULL, NULL, why);
    say_status(c, status, why);
}

/* ---- bytes ---- */

/* 1: some came or are there. 0: none now. -1: none will. */
static int fill(struct side *s, struct channel *ch) {
    if (s->ended || s->n == sizeof(s->in))
        return s->ended ? -1 : 1;
    ssize_t got = channel_read(ch, s->in + s->n, sizeof(s->in) - s->n);
    if (got == -EAGAIN)
        return 0;
    if (got <= 0) {
        s->ended = true;
        return -1;
    }
    s->n += (size_t)got;
    return 1;
}

static void consume(struct side *s, size_t n) {
    s->n -= n;
    memmove(s->in, s->in + n, s->n);
}

/* As http_parse(), with reading. */
static int read_head(struct side *s, struct channel *ch, enum http_kind kind, bool answers_head) {
    if (!s->parsing) {
        http_parse_begin(&s->parser, kind, &HTTP_LIMITS_DEFAULT, &s->head);
        s->parser.answers_head = answers_head;
        s->parsing = true;
    }
    for (;;) {
        int r = s->n ? http_parse(&s->parser, s->in, s->n) : 0;
        if (r != 0 || fill(s, ch) <= 0)
            return r;
    }
}

/* ---- heads ---- */

/* Of this connection alone (RFC 9110, 7.6.1), or for proxies; ours are written anew. */
static const char *const dropped[] = {
    "Connection",
    "Keep-Alive",
    "Proxy-Connection",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "TE",
    "Trailer",
    "Upgrade",
    "HTTP2-Settings",
    "Content-Length",
    "Transfer-Encoding",
    "Host",
};

static bool is_dropped(const struct http_head *h, struct http_text name) {
    char text[64];
    for (size_t i = 0; i < sizeof(dropped) / sizeof(*dropped); i++)
        if (http_text_is_like(name, dropped[i]))
            return true;
    snprintf(text, sizeof(text), "%.*s", (int)(name.n < 63 ? name.n : 63), name.s);
    return http_list_has(h, "Connection", text);
}

/* A server that can be asked for plain bodies is: in others a value could not be seen. */
static bool put_fields_of(const struct conn *c, const struct http_head *h, struct buf *out) {
    const struct secret_uses *uses = &c->web->shield->uses;
    bool masks = c->web->shield->masked.count > 0;
    for (size_t i = 0; i < h->count; i++) {
        const struct http_field *f = &h->fields[i];
        struct buf value = BUF(HEAD_OUT_MAX);
        if (is_dropped(h, f->name) || (masks && http_text_is_like(f->name, "Accept-Encoding")))
            continue;
        bool ok = secrets_put_value(uses, f->name, f->value, &value) &&
                  http_put_field(out, f->name, (struct http_text){value.data, value.len});
        secret_wipe(&value);
        if (!ok)
            return false;
    }
    return !masks || http_put_pairs(out, HTTP_FIELDS({"Accept-Encoding", "identity"}));
}

static bool put_fields(const struct http_head *h, struct buf *out) {
    for (size_t i = 0; i < h->count; i++)
        if (!is_dropped(h, h->fields[i].name) &&
            !http_put_field(out, h->fields[i].name, h->fields[i].value))
            return false;
    return true;
}

static bool put_framing(const struct http_head *h, struct buf *out) {
    if (h->framing == HTTP_SIZED)
        return http_put_number(out, "Content-Length", h->length);
    return h->framing != HTTP_CHUNKED ||
           http_put_pairs(out, HTTP_FIELDS({"Transfer-Encoding", "chunked"}));
}

static bool put_upgrade(const char *to, struct buf *out) {
    return http_put_pairs(out, HTTP_FIELDS({"Connection", "Upgrade"}, {"Upgrade", to}));
}

static bool put_host(const struct conn *c, struct buf *out) {
    char text[NAME_SIZE + 16];
    unsigned usual = c->protocol == PROTOCOL_TLS ? 443 : 80;
    bool six = strchr(c->host, ':') != NULL;
    int n = snprintf(text, sizeof(text), "%s%s%s", six ? "[" : "", c->host, six ? "]" : "");
    if (c->port != usual)
        snprintf(text + n, sizeof(text) - (size_t)n, ":%u", c->port);
    return http_put_pairs(out, HTTP_FIELDS({"Host", text}));
}

static bool put_target(const struct conn *c, const struct http_head *h, struct buf *out) {
    struct buf target DEFER(secret_wipe) = BUF(HEAD_OUT_MAX);
    const struct shield *s = c->web->shield;
    if (h->form == HTTP_ASTERISK)
        return http_put_request_line(out, h->method, HTTP_TEXT("*"));
    bool ok = h->path.n ? buf_add(&target, h->path.s, h->path.n) : buf_add(&target, "/", 1);
    if (ok && h->query.s)
        ok = buf_add(&target, "?", 1) && (s ? secrets_put_query(&s->uses, h->query, &target)
                                            : buf_add(&target, h->query.s, h->query.n));
    return ok && http_put_request_line(out, h->method, (struct http_text){target.data, target.len});
}

static bool put_request(const struct conn *c, const struct http_head *h, struct buf *out) {
    return put_target(c, h, out) && put_host(c, out) &&
           (c->web->shield ? put_fields_of(c, h, out) : put_fields(h, out)) &&
           put_framing(h, out) && (!c->web->wants_upgrade || put_upgrade("websocket", out)) &&
           http_put_end(out);
}

static bool put_answer(struct web *w, const struct http_head *h, struct buf *out) {
    bool last = !w->keeps_client;
    if (!buf_addf(out, "HTTP/1.1 %d %.*s\r\n", h->status, (int)h->reason.n, h->reason.s) ||
        !put_fields(h, out))
        return false;
    if (h->status == 101)
        return put_upgrade("websocket", out) && http_put_end(out);
    if (h->status < 200)
        return http_put_end(out);
    if (h->framing == HTTP_NO_BODY) { /* to HEAD, or 304: the length is that of another answer */
        struct http_text length = http_field_only(h, "Content-Length");
        if (length.s && !http_put_field(out, HTTP_TEXT("Content-Length"), length))
            return false;
    } else if (w->recode ? !http_put_pairs(out, HTTP_FIELDS({"Transfer-Encoding", "chunked"}))
                         : h->framing == HTTP_SIZED && !put_framing(h, out)) {
        return false;
    }
    return (!last || http_put_pairs(out, HTTP_FIELDS({"Connection", "close"}))) &&
           http_put_end(out);
}

/* ---- where a request wants to go ---- */

/* "host[:port]"; port 0 when there is none. */
static bool read_authority(struct http_text t, char host[NAME_SIZE], uint16_t *ret_port,
                           bool *ret_address) {
    char address[ADDRESS_TEXT_SIZE];
    unsigned long port = 0;
    size_t n = t.n;
    if (n && t.s[0] == '[') {
        const char *end = memchr(t.s, ']', n);
        n = end ? (size_t)(end - t.s) + 1 : 0;
    } else {
        const char *colon = memchr(t.s, ':', n);
        n = colon ? (size_t)(colon - t.s) : n;
    }
    for (size_t i = n + 1; i < t.n; i++) {
        if (t.s[i] < '0' || t.s[i] > '9' || i > n + 5)
            return false;
        port = port * 10 + (unsigned long)(t.s[i] - '0');
    }
    if (port > 65535 || (t.n > n && (t.s[n] != ':' || port == 0)))
        return false;
    *ret_port = (uint16_t)port;
    bool six = n > 2 && t.s[0] == '[';
    *ret_address = address_read(t.s + six, n - 2 * six, address);
    if (*ret_address)
        snprintf(host, NAME_SIZE, "%s", address);
    return *ret_address || name_read(t.s, n, host);
}

/* For a connection that was steered here: every name in the request is that of the connection. */
static const char *check_authority(const struct conn *c, struct http_text t) {
    char host[NAME_SIZE];
    uint16_t port;
    bool is_address;
    if (!read_authority(t, host, &port, &is_address))
        return "its Host makes no sense";
    if (strcmp(host, c->host) != 0)
        return "its Host is another than the one it connected to";
    return port && port != c->port ? "its Host has another port than the one it connected to"
                                   : NULL;
}

/* For the explicit proxy: the request says where. */
static const char *take_authority(struct conn *c, const struct http_head *h) {
    char host[NAME_SIZE];
    uint16_t port;
    bool is_address;
    if (h->form != HTTP_ABSOLUTE && h->form != HTTP_AUTHORITY)
        return "this is a proxy: it wants whole addresses";
    if (!read_authority(h->authority, host, &port, &is_address) ||
        (h->form == HTTP_AUTHORITY && !port))
        return "that is no host";
    if (!port)
        port = 80;
    if (strcmp(host, c->host) != 0 || port != c->port)
        channel_close(&c->server);
    snprintf(c->host, sizeof(c->host), "%s", host);
    c->is_address = is_address;
    c->port = port;
    return NULL;
}

static const char *check_target(struct conn *c, const struct http_head *h) {
    struct http_text host = http_field_only(h, "Host");
    const char *wrong = c->is_proxy ? take_authority(c, h) : NULL;
    if (wrong)
        return wrong;
    if (h->form == HTTP_AUTHORITY)
        return c->is_proxy ? NULL : "CONNECT is for the proxy at port 3128";
    if (h->form == HTTP_ABSOLUTE &&
        !http_text_is_like(h->scheme, c->protocol == PROTOCOL_TLS ? "https" : "http"))
        return "its address has another scheme than its connection";
    if (http_field_count(h, "Host") > 1 || (!host.s && h->minor))
        return "it must say its Host once";
    wrong = check_authority(c, h->authority);
    return wrong || !host.s ? wrong : check_authority(c, host);
}

/* ---- secrets ---- */

/* The whole of a head that came: nothing of it is held back. */
static bool mask_head(const struct shield *s, struct buf *head) {
    struct buf carry = BUF(HEAD_OUT_MAX), out = BUF(HEAD_OUT_MAX);
    int r = needles_feed(&s->masked, &carry, head->data, head->len, true, &out);
    secret_wipe(&carry);
    secret_wipe(head);
    *head = out;
    return r >= 0;
}

/* Values of everything that was granted for this host: a server may give them back later, too. */
static bool know_values(struct conn *c, struct shield *s) {
    struct gate *g = c->machine->gate;
    const struct secret_grants *all = &c->machine->grants;
    for (size_t i = 0; i < all->count; i++) {
        struct secret_use use = {.grant = &all->list[i]};
        if (strcmp(use.grant->host, c->host) != 0)
            continue;
        use.value = g->hooks->secret(g->arg, c->machine->id, use.grant->name);
        bool ok = !use.value || secrets_forms(&use, &c->web->client.head, &s->masked);
        for (size_t k = 0; k < s->uses.count; k++)
            if (s->uses.list[k].grant == use.grant)
                s->uses.list[k].value = TAKE(use.value);
        secret_free(use.value);
        if (!ok)
            return false;
    }
    return true;
}

static const char *missing_value(struct shield *s) {
    for (size_t i = 0; i < s->uses.count; i++)
        if (!s->uses.list[i].value) {
            snprintf(s->uses.why, sizeof(s->uses.why), "there is no secret '%s' any more",
                     s->uses.list[i].grant->name);
            return s->uses.why;
        }
    return NULL;
}

/* Before anything is sent; NULL: nothing stands in the way. */
static const char *raise_shield(struct conn *c) {
    struct web *w = c->web;
    const struct secret_grants *grants = &c->machine->grants;
    shield_free(TAKE(w->shield));
    if (!grants->count)
        return NULL;
    struct shield *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    s->sent = s->received = BUF(NEEDLE_MAX + IN_SIZE);
    w->shield = s;
    secrets_check(grants, c->host, c->is_terminated, &w->client.head, &s->uses);
    if (s->uses.why[0])
        return s->uses.why;
    if (!secrets_placeholders(grants, &s->forbidden) || !know_values(c, s))
        return "its secrets are too large";
    return missing_value(s);
}

static void tell_uses(struct conn *c) {
    const struct shield *s = c->web->shield;
    for (size_t i = 0; s && i < s->uses.count; i++)
        conn_tell_secret(c, c->web->method, c->web->path, s->uses.list[i].grant);
}

/* ---- a request ---- */

static void send_request(struct conn *c) {
    struct web *w = c->web;
    struct side *s = &w->client;
    struct buf out DEFER(secret_wipe) = BUF(HEAD_OUT_MAX);
    const char *wrong = raise_shield(c);
    if (wrong) {
        say_no(c, wrong);
        return;
    }
    if (!put_request(c, &s->head, &out)) {
        say_status(c, 400, "this request cannot be passed on");
        return;
    }
    tell_uses(c);
    if (w->shield)
        secret_uses_done(&w->shield->uses);
    http_body_begin(&s->body, &s->head);
    w->request = s->head.framing == HTTP_NO_BODY ? REQUEST_SENT : REQUEST_BODY;
    w->answer = ANSWER_HEAD;
    w->server.parsing = false;
    w->answered = false;
    consume(s, s->parser.used);
    s->parsing = false;
    if (!channel_write(&c->server, out.data, out.len))
        w->server.ended = true;
    conn_count(c, out.len, 0);
}

static void reach_server(struct conn *c) {
    struct web *w = c->web;
    conn_tell(c, GATE_ALLOWED, w->method, w->path, NULL);
    w->server.n = 0;
    w->server.ended = false;
    send_request(c);
}

/* The server must prove its name before it hears a word. */
static bool step_handshake(struct conn *c) {
    struct web *w = c->web;
    struct err err;
    int r = channel_handshake(&c->server, &err);
    if (r == 0)
        return false;
    w->handshaking = false;
    conn_timer(c, 0);
    if (r > 0) {
        reach_server(c);
        return true;
    }
    conn_tell(c, GATE_DENIED, w->method, w->path, err.text);
    say_status(c, 502, err.text);
    return false;
}

static void begin_handshake(struct conn *c) {
    SSL *ssl = trust_connect(c->machine->gate->trust, c->host, c->is_address);
    if (!ssl) {
        say_status(c, 502, "TLS could not be prepared");
        return;
    }
    channel_secure(&c->server, ssl, NULL, 0);
    c->web->handshaking = true;
    conn_timer(c, GATE_DIAL_MS);
}

static void web_dialled(struct conn *c, const struct err *err) {
    struct web *w = c->web;
    if (!err && c->is_terminated && !conn_is_served(c)) {
        begin_handshake(c);
    } else if (!err) {
        reach_server(c);
    } else if (err->code == ERR_DENIED) {
        say_no(c, err->text);
        return;
    } else {
        conn_tell(c, GATE_DENIED, w->method, w->path, err->text);
        say_status(c, 502, err->text);
        return;
    }
    if (!c->ended)
        web_event(c);
}

static void forward_request(struct conn *c, struct policy_rule *rule) {
    struct web *w = c->web;
    w->request = REQUEST_DIAL;
    conn_timer(c, 0);
    if (c->server.fd >= 0 && w->server_rule == rule->id) {
        conn_tell(c, GATE_ALLOWED, w->method, w->path, NULL);
        send_request(c);
        return;
    }
    channel_close(&c->server);
    w->server_rule = rule->id;
    conn_dial(c, rule, web_dialled);
}

/* What follows is a connection like every other; this half of us is done. */
static void open_proxied(struct conn *c) {
    static const char ok[] = "HTTP/1.1 200 OK\r\n\r\n";
    struct side *s = &c->web->client;
    consume(s, s->parser.used);
    buf_done(&c->first);
    c->first = BUF(HELLO_MAX);
    if (!buf_add(&c->first, s->in, s->n) || !channel_write(&c->client, ok, sizeof(ok) - 1)) {
        conn_end(c, true, NULL);
        return;
    }
    web_free(TAKE(c->web));
    conn_restart(c);
}

static bool keep_request(struct web *w, const struct http_head *h) {
    free(TAKE(w->path));
    w->method[0] = '\0';
    if (h->method.n >= sizeof(w->method))
        return false;
    memcpy(w->method, h->method.s, h->method.n);
    w->method[h->method.n] = '\0';
    w->path = h->form == HTTP_AUTHORITY ? strdup("")
              : h->path.n               ? strndup(h->path.s, h->path.n)
                                        : strdup("/");
    return w->path != NULL;
}

/* Fields whose values are nobody's to read, not even the owner's. */
static bool is_credential(struct http_text name) {
    static const char *const names[] = {"authorization", "cookie", "proxy-authorization"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (name.n == strlen(names[i]) && strncasecmp(name.s, names[i], name.n) == 0)
            return true;
    return false;
}

/* The fields, a line each, and what of the body came with them. */
static void keep_first(const struct web *w, struct pending *p) {
    const struct http_head *h = &w->client.head;
    struct buf text DEFER(buf_done) = BUF(PENDING_FIRST - 1);
    bool room = true;
    for (size_t i = 0; room && i < h->count; i++)
        room = buf_add(&text, h->fields[i].name.s, h->fields[i].name.n) &&
               buf_add(&text, ": ", 2) &&
               (is_credential(h->fields[i].name)
                    ? buf_add(&text, "...", 3)
                    : buf_add(&text, h->fields[i].value.s, h->fields[i].value.n)) &&
               buf_add(&text, "\n", 1);
    snprintf(p->first, sizeof(p->first), "%s", text.data ? text.data : "");
}

/* It waits where it is; what approves it lets this same request go on. */
static void hold(struct conn *c, struct policy_rule *rule) {
    struct web *w = c->web;
    struct pending *p = pending_for(c, w->method, w->path, rule->hold_ms);
    if (!p) {
        say_no(c, "too many wait for an approval already");
    } else if (pending_use(p)) {
        forward_request(c, rule);
    } else {
        bool first = !p->held;
        keep_first(w, p);
        w->request = REQUEST_HELD;
        conn_timer(c, 0);
        pending_hold(p, c);
        if (first)
            conn_tell(c, GATE_HELD, w->method, w->path, NULL);
    }
}

static void decide(struct conn *c) {
    struct policy_answer a = conn_decide(c, c->web->method, c->web->path);
    struct secret_uses uses;
    secrets_check(&c->machine->grants, c->host, c->is_terminated, &c->web->client.head, &uses);
    if (a.action != POLICY_DENY && uses.why[0])
        say_no(c, uses.why);
    else if (a.action == POLICY_ALLOW)
        forward_request(c, a.rule);
    else if (a.action == POLICY_ASK)
        hold(c, a.rule);
    else
        say_no(c, a.why);
}

static void take_request(struct conn *c) {
    struct web *w = c->web;
    const struct http_head *h = &w->client.head;
    if (!keep_request(w, h)) {
        refuse_unread(c, 501, "that method is too long");
        return;
    }
    c->knows_protocol = true;
    const char *wrong = c->is_terminated && c->refusal[0] ? c->refusal : check_target(c, h);
    if (wrong) {
        say_no(c, wrong);
        return;
    }
    if (h->form == HTTP_AUTHORITY) {
        open_proxied(c);
        return;
    }
    w->old_client = h->minor == 0;
    w->keeps_client = h->keep_alive;
    w->wants_upgrade = h->upgrade && http_list_has(h, "Upgrade", "websocket");
    decide(c);
}

void web_released(struct conn *c, enum pending_state state) {
    struct policy_rule *rule = policy_find(&c->machine->policy, c->rule);
    c->web->request = REQUEST_DIAL;
    if (state == PENDING_WAITS) {
        decide(c);
    } else if (state == PENDING_APPROVED && rule) {
        forward_request(c, rule);
    } else {
        c->timed_out = state == PENDING_EXPIRED;
        say_no(c, c->timed_out ? "nobody approved it in time" : "it was not approved");
    }
    if (!c->ended && c->state == CONN_WEB)
        web_event(c);
}

/* ---- steps: true when something moved ---- */

static bool step_request_head(struct conn *c) {
    struct side *s = &c->web->client;
    int r = read_head(s, &c->client, HTTP_REQUEST, false);
    if (r > 0) {
        take_request(c);
        return true;
    }
    if (r < 0)
        refuse_unread(c, s->parser.refusal.status, s->parser.refusal.why);
    else if (s->ended)
        conn_end(c, false, NULL);
    else if (s->n && !c->web->is_timed) {
        c->web->is_timed = true;
        client_waits(c, GATE_FIRST_MS);
    }
    return false;
}

/* A piece of a body, framed as it goes out. */
static bool put_piece(struct channel *to, struct http_text data, bool chunked) {
    char line[HTTP_CHUNK_LINE_MAX];
    if (!data.n)
        return true;
    if (!chunked)
        return channel_write(to, data.s, data.n);
    return channel_write(to, line, http_chunk_line(line, data.n)) &&
           channel_write(to, data.s, data.n) && channel_write(to, "\r\n", 2);
}

/* What a body is looked through for, on its way. */
struct sieve {
    const struct needles *needles;
    struct buf *carry;
    bool forbids;
};

/* 0, or -1: it cannot go on, -2: it holds what it may not. */
static int put_sieved(const struct sieve *v, struct channel *to, struct http_text data,
                      bool chunked, bool end) {
    struct buf out = BUF(2 * (NEEDLE_MAX + IN_SIZE));
    int found = needles_feed(v->needles, v->carry, data.s, data.n, end, &out);
    int r = found > 0 && v->forbids ? -2 : 0;
    if (r == 0 && (found < 0 || !put_piece(to, (struct http_text){out.data, out.len}, chunked)))
        r = -1;
    secret_wipe(&out);
    return r;
}

static int put_data(const struct sieve *v, struct channel *to, struct http_text data, bool chunked,
                    bool end) {
    if (v)
        return put_sieved(v, to, data, chunked, end);
    return put_piece(to, data, chunked) ? 0 : -1;
}

/*
 * 1: a step was made. 0: nothing is there. 2: it has ended. -1: the body is broken, -2: it holds
 * what it may not.
 */
static int step_body(struct side *s, struct channel *from, struct channel *to, bool chunked,
                     const struct sieve *sieve, size_t *ret_moved) {
    size_t used = 0;
    struct http_text data;
    *ret_moved = 0;
    if (channel_backlog(to) > GATE_BACKLOG)
        return 0;
    if (!s->n) {
        int r = fill(s, from);
        if (r < 0 && !http_body_at_close(&s->body))
            return -1;
        if (r < 0) {
            int put = put_data(sieve, to, (struct http_text){"", 0}, chunked, true);
            return put < 0 ? put : 2;
        }
        if (r == 0)
            return 0;
    }
    int r = http_body_next(&s->body, s->in, s->n, &used, &data);
    int put = r < 0 ? -1 : put_data(sieve, to, data, chunked, r > 0);
    if (put < 0)
        return put;
    *ret_moved = data.n;
    consume(s, used);
    return r > 0 ? 2 : 1;
}

/* The server has a part of it, and never gets the rest. */
static void refuse_body(struct conn *c) {
    static const char why[] = "its body holds the placeholder of a secret";
    if (!c->web->answered) {
        say_no(c, why);
        return;
    }
    conn_tell(c, GATE_DENIED, c->web->method, c->web->path, why);
    conn_end(c, true, why);
}

static bool step_request_body(struct conn *c) {
    struct web *w = c->web;
    size_t moved;
    bool chunked = w->client.head.framing == HTTP_CHUNKED;
    struct shield *shield = w->shield;
    const struct sieve sieve = {.needles = shield ? &shield->forbidden : NULL,
                                .carry = shield ? &shield->sent : NULL,
                                .forbids = true};
    int r = step_body(&w->client, &c->client, &c->server, chunked, shield ? &sieve : NULL, &moved);
    if (r == -2) {
        refuse_body(c);
        return false;
    }
    if (r < 0) {
        conn_end(c, true, "its request broke off");
        return false;
    }
    if (!conn_count(c, moved, 0))
        return false;
    if (r == 2) {
        w->request = REQUEST_SENT;
        if (chunked && !channel_write(&c->server, HTTP_LAST_CHUNK, strlen(HTTP_LAST_CHUNK)))
            w->server.ended = true;
    }
    return r > 0;
}

static void end_exchange(struct conn *c) {
    struct web *w = c->web;
    bool whole = w->request == REQUEST_SENT;
    w->answer = ANSWER_NONE;
    shield_free(TAKE(w->shield));
    if (!w->keeps_server || !whole || w->server.n || w->server.ended)
        channel_close(&c->server);
    if (!w->keeps_client || !whole) {
        conn_linger(c);
        return;
    }
    w->request = REQUEST_HEAD;
    w->is_timed = false;
    client_waits(c, GATE_IDLE_MS);
}

static void begin_answer(struct conn *c) {
    struct web *w = c->web;
    const struct http_head *h = &w->server.head;
    struct buf out DEFER(buf_done) = BUF(HEAD_OUT_MAX);
    bool ends_late = h->framing == HTTP_UNTIL_CLOSE;
    w->keeps_server = h->keep_alive && !ends_late;
    w->recode = h->framing == HTTP_CHUNKED && !w->old_client;
    if (h->status >= 200 && (ends_late || (h->framing == HTTP_CHUNKED && w->old_client)))
        w->keeps_client = false;
    if (h->status == 101 && !w->wants_upgrade) {
        say_status(c, 502, "the server speaks of an upgrade that nobody asked for");
        return;
    }
    if (!put_answer(w, h, &out) || (w->shield && !mask_head(w->shield, &out)) ||
        !channel_write(&c->client, out.data, out.len)) {
        conn_end(c, true, "the answer could not be passed on");
        return;
    }
    w->answered = h->status >= 200 || h->status == 101;
    http_body_begin(&w->server.body, h);
    consume(&w->server, w->server.parser.used);
    w->server.parsing = false;
    if (h->status == 101) {
        w->tunnel = true;
        shield_free(TAKE(w->shield));
    } else if (h->status >= 200)
        w->answer = ANSWER_BODY;
    conn_count(c, 0, out.len);
}

static bool step_answer_head(struct conn *c) {
    struct web *w = c->web;
    int r = read_head(&w->server, &c->server, HTTP_RESPONSE, strcmp(w->method, "HEAD") == 0);
    if (r > 0) {
        begin_answer(c);
        return true;
    }
    if (r < 0)
        say_status(c, 502, w->server.parser.refusal.why);
    else if (w->server.ended || c->server.broken)
        say_status(c, 502, "the server ended without an answer");
    return false;
}

static bool step_answer_body(struct conn *c) {
    struct web *w = c->web;
    size_t moved = 0;
    int r = 2;
    const struct sieve sieve = {.needles = w->shield ? &w->shield->masked : NULL,
                                .carry = w->shield ? &w->shield->received : NULL};
    if (w->server.head.framing != HTTP_NO_BODY)
        r = step_body(&w->server, &c->server, &c->client, w->recode, w->shield ? &sieve : NULL,
                      &moved);
    if (r < 0) {
        conn_end(c, true, "its answer broke off");
        return false;
    }
    if (!conn_count(c, 0, moved))
        return false;
    if (r == 2) {
        if (w->recode && w->server.head.framing == HTTP_CHUNKED &&
            !channel_write(&c->client, HTTP_LAST_CHUNK, strlen(HTTP_LAST_CHUNK))) {
            conn_end(c, true, NULL);
            return false;
        }
        end_exchange(c);
    }
    return r > 0;
}

/* One way of a websocket. */
static bool step_tunnel(struct conn *c, struct side *s, struct channel *from, struct channel *to,
                        bool out) {
    if (channel_backlog(to) > GATE_BACKLOG || s->ended)
        return false;
    int r = s->n ? 1 : fill(s, from);
    if (r < 0) {
        channel_finish(to);
        if (c->web->client.ended && c->web->server.ended)
            conn_end(c, false, NULL);
        return false;
    }
    if (r == 0)
        return false;
    size_t n = s->n;
    if (!channel_write(to, s->in, n)) {
        conn_end(c, true, "the connection broke");
        return false;
    }
    s->n = 0;
    return conn_count(c, out ? n : 0, out ? 0 : n);
}

static bool step_client(struct conn *c) {
    struct web *w = c->web;
    if (w->tunnel)
        return step_tunnel(c, &w->client, &c->client, &c->server, true);
    return w->request == REQUEST_HEAD   ? step_request_head(c)
           : w->request == REQUEST_BODY ? step_request_body(c)
                                        : false;
}

/* A server that has nothing to answer may only leave. */
static bool step_idle(struct conn *c) {
    char byte;
    if (c->server.fd >= 0 && !c->dialled && channel_read(&c->server, &byte, 1) != -EAGAIN)
        channel_close(&c->server);
    return false;
}

static bool step_server(struct conn *c) {
    struct web *w = c->web;
    if (w->handshaking)
        return step_handshake(c);
    if (w->tunnel)
        return step_tunnel(c, &w->server, &c->server, &c->client, false);
    return w->answer == ANSWER_HEAD   ? step_answer_head(c)
           : w->answer == ANSWER_BODY ? step_answer_body(c)
                                      : step_idle(c);
}

static bool is_over(const struct conn *c) {
    return c->ended || c->state != CONN_WEB || !c->web || c->pause_ms;
}

static void arm(struct conn *c) {
    struct web *w = c->web;
    bool from_client = w->tunnel || w->request == REQUEST_HEAD || w->request == REQUEST_BODY;
    channel_listen(&c->client,
                   from_client && !c->client.broken && channel_backlog(&c->server) <= GATE_BACKLOG);
    if (c->server.fd >= 0 && !c->dialled)
        channel_listen(&c->server, channel_backlog(&c->client) <= GATE_BACKLOG);
}

void web_event(struct conn *c) {
    bool moved = true;
    if (c->client.broken && !c->ended) {
        conn_end(c, true, NULL);
        return;
    }
    for (int turn = 0; moved && turn < 64 && !is_over(c); turn++) {
        moved = step_client(c);
        if (!is_over(c))
            moved |= step_server(c);
    }
    if (c->ended || c->state != CONN_WEB || !c->web)
        return;
    if (c->pause_ms) {
        channel_listen(&c->client, false);
        if (c->server.fd >= 0 && !c->dialled)
            channel_listen(&c->server, false);
        return;
    }
    arm(c);
    if (moved)
        loop_defer(c->machine->gate->loop, &c->more);
}

void web_expire(struct conn *c) {
    struct web *w = c->web;
    if (c->pause_ms) {
        c->pause_ms = 0;
        web_event(c);
    } else if (w->handshaking) {
        say_status(c, 502, "the server's TLS does not come to an end");
    } else if (w->request == REQUEST_HEAD && w->client.n) {
        refuse_unread(c, 408, "the request did not come in time");
    } else if (w->request == REQUEST_HEAD) {
        conn_end(c, false, NULL);
    }
}

void web_start(struct conn *c) {
    struct web *w = calloc(1, sizeof(*w));
    if (!w)
        abort();
    web_free(c->web);
    c->web = w;
    w->is_timed = true;
    c->state = CONN_WEB;
    if (!c->knows_protocol)
        c->protocol = PROTOCOL_HTTP;
    size_t n = c->first.len < sizeof(w->client.in) ? c->first.len : sizeof(w->client.in);
    if (n)
        memcpy(w->client.in, c->first.data, n);
    w->client.n = n;
    buf_done(&c->first);
    conn_timer(c, GATE_FIRST_MS);
    web_event(c);
}
