#include "io/http_conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/defer.h"

/* Requests */

static void close_fds(int *fds, size_t *n) {
    for (size_t i = 0; i < *n; i++)
        close_fd(&fds[i]);
    *n = 0;
}

/* Reads a number of descriptors, which must be written without leading zeros. */
static bool read_count(struct http_text v, size_t *ret) {
    size_t n = 0;
    if (v.n < 1 || v.n > 2 || (v.n == 2 && v.s[0] == '0'))
        return false;
    for (size_t i = 0; i < v.n; i++) {
        if (v.s[i] < '0' || v.s[i] > '9')
            return false;
        n = 10 * n + (size_t)(v.s[i] - '0');
    }
    *ret = n;
    return n <= HTTP_FDS_MAX;
}

/*
 * "Carrel-Fds: N" gives the request N of the received descriptors. False: N is malformed, or does
 * not match their number.
 */
static bool claim_fds(struct conn *c) {
    size_t count = http_field_count(&c->head, "carrel-fds"), want = 0;
    if (count && (count > 1 || !read_count(http_field_only(&c->head, "carrel-fds"), &want)))
        return false;
    bool more_follows = c->in_at < c->in_end;
    if (c->nfds < want || (c->nfds > want && !more_follows))
        return false;
    memcpy(c->x.fds, c->fds, want * sizeof(int));
    c->x.nfds = want;
    c->nfds -= want;
    memmove(c->fds, c->fds + want, c->nfds * sizeof(int));
    return true;
}

/* Resets the exchange (one request and its answer) for the next request. */
static void exchange_reset(struct conn *c) {
    c->x = (struct http_exchange){.head = &c->head,
                                  .peer = &c->peer,
                                  .body_ms = c->server->config.body_ms,
                                  .write_ms = c->server->config.write_ms};
    c->take = TAKE_NOTHING;
    c->on_bytes = NULL;
    c->body_max = c->body_got = c->body_window = 0;
    c->due = (struct http_refusal){0};
    c->body_told = c->paused = c->begun = c->chunked = c->sized = c->mute = false;
    c->told_full = c->told_gone = c->continued = c->yours = c->too_long = false;
}

static void must_have_chosen(struct conn *c) {
    bool waits = c->take == TAKE_ALL && !c->body_told;
    if (c->open && !c->yours && !waits)
        exchange_refuse(c, (struct http_refusal){500, "no handler answered this request"});
}

static void exchange_start(struct conn *c) {
    struct http_server *s = c->server;
    exchange_reset(c);
    http_body_begin(&c->body, &c->head);
    c->body_done = c->head.framing == HTTP_NO_BODY;
    c->state = CONN_EXCHANGE;
    c->open = true;
    c->served++;
    s->stats.requests++;
    s->stats.requests_now++;
    if (!claim_fds(c)) {
        close_fds(c->fds, &c->nfds);
        c->head.keep_alive = false;
        exchange_refuse(
            c, (struct http_refusal){
                   400, "header field Carrel-Fds does not match the file descriptors sent"});
    } else if (s->stats.requests_now > s->config.requests_max) {
        exchange_refuse(c, (struct http_refusal){503, "too many requests in progress"});
    } else {
        s->config.on_request(&c->x, s->config.arg);
        must_have_chosen(c);
    }
}

/* A peer that sends requests but does not read its answers is served again only once it reads. */
static bool is_backed_up(const struct conn *c) {
    return http_out_pending(&c->out) > c->server->config.out_high;
}

static bool step_head(struct conn *c) {
    c->held_back = is_backed_up(c);
    if (c->in_end == 0 || c->held_back)
        return false;
    int r = http_parse(&c->parser, c->in, c->in_end);
    if (r < 0)
        conn_refuse(c, c->parser.refusal);
    if (r <= 0)
        return false;
    c->in_head = c->in_at = c->parser.used;
    exchange_start(c);
    return true;
}

/* Moves the bytes after the last request to the front of the buffer. */
static void next_request(struct conn *c) {
    size_t left = c->in_end - c->in_at;
    if (left)
        memmove(c->in, c->in + c->in_at, left);
    else if (c->nfds)
        c->broken = true; /* descriptors came without a request */
    c->in_head = c->in_at = 0;
    c->in_end = left;
    c->state = CONN_HEAD;
    c->wait = WAIT_NONE;
    http_parse_begin(&c->parser, HTTP_REQUEST, &c->server->config.head, &c->head);
}

