#include <assert.h>
#include <string.h>
#include <unistd.h>

#include "io/http_conn.h"
#include "io/peer/tcp.h"

static struct conn *conn_of(const struct http_exchange *x) {
    return (struct conn *)x;
}

static bool is_dead(const struct conn *c) {
    return c->state == CONN_DEAD || c->broken;
}

/*
 * Sends as much as the socket takes if `now`; the rest waits for the socket, or for conn_settle().
 */
bool conn_send(struct conn *c, const struct iovec *parts, int count, bool now) {
    bool ok = true;
    if (now && !(c->watched & LOOP_WRITE))
        ok = http_out_send(&c->out, c->sock, parts, count) == 0;
    else
        for (int i = 0; ok && i < count; i++)
            ok = http_out_add(&c->out, parts[i].iov_base, parts[i].iov_len);
    c->broken = c->broken || !ok;
    if (!ok || http_out_pending(&c->out))
        conn_kick(c);
    return ok;
}

/* The end of an exchange */

void http_close_fds(struct http_exchange *x) {
    for (size_t i = 0; i < x->nfds; i++)
        if (x->fds[i] >= 0)
            close(x->fds[i]);
    x->nfds = 0;
}

void exchange_close(struct conn *c) {
    c->open = c->yours = false;
    c->server->stats.requests_now--;
    http_close_fds(&c->x);
    if (c->collected_cap > HTTP_KEEP) {
        free(c->collected);
        c->collected = NULL;
        c->collected_cap = 0;
    }
}

static void exchange_over(struct conn *c) {
    assert(c->open);
    exchange_close(c);
    if (c->state == CONN_RAW)
        c->body_done = false; /* the peer may still be sending */
    if (c->state == CONN_DEAD && !c->busy) {
        server_conn_gone(c->server, c); /* free c now: the loop may be ending */
        return;
    }
    if (c->state != CONN_DEAD && !c->keep)
        c->state = CONN_CLOSING;
    c->take = TAKE_AWAY;
    c->paused = c->too_long = false;
    conn_kick(c);
}

/* The body */

static void start_taking(struct conn *c, enum conn_take take, uint64_t max, http_bytes_fn *fn) {
    static const char go_on[] = "HTTP/1.1 100 Continue\r\n\r\n";
    assert(c->open && c->take == TAKE_NOTHING);
    c->take = take;
    c->on_bytes = fn;
    c->body_max = max;
    c->too_long = c->head.framing == HTTP_SIZED && c->head.length > max;
    bool asked = c->head.expect_continue && !c->continued && !c->begun && !c->too_long;
    if (asked && c->in_at == c->in_end && !is_dead(c)) {
        c->continued = true;
        conn_send(c, &(struct iovec){(void *)go_on, sizeof(go_on) - 1}, 1, true);
    }
    conn_kick(c);
}

/* FNV-1a; never 0. */
uint64_t http_payer(const char *name) {
    uint64_t hash = 0xcbf29ce484222325;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3;
    return hash | 1;
}

void http_collect(struct http_exchange *x, size_t max_bytes, http_bytes_fn *fn) {
    struct conn *c = conn_of(x);
    c->yours = false;
    start_taking(c, TAKE_ALL, max_bytes, fn);
}

void http_receive(struct http_exchange *x, uint64_t max_bytes, http_bytes_fn *fn) {
    struct conn *c = conn_of(x);
    c->yours = true;
    start_taking(c, TAKE_PIECES, max_bytes, fn);
}

void http_pause(struct http_exchange *x) {
    conn_of(x)->paused = true;
    conn_kick(conn_of(x));
}

void http_resume(struct http_exchange *x) {
    conn_of(x)->paused = false;
    conn_kick(conn_of(x));
}

/* Heads of answers */

static struct http_text text(const char *s) {
    return (struct http_text){s, strlen(s)};
}

/* True if the unread rest of the body is small enough to be read before the next request. */
static bool rest_is_small(const struct conn *c) {
    bool told_to_wait = c->head.expect_continue && !c->continued;
    return c->body_done ||
           (c->body.framing == HTTP_SIZED && c->body.left <= HTTP_DRAIN && !told_to_wait);
}

/*
 * True if the connection can stay open after this answer. A body that is still received while the
 * answer is sent counts as complete.
 */
static bool can_go_on(const struct conn *c) {
    bool in_the_middle = c->take == TAKE_PIECES && c->begun;
    return c->head.keep_alive && !c->server->stopping && !c->due.status &&
           (in_the_middle || rest_is_small(c));
}

