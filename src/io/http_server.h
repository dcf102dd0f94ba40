/*
 * An HTTP/1.1 server in the loop: unix and TCP listeners, keep-alive, pipelining in order,
 * limits on everything a peer may do slowly or too much of.
 *
 * A request arrives as a struct http_exchange in on_request(), as soon as its head is there. In
 * that call do one of these:
 *   - answer at once:        http_reply()
 *   - get the whole body:    http_collect(x, max, fn); fn must do one of these again
 *   - take it as a stream:   http_receive(x, max, fn), with http_pause() and http_resume()
 *   - answer later, or bit by bit: http_hold(), then http_reply() or http_begin(), http_write()
 * Doing nothing is a bug, answered with 500.
 *
 * Whose it is. An exchange that was held, received or begun is yours: it stays valid until you
 * end it, once, with http_reply(), http_end() or http_drop() - even if the peer has gone
 * meanwhile; then what you say is dropped, and on_gone (if set) has told you so. Ending it is the
 * last thing you do with it. While a body is collected the exchange is the server's: if it is too
 * long, malformed, too slow or cut off, the server answers for itself and fn is never called;
 * on_gone is then the place to free what x->user holds, and may call http_drop() but need not.
 *
 * Everything happens on the loop's thread. on_gone and on_drain are never called from inside one
 * of the functions below.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "io/http.h"
#include "io/loop.h"

struct http_server;
struct http_exchange;

typedef void http_exchange_fn(struct http_exchange *x);
/* A whole body, or a piece of one (then n = 0 means that it ended). Dead when fn returns. */
typedef void http_bytes_fn(struct http_exchange *x, const char *bytes, size_t n);

/* Who asks. */
struct http_peer {
    bool local; /* over a unix socket: the kernel vouches for the ids */
    pid_t pid;  /* local only */
    uid_t uid;
    gid_t gid;
    char text[64]; /* "uid 1000 pid 77", "127.0.0.1:54321": for logs */
};

enum { HTTP_FDS_MAX = 24 };

struct http_exchange {
    const struct http_head *head; /* valid as long as the exchange */
    const struct http_peer *peer;

    /* Yours. */
    void *user;
    http_exchange_fn *on_gone;  /* the peer vanished or was too slow; at most once */
    http_exchange_fn *on_drain; /* after http_write() said false: there is room again */
    unsigned body_ms;           /* from the config; 0: the peer may be silent while it sends */

    /* Descriptors that came with the request (unix only). Take one by putting -1 there; what is
     * left is closed when the exchange ends. */
    int fds[HTTP_FDS_MAX];
    size_t nfds;
};

/* Zero means the default behind it. Times in milliseconds. */
struct http_server_config {
    void (*on_request)(struct http_exchange *x, void *arg);
    void *arg;
    struct http_limits head;
    unsigned connections_max; /* 1024; further ones get 503 */
    bool shares;              /* they are shared out by io/http_crowd.h; else first come */
    unsigned requests_max;    /* 1024 unanswered ones; further ones get 503 */
    unsigned head_ms;         /* 10000, from a head's first byte (or the connect) to its last */
    unsigned body_ms;         /* 30000 without a byte; collecting: for every 4 KiB */
    unsigned idle_ms;         /* 75000 between two requests */
    unsigned write_ms;        /* 300000 with something to send and nothing taken */
    size_t out_high;          /* 256 KiB unsent, and http_write() says false */
    size_t out_max;           /* 16 MiB unsent from http_write(): the peer is cut off */
};

struct http_server *http_server_new(struct loop *loop, const struct http_server_config *config);

/* No more connections; those there are end with their current exchange. */
void http_server_stop(struct http_server *server);

/*
 * Cuts off everybody. Exchanges that are yours stay valid until you end them. Not from inside a
 * callback of this server.
 */
void http_server_free(struct http_server *server);