/* Bodies */

static void body_failed(struct conn *c, int status, const char *why) {
    c->due = (struct http_refusal){status, why};
    c->keep = c->head.keep_alive = false;
    c->take = TAKE_NOTHING;
    if (!c->open) {
        c->state = CONN_CLOSING;
        return;
    }
    if (!c->told_gone && c->x.on_gone) {
        c->told_gone = true;
        c->x.on_gone(&c->x);
    }
    if (c->open && !c->yours)
        exchange_refuse(c, c->due);
}

/* Connections keep small buffers, so only larger ones are counted. */
static bool bodies_fit(const struct conn *c, size_t cap) {
    const struct http_server *s = c->server;
    size_t all = cap, own = cap;
    if (cap <= HTTP_KEEP)
        return true;
    for (const struct conn *o = s->conns.next; o != &s->conns; o = o->next) {
        size_t other = o == c || o->collected_cap <= HTTP_KEEP ? 0 : o->collected_cap;
        all += other;
        own += o->x.payer == c->x.payer ? other : 0;
    }
    return all <= s->config.bodies_max && (!c->x.payer || own <= s->config.bodies_max / 2);
}

static size_t collect_cap(const struct conn *c, size_t need) {
    size_t cap = c->collected_cap ? c->collected_cap : 1024;
    while (cap < need)
        cap *= 2;
    bool is_known = c->body.framing == HTTP_SIZED && c->head.length + 1 >= need;
    return is_known && c->head.length + 1 < cap ? (size_t)c->head.length + 1 : cap;
}

/* NULL: well; otherwise why the body is refused. */
static const char *collect(struct conn *c, const char *bytes, size_t n) {
    size_t have = (size_t)c->body_got - n, need = (size_t)c->body_got + 1;
    if (need > c->collected_cap) {
        size_t cap = collect_cap(c, need);
        if (!bodies_fit(c, cap))
            return "too many large requests at once: send it again when others have ended";
        char *p = realloc(c->collected, cap);
        if (!p)
            return "not enough memory for the body of the request";
        c->collected = p;
        c->collected_cap = cap;
    }
    if (n)
        memcpy(c->collected + have, bytes, n);
    c->collected[need - 1] = '\0';
    return NULL;
}

static void deliver(struct conn *c, const char *bytes, size_t n) {
    const char *why;
    if (n == 0)
        return;
    c->body_got += n;
    c->body_window += n;
    if (c->take != TAKE_ALL || c->body_window >= HTTP_WINDOW) {
        c->body_window = 0;
        c->wait = WAIT_NONE;
    }
    if (c->take != TAKE_AWAY && c->body_got > c->body_max)
        body_failed(c, 413, "the body of the request is too long");
    else if (c->take == TAKE_PIECES)
        c->on_bytes(&c->x, bytes, n);
    else if (c->take == TAKE_ALL && (why = collect(c, bytes, n)))
        body_failed(c, 503, why);
}

static bool wants_body(const struct conn *c) {
    return c->state == CONN_EXCHANGE && c->take != TAKE_NOTHING && !c->body_done && !c->paused;
}

static void feed(struct conn *c) {
    struct http_text piece;
    size_t used;
    int r = http_body_next(&c->body, c->in + c->in_at, c->in_end - c->in_at, &used, &piece);
    if (r < 0) {
        body_failed(c, c->body.refusal.status, c->body.refusal.why);
        return;
    }
    c->in_at += used;
    c->body_done = r;
    deliver(c, piece.s, piece.n);
}

static void tell_end(struct conn *c) {
    c->body_told = true;
    if (c->take == TAKE_PIECES) {
        c->on_bytes(&c->x, "", 0);
    } else if (c->take == TAKE_ALL) {
        const char *why = collect(c, "", 0);
        if (why) {
            body_failed(c, 503, why);
            return;
        }
        c->on_bytes(&c->x, c->collected, (size_t)c->body_got);
        must_have_chosen(c);
    }
}