static bool put_connection(struct buf *b, const struct conn *c) {
    if (!c->keep)
        return http_put_field(b, HTTP_TEXT("Connection"), HTTP_TEXT("close"));
    return c->head.minor == 1 ||
           http_put_field(b, HTTP_TEXT("Connection"), HTTP_TEXT("keep-alive"));
}

static bool put_framing(struct buf *b, const struct conn *c, int status, int64_t length) {
    if (status < 200 || status == 204 || (status == 304 && length <= 0))
        return true;
    if (length >= 0)
        return http_put_number(b, "Content-Length", (uint64_t)length);
    return !c->chunked || http_put_field(b, HTTP_TEXT("Transfer-Encoding"), HTTP_TEXT("chunked"));
}

/*
 * Writes the head of the answer into server->line. False: a field contains characters that are not
 * allowed.
 */
static bool compose(struct conn *c, int status, const struct http_pair *fields, int64_t length,
                    size_t nfds) {
    struct buf *b = &c->server->line;
    b->len = 0;
    return http_put_status_line(b, status) &&
           http_put_field(b, HTTP_TEXT("Date"), text(server_date(c->server))) &&
           put_framing(b, c, status, length) && (c->state == CONN_RAW || put_connection(b, c)) &&
           (nfds == 0 || http_put_number(b, "Carrel-Fds", nfds)) && http_put_pairs(b, fields) &&
           (!c->x.always || http_put_pairs(b, c->x.always)) && http_put_end(b);
}

static struct iovec composed(struct conn *c) {
    return (struct iovec){c->server->line.data, c->server->line.len};
}

/* Whole answers */

