/*
 * Relays bytes both ways without inspection.
 *
 * Small amounts are copied through one shared buffer; more is spliced through a pipe from a pool,
 * which a connection holds only while the pipe is not empty. So an idle tunnel costs its two
 * sockets only.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "gate/inner.h"

enum { PIECE = 256 << 10, SPLICE_AFTER = 256 << 10, PIPES_KEPT = 32, TURNS = 4 };

struct pipe_pair {
    int in, out;
};

struct relay_pool {
    struct pipe_pair kept[PIPES_KEPT];
    size_t count;
    char buffer[PIECE];
};

/* One direction of the relay. */
struct way {
    struct relay *relay;
    unsigned from, to;      /* indexes of relay->ends */
    char *left;             /* bytes that were read and not yet written */
    size_t left_n, left_at; /* size of `left`, and offset of the next byte to write */
    struct pipe_pair pipe;  /* -1: no pipe */
    size_t piped;           /* number of bytes in the pipe */
    uint64_t moved;
    bool ended; /* `from` will send no more bytes, and the write side of `to` was shut down */
};

struct end {
    struct relay *relay;
    int fd;
    struct loop_watch *watch;
    unsigned armed;
};

struct relay {
    struct conn *conn;
    struct end ends[2]; /* the machine, the server */
    struct way ways[2]; /* from the machine, from the server */
};

enum { CLIENT, SERVER };

struct relay_pool *relay_pool_new(void) {
    struct relay_pool *p = xnew(struct relay_pool);
    return p;
}

void relay_pool_free(struct relay_pool *p) {
    while (p && p->count) {
        struct pipe_pair *pair = &p->kept[--p->count];
        close(pair->in);
        close(pair->out);
    }
    free(p);
}

static struct relay_pool *pool_of(const struct relay *r) {
    return r->conn->machine->gate->pipes;
}

static bool take_pipe(struct way *w) {
    struct relay_pool *p = pool_of(w->relay);
    int fds[2];
    if (p->count) {
        w->pipe = p->kept[--p->count];
        return true;
    }
    if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return false;
    fcntl(fds[1], F_SETPIPE_SZ, PIECE); /* may fail: a smaller pipe is only slower */
    w->pipe = (struct pipe_pair){.in = fds[1], .out = fds[0]};
    return true;
}

/* A pipe that is not empty must not be reused. */
static void give_pipe(struct way *w) {
    struct relay_pool *p = pool_of(w->relay);
    if (w->pipe.in < 0)
        return;
    if (w->piped == 0 && p->count < PIPES_KEPT) {
        p->kept[p->count++] = w->pipe;
    } else {
        close(w->pipe.in);
        close(w->pipe.out);
    }
    w->pipe = (struct pipe_pair){-1, -1};
}

void relay_free(struct relay *r) {
    if (!r)
        return;
    for (int i = 0; i < 2; i++) {
        give_pipe(&r->ways[i]);
        free(r->ways[i].left);
        loop_watch_free(r->ends[i].watch);
        close_fd(&r->ends[i].fd);
    }
    free(r);
}