static bool step_exchange(struct conn *c) {
    if (c->open && c->too_long) {
        c->too_long = false;
        body_failed(c, 413, "the body of the request is too long");
        return true;
    }
    if (wants_body(c) && c->in_at < c->in_end) {
        feed(c);
        return true;
    }
    if (c->open && c->body_done && !c->body_told && !c->paused && c->take != TAKE_NOTHING) {
        tell_end(c);
        return true;
    }
    if (c->open || !c->body_done)
        return false;
    next_request(c);
    return true;
}

static bool step_raw(struct conn *c) {
    if (!c->open || c->paused || c->in_at == c->in_end)
        return false;
    size_t at = c->in_at;
    c->in_at = c->in_end;
    c->on_bytes(&c->x, c->in + at, c->in_end - at);
    return true;
}

static bool step(struct conn *c) {
    if (c->broken)
        return false;
    switch (c->state) {
    case CONN_HEAD:
        return step_head(c);
    case CONN_EXCHANGE:
        return step_exchange(c);
    case CONN_RAW:
        return step_raw(c);
    case CONN_CLOSING:
    case CONN_LINGER:
    case CONN_DEAD:
        break;
    }
    return false;
}

static void advance(struct conn *c) {
    c->busy = true;
    while (step(c))
        ;
    c->busy = false;
}

/* Reading */

