#include "gate/channel.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"

enum { PIECE = 16384 };

static void on_event(void *arg, unsigned events);

int channel_open(struct channel *c, struct loop *loop, int fd, loop_fn *fn, void *arg,
                 struct err *err) {
    *c = (struct channel){.loop = loop, .fd = fd, .fn = fn, .arg = arg};
    c->queue = BUF(CHANNEL_QUEUE_MAX);
    if (loop_watch_new(loop, fd, 0, on_event, c, &c->watch, err) == 0)
        return 0;
    close_fd(&c->fd);
    return -1;
}

void channel_close(struct channel *c) {
    loop_watch_free(TAKE(c->watch));
    SSL_free(TAKE(c->ssl));
    buf_done(&c->queue);
    if (c->loop)
        close_fd(&c->fd);
    c->fd = -1;
    c->broken = true;
}

void channel_reset(struct channel *c) {
    struct linger now = {.l_onoff = 1};
    if (c->fd >= 0)
        setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    channel_close(c);
}

int channel_take(struct channel *c) {
    assert(!c->ssl && !channel_backlog(c));
    loop_watch_free(TAKE(c->watch));
    int fd = TAKE_FD(c->fd);
    channel_close(c);
    return fd;
}

static void arm(struct channel *c) {
    unsigned events = (c->reading ? LOOP_READ : 0u) | (channel_backlog(c) ? LOOP_WRITE : 0u);
    if (c->broken || !c->watch || events == c->armed)
        return;
    c->armed = events;
    loop_watch_set(c->watch, events);
}

void channel_listen(struct channel *c, bool reading) {
    c->reading = reading;
    arm(c);
}

size_t channel_backlog(const struct channel *c) {
    return c->queue.len - c->sent;
}

/* ---- sending ---- */

static void drop_sent(struct channel *c) {
    if (c->sent < c->queue.len)
        return;
    buf_done(&c->queue); /* idle connections keep no memory */
    c->queue = BUF(CHANNEL_QUEUE_MAX);
    c->sent = 0;
}

static void send_queue(struct channel *c) {
    while (!c->broken && channel_backlog(c)) {
        ssize_t n = send(c->fd, c->queue.data + c->sent, channel_backlog(c), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            c->broken = true;
            break;
        }
        c->sent += (size_t)n;
    }
    drop_sent(c);
    if (c->finished && !c->broken && !channel_backlog(c))
        shutdown(c->fd, SHUT_WR);
    arm(c);
}

static bool queue(struct channel *c, const void *bytes, size_t n) {
    if (c->sent > CHANNEL_QUEUE_MAX / 2) {
        buf_drop(&c->queue, c->sent);
        c->sent = 0;
    }
    if (!buf_add(&c->queue, bytes, n))
        c->broken = true;
    return !c->broken;
}

/* Queues and sends the bytes that OpenSSL wrote to its output BIO. */
static void drain_tls(struct channel *c) {
    char *bytes;
    long n = c->out ? BIO_get_mem_data(c->out, &bytes) : 0;
    if (n > 0) {
        queue(c, bytes, (size_t)n);
        (void)BIO_reset(c->out);
    }
    send_queue(c);
}

bool channel_write(struct channel *c, const void *bytes, size_t n) {
    if (c->broken || c->finished)
        return false;
    if (c->ssl) {
        while (n > 0 && !c->broken) {
            int part = n < PIECE ? (int)n : PIECE;
            ERR_clear_error();
            if (SSL_write(c->ssl, bytes, part) <= 0)
                c->broken = true;
            bytes = (const char *)bytes + part;
            n -= (size_t)part;
        }
        drain_tls(c);
        return !c->broken;
    }
    if (!channel_backlog(c)) {
        ssize_t sent = send(c->fd, bytes, n, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            c->broken = true;
            return false;
        }
        bytes = (const char *)bytes + (sent > 0 ? sent : 0);
        n -= sent > 0 ? (size_t)sent : 0;
    }
    if (n && !queue(c, bytes, n))
        return false;
    arm(c);
    return true;
}

void channel_finish(struct channel *c) {
    if (c->finished || c->broken)
        return;
    if (c->ssl) {
        SSL_shutdown(c->ssl);
        ERR_clear_error();
    }
    c->finished = true;
    drain_tls(c);
}

/* ---- receiving ---- */

static ssize_t receive(struct channel *c, void *to, size_t n) {
    for (;;) {
        ssize_t got = recv(c->fd, to, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        return got < 0 ? -errno : got;
    }
}

/* Receives bytes and gives them to OpenSSL. Returns what receive() returned. */
static ssize_t feed(struct channel *c) {
    char bytes[PIECE];
    ssize_t got = receive(c, bytes, sizeof(bytes));
    if (got > 0)
        BIO_write(c->in, bytes, (int)got);
    return got;
}

ssize_t channel_read(struct channel *c, void *to, size_t n) {
    if (c->fd < 0)
        return -EPIPE;
    if (!c->ssl)
        return receive(c, to, n);
    for (;;) {
        ERR_clear_error();
        int got = SSL_read(c->ssl, to, n < PIECE ? (int)n : PIECE);
        int e = SSL_get_error(c->ssl, got);
        drain_tls(c); /* OpenSSL may have written alerts or key updates */
        if (got > 0)
            return got;
        if (e != SSL_ERROR_WANT_READ)
            return e == SSL_ERROR_ZERO_RETURN ? 0 : -EPROTO;
        ssize_t fed = feed(c);
        if (fed <= 0)
            return fed;
    }
}

/* ---- TLS ---- */

void channel_secure(struct channel *c, SSL *ssl, const void *early, size_t n) {
    c->ssl = ssl;
    c->in = alloc_check(BIO_new(BIO_s_mem()));
    c->out = alloc_check(BIO_new(BIO_s_mem()));
    BIO_set_mem_eof_return(c->in, -1); /* an empty BIO is not the end of the stream */
    SSL_set_bio(ssl, c->in, c->out);
    if (n)
        BIO_write(c->in, early, (int)n);
}

static int handshake_failed(struct channel *c, struct err *err) {
    long verdict = SSL_get_verify_result(c->ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());
    if (verdict != X509_V_OK)
        reason = X509_verify_cert_error_string(verdict);
    drain_tls(c); /* sends the TLS alert */
    return err_set(err, ERR_DENIED, "the TLS handshake failed: %s",
                   reason ? reason : "the peer closed the connection");
}

int channel_handshake(struct channel *c, struct err *err) {
    for (;;) {
        ERR_clear_error();
        int done = SSL_do_handshake(c->ssl);
        int e = SSL_get_error(c->ssl, done);
        if (done == 1) {
            drain_tls(c);
            return 1;
        }
        if (e != SSL_ERROR_WANT_READ)
            return handshake_failed(c, err);
        drain_tls(c);
        ssize_t fed = feed(c);
        if (fed == -EAGAIN)
            return 0;
        if (fed <= 0)
            return err_set(err, ERR_GONE,
                           "the TLS handshake failed: the peer closed the connection");
    }
}

static void on_event(void *arg, unsigned events) {
    struct channel *c = arg;
    if (events & LOOP_ERROR) {
        c->armed = 0;
        /* Queued bytes can no longer be sent. Waiting for LOOP_WRITE would fail again for ever. */
        c->broken |= channel_backlog(c) > 0;
    }
    if (events & LOOP_WRITE)
        send_queue(c);
    c->fn(c->arg);
}
