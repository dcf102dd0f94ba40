/*
 * The HTTP relay between two HTTP/1.1 connections, one request at a time.
 *
 * Heads (start line and header fields) are parsed by the strict parser of io/http.h and written
 * anew, bodies are framed anew. So the server reads exactly what was decided about, and a request
 * cannot be smuggled between two parsers. The next request is read only after the answer has ended.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "gate/web_inner.h"

void web_free(struct web *w) {
    if (!w)
        return;
    shield_free(w->shield);
    cache_wish_cancel(w->wish);
    cache_intake_drop(w->copy);
    web_drop_body(w);
    free(w->path);
    free(w->query);
    free(w);
}

static void client_waits(struct conn *c, uint64_t ms) {
    if (!c->pause_ms)
        conn_timer(c, ms);
}

/* ---- refusing ---- */

void web_say_no(struct conn *c, const char *why, enum remedy remedy) {
    struct buf out DEFER(buf_done) = BUF(16384);
    struct web *w = c->web;
    const struct refusal refusal = {.machine = c->machine->id,
                                    .host = c->host,
                                    .port = c->port,
                                    .knows_protocol = c->knows_protocol,
                                    .protocol = c->protocol,
                                    .rule = c->rule,
                                    .why = why,
                                    .remedy = remedy,
                                    .timed_out = c->timed_out,
                                    .wants_json = w->wants_json,
                                    .no_body = strcmp(w->method, "HEAD") == 0};
    bool explain =
        c->is_told || conn_tell(c, GATE_DENIED, w->method[0] ? w->method : NULL, w->path, why);
    channel_close(&c->server);
    if (explain && refusal_put(&refusal, &out) && channel_write(&c->client, out.data, out.len))
        conn_linger(c);
    else
        conn_end(c, true, NULL);
}

