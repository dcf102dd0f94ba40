/*
 * Requests that wait for an approval. An approval includes the body, so the body is read and kept
 * first, and exactly that body is sent.
 */
#include <string.h>
#include <strings.h>

#include "base/defer.h"
#include "base/sha256.h"
#include "gate/web_inner.h"

enum { HELD_ALL_MAX = 16 << 20 }; /* bytes of the bodies of all waiting requests of a machine */

void web_drop_body(struct web *w) {
    *w->held_bytes -= w->body.len;
    secret_wipe(&w->body);
    w->body = BUF(WEB_BODY_MAX);
    w->body_hash[0] = '\0';
    w->collected = false;
}

/* ---- identity of a request ---- */

/* Hashes all fields: a field left out could carry data that the owner was not shown. */
static void hash_fields(const struct http_head *head, char ret[PENDING_HASH_SIZE]) {
    struct sha256 h;
    sha256_init(&h);
    for (size_t i = 0; i < head->count; i++) {
        sha256_add(&h, head->fields[i].name.s, head->fields[i].name.n);
        sha256_add(&h, ":", 1);
        sha256_add(&h, head->fields[i].value.s, head->fields[i].value.n);
        sha256_add(&h, "\n", 1);
    }
    sha256_end_hex(&h, ret);
}

/* ---- the part that the owner sees ---- */

/* Fields whose values are not shown, because they hold credentials. */
static bool is_credential(struct http_text name) {
    static const char *const names[] = {"authorization", "cookie", "proxy-authorization"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
        if (name.n == strlen(names[i]) && strncasecmp(name.s, names[i], name.n) == 0)
            return true;
    return false;
}

/* Keeps the header fields, one per line, to show them to the owner. */
static void keep_first(const struct web *w, struct pending *p) {
    const struct http_head *h = &w->client.head;
    static const char cut[] = "...\n(more fields are not shown)\n";
    struct buf text DEFER(buf_done) = BUF(PENDING_FIRST - 1);
    bool room = true;
    for (size_t i = 0; room && i < h->count; i++)
        room = buf_add(&text, h->fields[i].name.s, h->fields[i].name.n) &&
               buf_add(&text, ": ", 2) &&
               (is_credential(h->fields[i].name)
                    ? buf_add(&text, "...", 3)
                    : buf_add(&text, h->fields[i].value.s, h->fields[i].value.n)) &&
               buf_add(&text, "\n", 1);
    /* If not all fields fit, say that fields were left out. */
    int most = (int)(sizeof(p->first) - (room ? 1 : sizeof(cut)));
    snprintf(p->first, sizeof(p->first), "%.*s%s", most, text.data ? text.data : "",
             room ? "" : cut);
}

/* ---- the body ---- */

static void begin_collecting(struct conn *c) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    struct web *w = c->web;
    w->request = REQUEST_COLLECT;
    http_body_begin(&w->client.body, &w->client.head);
    conn_timer(c, GATE_IDLE_MS);
    if (w->client.head.expect_continue && !channel_write(&c->client, go_on, sizeof(go_on) - 1))
        conn_end(c, true, NULL);
}

static bool keep_piece(struct web *w, struct http_text piece) {
    if (piece.n > HELD_ALL_MAX - *w->held_bytes ||
        (piece.n && !buf_add(&w->body, piece.s, piece.n)))
        return false;
    *w->held_bytes += piece.n;
    return true;
}

static void end_collecting(struct web *w) {
    struct sha256 h;
    sha256_init(&h);
    if (w->body.len)
        sha256_add(&h, w->body.data, w->body.len);
    sha256_end_hex(&h, w->body_hash);
    w->collected = true;
}

/* Reads a piece of the body. The head must stay in the buffer, because the parsed strings point
 * into the head. */
bool web_step_collect(struct conn *c) {
    struct web *w = c->web;
    struct side *s = &w->client;
    struct http_text data;
    size_t head = s->parser.used, used;
    int r = s->n > head ? 1 : side_fill(s, &c->client);
    if (r == 0)
        return false;
    r = r < 0 ? -1 : http_body_next(&s->body, s->in + head, s->n - head, &used, &data);
    if (r < 0) {
        conn_end(c, true, "the request was cut off");
        return false;
    }
    if (!keep_piece(w, data)) {
        web_say_no(c, "the body of the request is too large to wait for an approval", REMEDY_ALLOW);
        return false;
    }
    s->n -= used;
    memmove(s->in + head, s->in + head + used, s->n - head);
    if (r > 0) {
        end_collecting(w);
        web_decide(c);
    }
    return true;
}

/* The kept body is complete, so it is scanned from its start each time. */
static const char *check_form(const struct web *w) {
    struct override_scan form = w->form;
    return w->body.len && override_feed(&form, w->body.data, w->body.len) ? WEB_FORM_OVERRIDES
                                                                          : NULL;
}

struct denial web_check_body(struct conn *c) {
    struct web *w = c->web;
    struct buf carry DEFER(secret_wipe) = BUF(NEEDLE_MAX + WEB_BODY_MAX),
                     out DEFER(secret_wipe) = BUF(NEEDLE_MAX + WEB_BODY_MAX);
    if (!w->body.len)
        return (struct denial){NULL, REMEDY_NONE};
    if (w->shield &&
        needles_feed(&w->shield->forbidden, &carry, w->body.data, w->body.len, true, &out) != 0)
        return (struct denial){WEB_BODY_PLACEHOLDER, REMEDY_SECRET_PLACE};
    return (struct denial){check_form(w), REMEDY_NONE};
}

void web_send_body(struct conn *c) {
    struct web *w = c->web;
    bool chunked = w->client.head.framing == HTTP_CHUNKED;
    size_t n = w->body.len;
    if (!web_put_piece(&c->server, (struct http_text){w->body.data, n}, chunked) ||
        (chunked && !channel_write(&c->server, HTTP_LAST_CHUNK, strlen(HTTP_LAST_CHUNK))))
        w->server.ended = true;
    web_drop_body(w);
    conn_count(c, n, 0);
}

/* ---- waiting ---- */

/* Holds the request until it is approved. Reads its body first, because an approval includes it. */
void web_hold(struct conn *c, struct policy_rule *rule) {
    struct web *w = c->web;
    if (w->client.head.framing != HTTP_NO_BODY && !w->collected) {
        begin_collecting(c);
        return;
    }
    const char *wrong = check_form(w);
    if (wrong) {
        web_say_no(c, wrong, REMEDY_NONE);
        return;
    }
    char fields[PENDING_HASH_SIZE];
    hash_fields(&w->client.head, fields);
    const struct pending_wish wish = {w->method,   w->path,      w->query,
                                      w->body.len, w->body_hash, fields};
    struct pending *p = pending_for(c, &wish, rule->hold_ms);
    if (!p) {
        web_say_no(c, "too many requests already wait for approval", REMEDY_APPROVE);
    } else if (pending_use(p)) {
        c->approved = true;
        web_forward(c, rule);
    } else {
        bool first = !p->held;
        keep_first(w, p);
        if (policy_asks_first(rule)) {
            web_say_no(c, POLICY_NOT_YET, REMEDY_RETRY);
            return;
        }
        w->request = REQUEST_HELD;
        conn_timer(c, 0);
        pending_hold(p, c);
        if (first)
            conn_tell(c, GATE_HELD, w->method, w->path, NULL);
    }
}