void relay_reset(struct relay *r) {
    struct linger now = {.l_onoff = 1};
    for (int i = 0; i < 2; i++)
        if (r->ends[i].fd >= 0)
            setsockopt(r->ends[i].fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
}

/* The result of one read or write. ENDED: the end of the stream. */
enum moved { BROKEN = -1, NOT_NOW, SOME, ENDED };

static enum moved outcome(ssize_t n) {
    if (n > 0)
        return SOME;
    return n == 0 ? ENDED : errno == EAGAIN || errno == EINTR ? NOT_NOW : BROKEN;
}

static bool holds(const struct way *w) {
    return w->piped || w->left_n > w->left_at;
}

static enum moved write_left(struct way *w) {
    ssize_t n =
        send(w->relay->ends[w->to].fd, w->left + w->left_at, w->left_n - w->left_at, MSG_NOSIGNAL);
    if (n > 0)
        w->left_at += (size_t)n;
    if (w->left_at == w->left_n) {
        free(TAKE(w->left));
        w->left_n = w->left_at = 0;
    }
    return outcome(n);
}

static enum moved write_pipe(struct way *w) {
    ssize_t n = splice(w->pipe.out, NULL, w->relay->ends[w->to].fd, NULL, w->piped,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0)
        w->piped -= (size_t)n;
    if (w->piped == 0)
        give_pipe(w);
    return outcome(n);
}

static enum moved read_pipe(struct way *w) {
    ssize_t n = splice(w->relay->ends[w->from].fd, NULL, w->pipe.in, NULL, PIECE,
                       SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n > 0)
        w->piped += (size_t)n;
    else
        give_pipe(w);
    return outcome(n);
}

/* Copies bytes through the shared buffer. Bytes that the other side does not accept are kept, and
 * reading stops meanwhile. */
static enum moved relay_copy(struct way *w) {
    char *buffer = pool_of(w->relay)->buffer;
    size_t most = w->from == CLIENT ? conn_may_send(w->relay->conn) : PIECE;
    ssize_t n = recv(w->relay->ends[w->from].fd, buffer, most < PIECE ? most : PIECE, 0);
    if (n <= 0)
        return outcome(n);
    ssize_t sent = send(w->relay->ends[w->to].fd, buffer, (size_t)n, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return BROKEN;
    size_t done = sent > 0 ? (size_t)sent : 0;
    w->moved += (uint64_t)n;
    if (done < (size_t)n) {
        w->left_n = (size_t)n - done;
        w->left_at = 0;
        w->left = xmalloc(w->left_n);
        memcpy(w->left, buffer + done, w->left_n);
    }
    return SOME;
}

static bool relay_count(struct way *w, uint64_t before) {
    size_t n = (size_t)(w->moved - before);
    struct conn *c = w->relay->conn;
    return n == 0 || conn_count(c, w->from == CLIENT ? n : 0, w->from == CLIENT ? 0 : n);
}

static enum moved read_some(struct way *w) {
    bool looked_at = w->from == CLIENT && w->relay->conn->taints;
    if (w->moved < SPLICE_AFTER || looked_at || !take_pipe(w))
        return relay_copy(w);
    enum moved m = read_pipe(w);
    w->moved += m == SOME ? w->piped : 0;
    return m;
}

/* Moves bytes for a few turns only, because other connections wait. False: the connection ended. */
static bool relay_push(struct way *w) {
    enum moved m = SOME;
    for (int turn = 0; turn < TURNS && m == SOME && !w->ended; turn++) {
        if (!holds(w) && w->relay->conn->pause_ms)
            break;
        uint64_t before = w->moved;
        if (holds(w)) {
            m = w->piped ? write_pipe(w) : write_left(w);
        } else if ((m = read_some(w)) == ENDED) {
            w->ended = true;
            shutdown(w->relay->ends[w->to].fd, SHUT_WR);
        }
        if (!relay_count(w, before))
            return false;
    }
    return m != BROKEN;
}

static void arm(struct relay *r) {
    unsigned events[2] = {0, 0};
    for (int i = 0; i < 2; i++) {
        struct way *w = &r->ways[i];
        if (holds(w))
            events[w->to] |= LOOP_WRITE;
        else if (!w->ended && !r->conn->pause_ms)
            events[w->from] |= LOOP_READ;
    }
    for (int i = 0; i < 2; i++)
        if (events[i] != r->ends[i].armed) {
            r->ends[i].armed = events[i];
            loop_watch_set(r->ends[i].watch, events[i]);
        }
}

void relay_resume(struct conn *c) {
    arm(c->relay);
}

static void relay_on_end(void *arg, unsigned events) {
    struct end *e = arg;
    struct relay *r = e->relay;
    struct conn *c = r->conn;
    if (events & LOOP_ERROR)
        e->armed = 0;
    if (c->ended)
        return;
    for (int i = 0; i < 2; i++)
        if (!relay_push(&r->ways[i])) {
            if (!c->ended)
                conn_end(c, true, "the connection broke");
            return;
        }
    if (events & LOOP_ERROR && !(events & ~(unsigned)LOOP_ERROR) && !holds(&r->ways[0]) &&
        !holds(&r->ways[1])) {
        conn_end(c, true, "the connection broke");
        return;
    }
    if (r->ways[0].ended && r->ways[1].ended)
        conn_end(c, false, NULL);
    else
        arm(r);
}

static int watch_end(struct conn *c, struct end *e, struct err *err) {
    return loop_watch_new(c->machine->gate->loop, e->fd, 0, relay_on_end, e, &e->watch, err);
}

void relay_start(struct conn *c) {
    struct relay *r = xnew(struct relay);
    struct err err;
    c->relay = r;
    c->state = CONN_RELAY;
    conn_timer(c, 0);
    r->conn = c;
    r->ends[CLIENT] = (struct end){.relay = r, .fd = channel_take(&c->client)};
    r->ends[SERVER] = (struct end){.relay = r, .fd = channel_take(&c->server)};
    for (unsigned i = 0; i < 2; i++)
        r->ways[i] = (struct way){.relay = r, .from = i, .to = 1 - i, .pipe = {-1, -1}};
    /* The first bytes were read for the decision and must be sent to the server. */
    struct way *w = &r->ways[CLIENT];
    w->left_n = c->first.len;
    w->moved = w->left_n;
    w->left = w->left_n ? buf_take(&c->first) : NULL;
    buf_done(&c->first);
    if (!conn_count(c, w->left_n, 0))
        return;
    if (watch_end(c, &r->ends[CLIENT], &err) < 0 || watch_end(c, &r->ends[SERVER], &err) < 0) {
        conn_end(c, true, err.text);
        return;
    }
    if (holds(w) && write_left(w) == BROKEN)
        conn_end(c, true, "the connection broke");
    else
        arm(r);
}