/*
 * `mode` says who may connect (0600, 0666). A socket file that nobody listens on any more is
 * replaced; one with a listener is `exists`. The file is removed when the server stops.
 */
int http_listen_unix(struct http_server *server, const char *path, mode_t mode, struct err *err);

/* `host` is a numeric address. Port 0: any; *ret_port (may be NULL) says which it is. */
int http_listen_tcp(struct http_server *server, const char *host, uint16_t port, uint16_t *ret_port,
                    struct err *err);

/* A listening stream socket made elsewhere; the server owns it from here, also on failure. */
int http_listen_fd(struct http_server *server, int fd, struct err *err);

/* A connected stream socket made elsewhere; the server owns it from here. */
void http_serve_fd(struct http_server *server, int fd);

struct http_server_stats {
    uint64_t connections, requests; /* ever */
    uint64_t refused;               /* answered by the server itself */
    unsigned connections_now, requests_now;
};
struct http_server_stats http_server_stats(const struct http_server *server);

/* The body */

/* fn(x, body, n) once it is whole; also at once, from inside this call. `body` is NUL-terminated.
 */
void http_collect(struct http_exchange *x, size_t max_bytes, http_bytes_fn *fn);

/*
 * fn(x, piece, n) as pieces come, n = 0 at the end. Longer than max_bytes, or malformed: on_gone,
 * and http_drop() then sends the refusal that is due. "100 Continue" is sent here.
 */
void http_receive(struct http_exchange *x, uint64_t max_bytes, http_bytes_fn *fn);
void http_pause(struct http_exchange *x);
void http_resume(struct http_exchange *x);

/* The answer. Fields: HTTP_FIELDS({"Content-Type", "text/plain"}), or NULL. */

void http_hold(struct http_exchange *x);

/*
 * The whole answer. Date, Content-Length and Connection are added; to HEAD the body is left out
 * but counted. A field that could not stand in a head makes it a 500.
 */
void http_reply(struct http_exchange *x, int status, const struct http_pair *fields,
                const void *body, size_t n);

/* Those that came with the request, once nobody needs them any more; else they go with its end. */
void http_close_fds(struct http_exchange *x);

/* The same with up to HTTP_FDS_MAX descriptors (unix only), which are closed once sent or lost. */
void http_reply_fds(struct http_exchange *x, int status, const struct http_pair *fields,
                    const void *body, size_t n, const int *fds, size_t nfds);

/*
 * The same bit by bit. length < 0: not known (chunked, or until the connection closes for
 * HTTP/1.0). Small writes of one turn of the loop are sent together. http_write() is false when
 * more than out_high waits, or nobody reads: stop until on_drain (or on_gone). An answer that is
 * ended short of its length cuts the connection, so that the peer sees it.
 */
void http_begin(struct http_exchange *x, int status, const struct http_pair *fields,
                int64_t length);
bool http_write(struct http_exchange *x, const void *bytes, size_t n);
/* http_write() said false and on_drain has not come yet: what is new can wait for it. */
bool http_is_full(const struct http_exchange *x);
void http_end(struct http_exchange *x);

/*
 * Ends it without an answer of yours: sends the server's own refusal if one is due (a body that
 * was malformed, too long or too slow), else cuts the connection.
 */
void http_drop(struct http_exchange *x);

/* Bytes not yet taken by the kernel; who cannot pause his source drops peers by this. */
size_t http_pending(const struct http_exchange *x);
bool http_is_gone(const struct http_exchange *x);
struct loop *http_loop(const struct http_exchange *x);

/*
 * Another protocol takes over the connection (101, or 200 to CONNECT): fn gets what comes in,
 * n = 0 when the peer will send no more; http_write() sends bytes as they are; http_end() closes
 * after they have gone. `fields` hold Upgrade and so on. The exchange is yours.
 */
void http_upgrade(struct http_exchange *x, int status, const struct http_pair *fields,
                  http_bytes_fn *fn);