/* Sends a short answer for a malformed request or an unreachable server. */
static void say_status(struct conn *c, int status, const char *why) {
    struct buf out DEFER(buf_done) = BUF(4096);
    if (c->web->answered || !refusal_put_status(status, why, &out) ||
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

/* Refuses a request before its head was parsed. */
static void refuse_unread(struct conn *c, int status, const char *why) {
    conn_tell(c, GATE_DENIED, NULL, NULL, why);
    say_status(c, status, why);
}

/* ---- a request ---- */

/* The request was passed on, except for a body that is not collected. */
static void web_await_answer(struct web *w) {
    struct side *s = &w->client;
    http_body_begin(&s->body, &s->head);
    w->request = s->head.framing == HTTP_NO_BODY || w->collected ? REQUEST_SENT : REQUEST_BODY;
    w->answer = ANSWER_HEAD;
    w->server.parsing = false;
    w->answered = w->heard = false;
    side_consume(s, s->parser.used);
    s->parsing = false;
}

static void send_request(struct conn *c) {
    struct web *w = c->web;
    struct side *s = &w->client;
    struct buf out DEFER(secret_wipe) = BUF(HEAD_OUT_MAX);
    struct denial wrong = shield_raise(c);
    if (!wrong.why && w->wants_upgrade && w->shield && w->shield->masked.count)
        wrong.why =
            "websockets to hosts with secrets are not allowed: they cannot be scanned for secrets";
    if (!wrong.why && w->collected)
        wrong = web_check_body(c);
    if (wrong.why) {
        web_say_no(c, wrong.why, wrong.remedy);
        return;
    }
    if (!web_put_request(c, &s->head, &out)) {
        say_status(c, 400, "the request head is too large to pass on");
        return;
    }
    shield_tell_uses(c);
    if (w->shield)
        secret_uses_done(&w->shield->uses);
    web_await_answer(w);
    if (!channel_write(&c->server, out.data, out.len))
        w->server.ended = true;
    if (conn_count(c, out.len, 0) && w->collected)
        web_send_body(c);
}

static void reach_server(struct conn *c) {
    struct web *w = c->web;
    if (!conn_tell_allowed(c, w->method, w->path))
        return;
    w->server.n = 0;
    w->server.ended = false;
    send_request(c);
}

/* The certificate of the server is verified before anything is sent. */
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
    conn_tell_failed(c, w->method, w->path, err.text);
    say_status(c, 502, err.text);
    return false;
}

static void begin_handshake(struct conn *c) {
    SSL *ssl = trust_connect(c->machine->gate->trust, c->host, c->is_address);
    if (!ssl) {
        say_status(c, 502, "cannot prepare TLS with the server");
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
        web_say_no(c, err->text, c->dial_remedy);
        return;
    } else {
        conn_tell_failed(c, w->method, w->path, err->text);
        say_status(c, 502, err->text);
        return;
    }
    if (!c->ended)
        web_event(c);
}

static void web_reach(struct conn *c, const struct policy_rule *rule) {
    struct web *w = c->web;
    if (c->server.fd >= 0 && w->server_rule == rule->id && !conn_is_cut_off(c)) {
        if (conn_tell_allowed(c, w->method, w->path))
            send_request(c);
        return;
    }
    channel_close(&c->server);
    w->server_rule = rule->id;
    conn_dial(c, rule, web_dialled);
}

/* ---- the package cache ---- */

static struct cache *web_cache(const struct conn *c) {
    const struct gate *g = c->machine->gate;
    return g->hooks->cache ? g->hooks->cache(g->arg, c->machine->id) : NULL;
}

/*
 * Whether the cache is about this request: the preset of the rule is for packages, and neither the
 * machine nor a secret adds a credential to the request.
 */
static bool web_subject(struct conn *c, const struct policy_rule *rule, struct cache_subject *ret) {
    const struct web *w = c->web;
    if (!rule->preset[0] || w->shield || conn_is_served(c) ||
        secret_grants_for(gate_grants(c->machine), c->host) ||
        !cache_subject_read(rule->preset, w->path, c->is_terminated, ret) ||
        !cache_request_is_plain(&w->client.head, ret->kind != CACHE_PACKAGE))
        return false;
    ret->local = rule->local;
    return (size_t)snprintf(ret->origin, sizeof(ret->origin), "%s://%s:%u",
                            c->is_terminated ? "https" : "http", c->host,
                            c->port) < sizeof(ret->origin);
}

/* Sends the request to its server, and copies the answer if the cache is about it. */
static void web_fetch(struct conn *c, const struct policy_rule *rule) {
    struct cache_subject subject;
    if (web_subject(c, rule, &subject))
        c->web->copy = cache_intake_new(web_cache(c), &subject);
    web_reach(c, rule);
}

/* The package comes from this socket, by the same rules and with the same records as from its
 * server. No request is sent. */
static void web_deliver(struct conn *c, int fd) {
    struct err err;
    c->address_text[0] = '\0';
    c->cached = true;
    channel_close(&c->server);
    if (conn_open_server(c, fd, &err) < 0) {
        conn_end(c, true, err.text);
        return;
    }
    if (!conn_tell_allowed(c, c->web->method, c->web->path))
        return;
    c->web->server.n = 0;
    c->web->server.ended = false;
    c->web->server_rule = 0;
    web_await_answer(c->web);
}

static void web_asked(void *arg, int fd) {
    struct conn *c = arg;
    struct web *w = c->web;
    struct policy_rule *rule = policy_find(&c->machine->policy, c->rule);
    w->wish = NULL;
    if (!c->ended && fd >= 0 && rule && rule->local == c->local)
        web_deliver(c, TAKE_FD(fd));
    else if (!c->ended && rule)
        web_fetch(c, rule);
    else if (!c->ended)
        web_decide(c);
    close_fd(&fd);
    if (!c->ended && c->state == CONN_WEB)
        web_event(c);
}

void web_forward(struct conn *c, struct policy_rule *rule) {
    struct web *w = c->web;
    struct cache_subject subject;
    w->request = REQUEST_DIAL;
    conn_timer(c, 0);
    c->cached = false;
    cache_intake_drop(TAKE(w->copy));
    c->local = rule->local;
    if (web_subject(c, rule, &subject))
        w->wish = cache_ask(web_cache(c), &subject, web_asked, c);
    if (!w->wish)
        web_fetch(c, rule);
}

/* After CONNECT the connection is handled by conn_restart(); the HTTP state is freed. */
static void open_proxied(struct conn *c) {
    static const char ok[] = "HTTP/1.1 200 OK\r\n\r\n";
    struct side *s = &c->web->client;
    side_consume(s, s->parser.used);
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
    web_drop_body(w);
    free(TAKE(w->path));
    free(TAKE(w->query));
    w->method[0] = '\0';
    if (h->method.n >= sizeof(w->method))
        return false;
    memcpy(w->method, h->method.s, h->method.n);
    w->method[h->method.n] = '\0';
    w->path = h->form == HTTP_AUTHORITY ? strdup("")
              : h->path.n               ? strndup(h->path.s, h->path.n)
                                        : strdup("/");
    w->query = h->query.s ? strndup(h->query.s, h->query.n) : strdup("");
    return w->path && w->query;
}

/* The owner approves what the request line says, so a request that overrides it is refused. */
static struct policy_care care_of(const struct conn *c, enum policy_action action) {
    return action == POLICY_ASK ? (struct policy_care){.methods = true, .paths = true}
                                : conn_cares(c);
}

void web_decide(struct conn *c) {
    struct policy_answer a = web_decide_again(c);
    const struct policy_care care = care_of(c, a.action);
    const char *overrides = override_in_head(&c->web->client.head, care);
    struct secret_uses uses;
    override_begin(&c->web->form, &c->web->client.head, care);
    secrets_check(gate_grants(c->machine), c->host, c->is_terminated, &c->web->client.head, &uses);
    if (a.action != POLICY_DENY && (uses.why[0] || overrides))
        web_say_no(c, overrides ? overrides : uses.why, overrides ? REMEDY_NONE : uses.remedy);
    else if (a.action == POLICY_ALLOW)
        web_forward(c, a.rule);
    else if (a.action == POLICY_ASK)
        web_hold(c, a.rule);
    else
        web_say_no(c, a.why, remedy_of(&a));
}

static void take_request(struct conn *c) {
    struct web *w = c->web;
    const struct http_head *h = &w->client.head;
    if (!keep_request(w, h)) {
        refuse_unread(c, 501, "the method of the request is too long");
        return;
    }
    c->knows_protocol = true;
    c->taints = c->approved = false;
    w->wants_json = refusal_wants_json(h);
    if (c->is_terminated && c->refusal[0]) {
        web_say_no(c, c->refusal, c->remedy);
        return;
    }
    const char *wrong = web_check_target(c, h);
    if (wrong) {
        web_say_no(c, wrong, REMEDY_NONE);
        return;
    }
    if (h->form == HTTP_AUTHORITY) {
        open_proxied(c);
        return;
    }
    w->old_client = h->minor == 0;
    w->keeps_client = h->keep_alive;
    w->wants_upgrade = h->upgrade && http_list_has(h, "Upgrade", "websocket");
    web_decide(c);
}

void web_released(struct conn *c, enum pending_state state) {
    struct policy_rule *rule = policy_find(&c->machine->policy, c->rule);
    c->web->request = REQUEST_DIAL;
    if (state == PENDING_WAITS || (state == PENDING_APPROVED && !rule)) {
        web_decide(c);
    } else if (state == PENDING_APPROVED) {
        web_forward(c, rule);
    } else {
        c->timed_out = state == PENDING_EXPIRED;
        web_say_no(c,
                   c->timed_out ? "the request was not approved in time"
                                : "the owner denied the request",
                   c->timed_out ? REMEDY_APPROVE : REMEDY_NONE);
    }
    if (!c->ended && c->state == CONN_WEB)
        web_event(c);
}

enum web_stage web_stage(const struct conn *c) {
    const struct web *w = c->web;
    if (c->held || w->request == REQUEST_COLLECT || (w->request == REQUEST_HEAD && !w->tunnel))
        return WEB_IDLE; /* the request will be decided later */
    return w->tunnel || w->request == REQUEST_DIAL || w->request == REQUEST_BODY ? WEB_SENDS
                                                                                 : WEB_RECEIVES;
}

struct policy_answer web_decide_again(struct conn *c) {
    return conn_decide(c, c->web->method, c->web->path, c->web->query);
}

/* ---- steps: each returns true if it made progress ---- */

static bool step_request_head(struct conn *c) {
    struct side *s = &c->web->client;
    int r = side_read_head(s, &c->client, HTTP_REQUEST, false);
    if (r > 0) {
        take_request(c);
        return true;
    }
    if (r < 0)
        refuse_unread(c, s->parser.refusal.status, s->parser.refusal.why);
    else if (s->ended && s->n)
        refuse_unread(c, 400, "the connection ended in the middle of the request");
    else if (s->ended)
        conn_end(c, false, NULL);
    else if (s->n && !c->web->is_timed) {
        c->web->is_timed = true;
        client_waits(c, GATE_FIRST_MS);
    }
    return false;
}

/* Refuses a request of which the server already has a part, and sends no more of it. */
static void refuse_body(struct conn *c, const char *why, enum remedy remedy) {
    if (!c->web->answered) {
        web_say_no(c, why, remedy);
        return;
    }
    conn_tell(c, GATE_DENIED, c->web->method, c->web->path, why);
    conn_end(c, true, why);
}

static bool step_request_body(struct conn *c) {
    struct web *w = c->web;
    size_t moved;
    if (c->taints && w->heard) { /* the client could send data in reaction to the tainting source */
        w->request = REQUEST_CUT;
        return false;
    }
    bool chunked = w->client.head.framing == HTTP_CHUNKED;
    struct shield *shield = w->shield;
    const struct sieve sieve = {.needles = shield ? &shield->forbidden : NULL,
                                .carry = shield ? &shield->sent : NULL,
                                .forbids = true,
                                .form = &w->form};
    int r = side_step_body(&w->client, &c->client, &c->server, chunked, &sieve, &moved);
    if (r < -1) {
        refuse_body(c, r == -2 ? WEB_BODY_PLACEHOLDER : WEB_FORM_OVERRIDES,
                    r == -2 ? REMEDY_SECRET_PLACE : REMEDY_NONE);
        return false;
    }
    if (r < 0) {
        conn_end(c, true, "the request was cut off");
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
    if (w->copy)
        cache_intake_end(TAKE(w->copy));
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

/* Refuses an answer whose framing or type is not trustworthy. */
static void refuse_answer(struct conn *c, const char *wrong) {
    char why[160];
    snprintf(why, sizeof(why), "the server's answer is refused: %s", wrong);
    conn_tell(c, GATE_DENIED, c->web->method, c->web->path, why);
    say_status(c, 502, why);
}

/* Names the side that ended the exchange. */
static const char *broken_by(const struct conn *c, const char *server) {
    return c->client.broken ? "the machine closed the connection" : server;
}

/* From an untrusted source, which taints the machine, only a bare 100 Continue is passed before the
 * request is complete. */
static void pass_interim(struct conn *c) {
    static const char bare[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct side *s = &c->web->server;
    bool is_bare = s->head.status == 100;
    side_consume(s, s->parser.used);
    s->parsing = false;
    if (is_bare && !channel_write(&c->client, bare, sizeof(bare) - 1))
        conn_end(c, true, broken_by(c, NULL));
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
    if (h->status == 101 && (!w->wants_upgrade || c->taints)) {
        refuse_answer(c, c->taints ? "the source is not trusted, so a websocket is not allowed"
                                   : "the server answered with an upgrade that was not requested");
        return;
    }
    if (h->status < 200 && c->taints) {
        pass_interim(c);
        return;
    }
    const char *hidden = w->shield ? shield_cannot_see(w->shield, h) : NULL;
    if (hidden) {
        refuse_answer(c, hidden);
        return;
    }
    if (!web_put_answer(w, h, &out) || (w->shield && !shield_mask_head(w->shield, &out)) ||
        !channel_write(&c->client, out.data, out.len)) {
        conn_end(c, true, broken_by(c, "the server's answer could not be passed on"));
        return;
    }
    w->answered = h->status >= 200 || h->status == 101;
    w->heard = true;
    if (h->status >= 200 && w->copy && !cache_answer_is_whole(h, cache_intake_unpacks(w->copy)))
        cache_intake_drop(TAKE(w->copy));
    http_body_begin(&w->server.body, h);
    side_consume(&w->server, w->server.parser.used);
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
    int r = side_read_head(&w->server, &c->server, HTTP_RESPONSE, strcmp(w->method, "HEAD") == 0);
    if (r > 0) {
        begin_answer(c);
        return true;
    }
    if (r < 0)
        refuse_answer(c, w->server.parser.refusal.why);
    else if (w->server.ended || c->server.broken)
        say_status(c, 502, "the server closed the connection without an answer");
    return false;
}

static bool step_answer_body(struct conn *c) {
    struct web *w = c->web;
    size_t moved = 0;
    int r = 2;
    const struct sieve sieve = {.needles = w->shield ? &w->shield->masked : NULL,
                                .carry = w->shield ? &w->shield->received : NULL,
                                .copy = w->copy};
    if (w->server.head.framing != HTTP_NO_BODY)
        r = side_step_body(&w->server, &c->server, &c->client, w->recode,
                           w->shield || w->copy ? &sieve : NULL, &moved);
    if (r < 0) {
        conn_end(c, true, broken_by(c, "the server's answer was cut off"));
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

/* Relays bytes of a websocket in one direction. */
static bool step_tunnel(struct conn *c, struct side *s, struct channel *from, struct channel *to,
                        bool out) {
    if (channel_backlog(to) > GATE_BACKLOG || s->ended)
        return false;
    int r = s->n ? 1 : side_fill(s, from);
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
    return w->request == REQUEST_HEAD      ? step_request_head(c)
           : w->request == REQUEST_BODY    ? step_request_body(c)
           : w->request == REQUEST_COLLECT ? web_step_collect(c)
                                           : false;
}

/* Between two requests the server may only close its connection. */
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

static bool web_is_over(const struct conn *c) {
    return c->ended || c->state != CONN_WEB || !c->web || c->pause_ms;
}

static void arm(struct conn *c) {
    struct web *w = c->web;
    bool from_client = w->tunnel || w->request == REQUEST_HEAD || w->request == REQUEST_BODY ||
                       w->request == REQUEST_COLLECT;
    channel_listen(&c->client,
                   from_client && !c->client.broken && channel_backlog(&c->server) <= GATE_BACKLOG);
    if (c->server.fd >= 0 && !c->dialled)
        channel_listen(&c->server, channel_backlog(&c->client) <= GATE_BACKLOG);
}

void web_event(struct conn *c) {
    bool moved = true;
    if (c->client.broken && !c->ended) {
        conn_end(c, true, broken_by(c, NULL));
        return;
    }
    for (int turn = 0; moved && turn < 64 && !web_is_over(c); turn++) {
        moved = step_client(c);
        if (!web_is_over(c))
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
        say_status(c, 502, "the TLS handshake with the server timed out");
    } else if (w->request == REQUEST_COLLECT || (w->request == REQUEST_HEAD && w->client.n)) {
        refuse_unread(c, 408, "the request did not arrive in time");
    } else if (w->request == REQUEST_HEAD) {
        conn_end(c, false, NULL);
    }
}

void web_start(struct conn *c) {
    struct web *w = xnew(struct web);
    web_free(c->web);
    c->web = w;
    w->held_bytes = &c->machine->held_bytes;
    w->body = BUF(WEB_BODY_MAX);
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