/* Receives from a unix socket; received descriptors wait for the request that claims them. */
static ssize_t receive_local(struct conn *c, char *to, size_t n) {
    char control[CMSG_SPACE(HTTP_FDS_MAX * sizeof(int))];
    struct iovec iov = {to, n};
    struct msghdr m = {.msg_iov = &iov,
                       .msg_iovlen = 1,
                       .msg_control = control,
                       .msg_controllen = sizeof(control)};
    ssize_t got = recvmsg(c->sock, &m, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0 || m.msg_controllen == 0)
        return got;
    bool fits = !(m.msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h; h = CMSG_NXTHDR(&m, h)) {
        int fds[HTTP_FDS_MAX];
        if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
            continue;
        size_t count = (h->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        memcpy(fds, CMSG_DATA(h), count * sizeof(int));
        size_t free_slots = HTTP_FDS_MAX - c->nfds, kept = count < free_slots ? count : free_slots;
        memcpy(c->fds + c->nfds, fds, kept * sizeof(int));
        c->nfds += kept;
        for (size_t i = kept; i < count; i++)
            close(fds[i]);
        fits = fits && kept == count;
    }
    if (!fits) {
        close_fds(c->fds, &c->nfds);
        conn_refuse(c, (struct http_refusal){400, "too many file descriptors in the request"});
    }
    return got;
}

static size_t room(const struct conn *c) {
    return c->server->in_cap - c->in_end + (c->in_at - c->in_head);
}

/* Moves unread bytes right behind the head, which the handler still uses, to make room. */
static void compact(struct conn *c) {
    size_t left = c->in_end - c->in_at;
    if (c->in_at == c->in_head)
        return;
    memmove(c->in + c->in_head, c->in + c->in_at, left);
    c->in_at = c->in_head;
    c->in_end = c->in_at + left;
}

static ssize_t read_buffered(struct conn *c) {
    if (!c->in)
        c->in = server_take_in(c->server);
    compact(c);
    size_t n = c->server->in_cap - c->in_end;
    if (n == 0) {
        errno = EAGAIN;
        return -1;
    }
    ssize_t got = c->peer.local ? receive_local(c, c->in + c->in_end, n)
                                : recv(c->sock, c->in + c->in_end, n, MSG_DONTWAIT);
    if (got > 0)
        c->in_end += (size_t)got;
    return got;
}

/* Reads bytes that certainly belong to the body, or to the protocol after an upgrade. */
static ssize_t read_direct(struct conn *c, uint64_t most) {
    char *to = c->server->scratch;
    ssize_t got =
        recv(c->sock, to, most < HTTP_SCRATCH ? (size_t)most : HTTP_SCRATCH, MSG_DONTWAIT);
    if (got <= 0)
        return got;
    c->busy = true;
    if (c->state == CONN_EXCHANGE) {
        c->body_done = http_body_skip(&c->body, (uint64_t)got);
        deliver(c, to, (size_t)got);
    } else if (c->state == CONN_RAW) {
        c->on_bytes(&c->x, to, (size_t)got);
    }
    c->busy = false;
    return got;
}

static ssize_t read_some(struct conn *c) {
    bool empty = c->in_at == c->in_end;
    uint64_t certain = wants_body(c) ? http_body_certain(&c->body) : 0;
    if (c->state == CONN_LINGER || (c->state == CONN_RAW && empty))
        return read_direct(c, HTTP_SCRATCH);
    if (empty && certain >= HTTP_DIRECT)
        return read_direct(c, certain);
    return read_buffered(c);
}

/* True if the peer closed the connection; false if it only finished sending. */
static bool hung_up(const struct conn *c) {
    struct pollfd p = {.fd = c->sock};
    return poll(&p, 1, 0) > 0 && (p.revents & (POLLHUP | POLLERR));
}

static void on_eof(struct conn *c) {
    c->eof = true;
    switch (c->state) {
    case CONN_EXCHANGE:
        /* Over TCP a closed and a half-closed connection look alike until we write. */
        c->broken = !c->body_done || (c->open && (!c->peer.local || hung_up(c)));
        return;
    case CONN_RAW:
        c->busy = true;
        if (c->open && !c->paused)
            c->on_bytes(&c->x, "", 0);
        c->busy = false;
        return;
    case CONN_LINGER:
        c->broken = true;
        return;
    case CONN_HEAD: /* answers may still be queued: conn_settle() sends them */
    case CONN_CLOSING:
    case CONN_DEAD:
        return;
    }
}

static void on_readable(struct conn *c) {
    ssize_t n = read_some(c);
    if (n == 0)
        on_eof(c);
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        c->broken = true;
}

/* The end of a connection */

static void tell_gone(struct conn *c) {
    if (c->open && !c->told_gone) {
        c->told_gone = true;
        if (c->x.on_gone)
            c->x.on_gone(&c->x);
    }
    if (c->open && !c->yours)
        exchange_close(c);
}

void conn_cut(struct conn *c) {
    if (c->state == CONN_DEAD)
        return;
    c->state = CONN_DEAD;
    c->broken = c->told_full = false;
    loop_watch_free(TAKE(c->watch));
    close_fd(&c->sock);
    close_fds(c->fds, &c->nfds);
    http_out_done(&c->out);
    c->busy = true;
    tell_gone(c);
    c->busy = false;
}

/*
 * All is sent. Closing with unread bytes would reset the connection before the peer reads our
 * answer, so the connection lingers.
 */
static void close_politely(struct conn *c) {
    bool all_read = c->body_done && c->in_at == c->in_end && !c->open;
    if (all_read || c->eof) {
        conn_cut(c);
        return;
    }
    shutdown(c->sock, SHUT_WR);
    c->state = CONN_LINGER;
    c->in_head = c->in_at = c->in_end = 0;
}

void conn_refuse(struct conn *c, struct http_refusal why) {
    if (c->state == CONN_HEAD) {
        exchange_reset(c);
        c->body_done = false;
        c->head.keep_alive = false;
        c->head.minor = 1;
        c->head.method = (struct http_text){0};
        c->state = CONN_EXCHANGE;
        c->open = true;
        c->server->stats.requests_now++;
        exchange_refuse(c, why);
    } else {
        c->broken = true;
    }
}

void conn_stop(struct conn *c) {
    c->head.keep_alive = c->keep = false;
    if (c->state == CONN_HEAD && c->in_end == 0)
        c->broken = true;
    conn_kick(c);
}

void conn_kick(struct conn *c) {
    if (!c->busy)
        loop_defer(c->server->loop, &c->wake);
}

/* After each event: send, watch, set the deadline */

static unsigned events_wanted(const struct conn *c) {
    unsigned events = http_out_pending(&c->out) ? LOOP_WRITE : 0;
    bool reads = true;
    if (c->state == CONN_CLOSING || c->eof)
        return events;
    if (c->state == CONN_HEAD)
        reads = !is_backed_up(c);
    else if (c->state == CONN_EXCHANGE || c->state == CONN_RAW)
        reads = !c->paused && room(c) > 0;
    return events | (reads ? LOOP_READ : c->half ? 0 : LOOP_HANGUP);
}

static enum conn_wait http_conn_wait_for(const struct conn *c) {
    if (c->state == CONN_LINGER)
        return WAIT_LINGER;
    if (http_out_pending(&c->out))
        return c->state == CONN_RAW && !c->x.write_ms ? WAIT_NONE : WAIT_WRITE;
    if (c->state == CONN_HEAD)
        return c->in_end || !c->served ? WAIT_HEAD : WAIT_IDLE;
    if (wants_body(c) && c->x.body_ms)
        return WAIT_BODY;
    return WAIT_NONE;
}

static unsigned wait_ms(const struct conn *c, enum conn_wait wait) {
    const struct http_server_config *config = &c->server->config;
    const unsigned ms[] = {
        [WAIT_IDLE] = config->idle_ms,   [WAIT_HEAD] = config->head_ms,  [WAIT_BODY] = c->x.body_ms,
        [WAIT_WRITE] = config->write_ms, [WAIT_LINGER] = HTTP_LINGER_MS,
    };
    return ms[wait];
}

/* A new deadline starts when the kind of waiting changes, or after progress has reset c->wait. */
static void set_deadline(struct conn *c) {
    enum conn_wait wait = http_conn_wait_for(c);
    if (wait == c->wait)
        return;
    c->wait = wait;
    if (wait != WAIT_NONE)
        c->deadline_ms = loop_now_ms(c->server->loop) + wait_ms(c, wait);
}

static void http_conn_flush(struct conn *c) {
    uint64_t before = c->out.sent;
    if (http_out_send(&c->out, c->sock, NULL, 0) < 0)
        c->broken = true;
    if (c->out.sent != before)
        c->wait = WAIT_NONE;
    if (!http_out_pending(&c->out))
        c->watched &= ~(unsigned)LOOP_WRITE;
}

static bool is_drained(const struct conn *c) {
    return c->told_full && http_out_pending(&c->out) <= c->server->config.out_high / 2;
}

static void tell_drained(struct conn *c) {
    if (!is_drained(c))
        return;
    c->told_full = false;
    c->busy = true;
    if (c->open && c->x.on_drain)
        c->x.on_drain(&c->x);
    c->busy = false;
}

void conn_settle(struct conn *c) {
    if (c->state != CONN_DEAD && !c->broken && http_out_pending(&c->out) &&
        !(c->watched & LOOP_WRITE))
        http_conn_flush(c);
    if (c->state == CONN_HEAD && c->eof && !c->held_back)
        c->state = CONN_CLOSING; /* the peer sends no more requests */
    if (c->state == CONN_CLOSING && !http_out_pending(&c->out) && !c->broken)
        close_politely(c);
    if (c->broken)
        conn_cut(c);
    if (c->state == CONN_DEAD) {
        if (!c->open)
            server_conn_gone(c->server, c);
        return;
    }
    if (c->in && c->state == CONN_HEAD && c->in_end == 0) {
        server_give_in(c->server, c->in);
        c->in = NULL;
        http_out_rest(&c->out);
    }
    if (is_drained(c) || (c->state == CONN_HEAD && c->held_back && !is_backed_up(c)))
        conn_kick(c);
    set_deadline(c);
    c->watched = events_wanted(c);
    loop_watch_set(c->watch, c->watched);
}

/* Entry points: events, deferred calls, the clock */

void conn_on_event(void *conn, unsigned events) {
    struct conn *c = conn;
    if (events & LOOP_ERROR)
        c->broken = true;
    if (events & LOOP_WRITE) {
        http_conn_flush(c);
        tell_drained(c);
    }
    if ((events & LOOP_READ) && !c->broken && c->state != CONN_CLOSING)
        on_readable(c);
    else if ((events & LOOP_HANGUP) && !c->broken) {
        c->half = true;
        c->broken = hung_up(c) || (!c->peer.local && c->open && c->body_done);
    }
    advance(c);
    conn_settle(c);
}

void conn_on_wake(void *conn) {
    struct conn *c = conn;
    if (!c->broken)
        tell_drained(c);
    advance(c);
    conn_settle(c);
}

void conn_on_clock(struct conn *c) {
    if (c->wait == WAIT_NONE || loop_now_ms(c->server->loop) < c->deadline_ms)
        return;
    bool begun_head = c->wait == WAIT_HEAD && c->in_end;
    c->busy = true;
    if (begun_head)
        conn_refuse(c, (struct http_refusal){408, "the request arrived too slowly"});
    else if (c->wait == WAIT_BODY)
        body_failed(c, 408, "the body of the request arrived too slowly");
    else
        c->broken = true;
    c->busy = false;
    c->wait = WAIT_NONE;
    conn_settle(c);
}