static void lose_fds(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

static bool has_no_body(const struct conn *c, int status) {
    return http_text_is(c->head.method, "HEAD") || status == 204 || status == 304;
}

/* False if more requests wait in the buffer: their answers are sent together. */
static bool alone(const struct conn *c) {
    return !c->busy || !c->body_done || c->in_at == c->in_end;
}

void http_reply_fds(struct http_exchange *x, int status, const struct http_pair *fields,
                    const void *body, size_t n, const int *fds, size_t nfds) {
    struct conn *c = conn_of(x);
    assert(!c->begun && nfds <= HTTP_FDS_MAX && (nfds == 0 || c->peer.local));
    if (is_dead(c)) {
        lose_fds(fds, nfds);
        exchange_over(c);
        return;
    }
    c->keep = can_go_on(c);
    if (!compose(c, status, fields, (int64_t)n, nfds)) {
        status = 500;
        n = 0;
        compose(c, status, NULL, 0, nfds);
    }
    struct iovec parts[] = {composed(c), {(void *)body, has_no_body(c, status) ? 0 : n}};
    if (nfds && !http_out_add_fds(&c->out, fds, nfds)) {
        lose_fds(fds, nfds);
        c->broken = true;
    }
    /* Descriptors can be sent only with a queued byte. */
    if (nfds)
        conn_send(c, &parts[0], 1, false);
    conn_send(c, parts + (nfds ? 1 : 0), nfds ? 1 : 2, alone(c));
    exchange_over(c);
}

void http_reply(struct http_exchange *x, int status, const struct http_pair *fields,
                const void *body, size_t n) {
    http_reply_fds(x, status, fields, body, n, NULL, 0);
}

/* Answers with an error in JSON, for refusals that no handler sees. */
void exchange_refuse(struct conn *c, struct http_refusal why) {
    static const struct {
        int status;
        enum err_code code;
    } codes[] = {
        {408, ERR_TIMEOUT},  {413, ERR_LIMIT},       {414, ERR_LIMIT}, {431, ERR_LIMIT},
        {500, ERR_INTERNAL}, {501, ERR_UNSUPPORTED}, {503, ERR_BUSY},  {505, ERR_UNSUPPORTED},
    };
    enum err_code code = ERR_INVALID;
    char body[256];
    for (size_t i = 0; i < sizeof(codes) / sizeof(*codes); i++)
        if (codes[i].status == why.status)
            code = codes[i].code;
    int n = snprintf(
        body, sizeof(body),
        "{\"error\":{\"code\":\"%s\",\"message\":\"%s\",\"cause\":\"\",\"remedy\":\"\"}}\n",
        err_code_name(code), why.why);
    c->server->stats.refused++;
    if (c->x.on_refuse) {
        c->x.on_refuse(&c->x, why.status, why.why);
        return;
    }
    http_reply(&c->x, why.status,
               HTTP_FIELDS({"Content-Type", "application/json"},
                           {why.status == 503 ? "Retry-After" : NULL, "1"}),
               body, (size_t)n);
}

/* Answers in pieces */

void http_hold(struct http_exchange *x) {
    conn_of(x)->yours = true;
}

void http_begin(struct http_exchange *x, int status, const struct http_pair *fields,
                int64_t length) {
    struct conn *c = conn_of(x);
    assert(c->open && !c->begun);
    c->yours = c->begun = true;
    if (is_dead(c))
        return;
    c->keep = can_go_on(c);
    c->mute = has_no_body(c, status);
    c->sized = length >= 0;
    c->answer_left = c->sized ? (uint64_t)length : 0;
    c->chunked = !c->sized && c->head.minor == 1;
    if (!c->sized && !c->chunked)
        c->keep = c->keep && c->mute;
    if (!compose(c, status, fields, length, 0)) {
        c->sized = c->mute = true;
        c->chunked = false;
        compose(c, 500, NULL, 0, 0);
    }
    struct iovec head = composed(c);
    conn_send(c, &head, 1, false);
    c->chunked = c->chunked && !c->mute;
}

static void send_body(struct conn *c, const void *bytes, size_t n) {
    enum { SOON = 8 << 10 }; /* a write of at least so many bytes is sent at once */
    char line[HTTP_CHUNK_LINE_MAX];
    struct iovec parts[] = {{line, 0}, {(void *)bytes, n}, {(void *)"\r\n", 2}};
    if (c->chunked)
        parts[0].iov_len = http_chunk_line(line, n);
    conn_send(c, parts + !c->chunked, c->chunked ? 3 : 1, n >= SOON);
}

bool http_write(struct http_exchange *x, const void *bytes, size_t n) {
    struct conn *c = conn_of(x);
    assert(c->begun && (!c->sized || c->mute || n <= c->answer_left));
    if (is_dead(c))
        return false;
    if (c->sized)
        c->answer_left -= n;
    if (n && !c->mute)
        send_body(c, bytes, n);
    size_t pending = http_out_pending(&c->out);
    if (pending > c->server->config.out_max) {
        c->broken = true;
        conn_kick(c);
    }
    c->told_full = c->told_full || pending > c->server->config.out_high;
    return !c->told_full && !is_dead(c);
}

bool http_is_full(const struct http_exchange *x) {
    return conn_of((struct http_exchange *)x)->told_full;
}

void http_end(struct http_exchange *x) {
    struct conn *c = conn_of(x);
    assert(c->begun);
    if (!is_dead(c)) {
        struct iovec last = {(void *)HTTP_LAST_CHUNK, c->chunked ? strlen(HTTP_LAST_CHUNK) : 0};
        conn_send(c, &last, 1, true);
        bool cut_short = c->sized && !c->mute && c->answer_left;
        c->keep = c->keep && !cut_short && rest_is_small(c);
    }
    exchange_over(c);
}

void http_drop(struct http_exchange *x) {
    struct conn *c = conn_of(x);
    if (!is_dead(c) && !c->begun && c->due.status) {
        exchange_refuse(c, c->due);
        return;
    }
    c->keep = false;
    if (!is_dead(c) && (!c->begun || c->state == CONN_RAW))
        c->broken = true;
    exchange_over(c);
}

size_t http_pending(const struct http_exchange *x) {
    return http_out_pending(&conn_of(x)->out);
}

bool http_is_gone(const struct http_exchange *x) {
    return is_dead(conn_of(x));
}

bool http_peer_user(const struct http_exchange *x, uid_t *ret) {
    const struct conn *c = conn_of(x);
    if (!c->peer.local)
        return tcp_peer_user(c->sock, ret);
    *ret = c->peer.uid;
    return true;
}

struct loop *http_loop(const struct http_exchange *x) {
    return conn_of(x)->server->loop;
}

/* Upgrade to another protocol */

void http_upgrade(struct http_exchange *x, int status, const struct http_pair *fields,
                  http_bytes_fn *fn) {
    struct conn *c = conn_of(x);
    assert(c->open && !c->begun && c->body_done);
    c->yours = c->begun = true;
    if (is_dead(c))
        return;
    c->state = CONN_RAW;
    c->keep = c->sized = c->chunked = c->mute = false;
    c->on_bytes = fn;
    bool ok = compose(c, status, fields, -1, 0);
    assert(ok);
    (void)ok;
    struct iovec head = composed(c);
    conn_send(c, &head, 1, true);
    conn_kick(c);
}
