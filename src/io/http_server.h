/*
 * An HTTP/1.1 server in the loop: unix and TCP listeners, keep-alive, pipelining in order,
 * limits on the time, size and number of everything that a peer sends.
 *
 * A request arrives as a struct http_exchange in on_request(), as soon as its head is complete. In
 * that call do one of these:
 *   - answer at once:        http_reply()
 *   - get the whole body:    http_collect(x, max, fn); fn must do one of these again
 *   - take it as a stream:   http_receive(x, max, fn), with http_pause() and http_resume()
 *   - answer later, or in pieces: http_hold(), then http_reply() or http_begin(), http_write()
 * A handler that does none of these has a bug; the server answers with 500.
 *
 * Ownership. An exchange that was held, received or begun is yours: it stays valid until you
 * end it, once, with http_reply(), http_end() or http_drop() - even if the peer has gone
 * meanwhile; then your answer is dropped, and on_gone (if set) was called. Ending it is the
 * last thing you do with it. While a body is collected, the server owns the exchange: if it is too
 * long, malformed, too slow or cut off, the server itself answers and fn is never called;
 * on_gone is then the place to free what x->user holds, and may call http_drop() but need not.
 *
 * Everything happens on the loop's thread. on_gone and on_drain are never called from inside one
 * of the functions below.
 */
#pragma once

#include <sys/types.h>

#include "base/err.h"
#include "io/http.h"
#include "io/http_out.h"
#include "io/loop.h"

struct http_server;
struct http_exchange;

typedef void http_exchange_fn(struct http_exchange *x);
/* Receives a whole body, or a piece of one (n = 0: the body has ended). Valid until fn returns. */
typedef void http_bytes_fn(struct http_exchange *x, const char *bytes, size_t n);

/* The client of a connection. */
struct http_peer {
    bool local; /* over a unix socket: pid, uid and gid are from the kernel */
    pid_t pid;  /* local only */
    uid_t uid;
    gid_t gid;
    bool secure;   /* it speaks TLS with whoever passed the connection on */
    char text[64]; /* "uid 1000 pid 77", "127.0.0.1:54321": for logs */
};

struct http_exchange {
    const struct http_head *head; /* valid as long as the exchange */
    const struct http_peer *peer;

    /* Set by the handler. */
    void *user;
    http_exchange_fn *on_gone;      /* the peer disconnected or was too slow; called at most once */
    http_exchange_fn *on_drain;     /* after http_write() returned false: there is room again */
    const struct http_pair *always; /* fields of every answer, for as long; NULL: none */
    /* Answers instead of the server when the server itself refuses the request. May be called after
     * on_gone. NULL: the server answers in its own form. */
    void (*on_refuse)(struct http_exchange *x, int status, const char *why);
    uint64_t payer;    /* who pays for a collected body: http_payer(); 0: nobody */
    unsigned body_ms;  /* from the config; 0: the peer may be silent while it sends */
    unsigned write_ms; /* from the config; 0: the peer may leave bytes unread */

    /*
     * Descriptors that came with the request (unix only). To take one, replace it by -1; the others
     * are closed when the exchange ends.
     */
    int fds[HTTP_FDS_MAX];
    size_t nfds;
};

/* A limit of zero means the default, which its comment names. Times are in milliseconds. */
struct http_server_config {
    void (*on_request)(struct http_exchange *x, void *arg);
    void *arg;
    struct http_limits head;
    unsigned connections_max; /* default 1024; further connections get 503 */
    bool shares;              /* connections are shared by the rules of io/http_crowd.h */
    unsigned requests_max;    /* default 1024 unanswered requests; further ones get 503 */
    unsigned head_ms;  /* default 10000; to receive a head, after its first byte or the connect */
    unsigned body_ms;  /* default 30000; without a byte of body; http_collect(): per 4 KiB */
    unsigned idle_ms;  /* default 75000; between two requests */
    unsigned write_ms; /* default 300000; while bytes wait and the peer takes none */
    size_t out_high;   /* default 64 KiB; http_write() returns false when more is unsent */
    size_t out_max;    /* default 16 MiB; a peer with more unsent bytes is cut off */
    /* default 256 MiB; of all collected bodies above 64 KiB. Half of it for one payer. */
    size_t bodies_max;
};

struct http_server *http_server_new(struct loop *loop, const struct http_server_config *config);

/* Accepts no more connections; open ones close after their current exchange. */
void http_server_stop(struct http_server *server);

/*
 * Closes all connections. Exchanges that you own stay valid until you end them. Do not call it from
 * a callback of this server.
 */
void http_server_free(struct http_server *server);

/*
 * Listens on a unix socket. `mode` says who may connect (0600, 0666). An existing socket file
 * without a listener is replaced; with one the error is `exists`. The file is removed when the
 * server stops.
 */
int http_listen_unix(struct http_server *server, const char *path, mode_t mode, struct err *err);

/* `host` is a numeric address. Port 0: a free port; *ret_port (may be NULL) is the chosen one. */
int http_listen_tcp(struct http_server *server, const char *host, uint16_t port, uint16_t *ret_port,
                    struct err *err);

/* Takes over a listening stream socket. The server owns it, also on failure. */
int http_listen_fd(struct http_server *server, int fd, struct err *err);

/* Takes over a connected stream socket and serves it. */
void http_serve_fd(struct http_server *server, int fd);
/* The same for a connection that somebody else accepted and passes on. */
void http_serve_for(struct http_server *server, int fd, const struct http_peer *peer);

struct http_server_stats {
    uint64_t connections, requests; /* since the start */
    uint64_t refused;               /* requests that the server itself refused */
    unsigned connections_now, requests_now;
};
struct http_server_stats http_server_stats(const struct http_server *server);

/* The body */

/*
 * Calls fn(x, body, n) once the body is complete, possibly from inside this call. `body` is
 * NUL-terminated. Set x->payer before. 503: the bodies of all, or of this payer, take too much.
 */
void http_collect(struct http_exchange *x, size_t max_bytes, http_bytes_fn *fn);
uint64_t http_payer(const char *name);

/*
 * Calls fn(x, piece, n) for each piece of the body, n = 0 at the end. If the body is longer than
 * max_bytes or malformed, on_gone is called; http_drop() then sends the refusal. Sends "100
 * Continue".
 */
void http_receive(struct http_exchange *x, uint64_t max_bytes, http_bytes_fn *fn);
void http_pause(struct http_exchange *x);
void http_resume(struct http_exchange *x);

/* The answer. Fields: HTTP_FIELDS({"Content-Type", "text/plain"}), or NULL. */

void http_hold(struct http_exchange *x);

/*
 * Sends the whole answer. Adds Date, Content-Length and Connection; the answer to HEAD has the
 * length, but no body. A field with characters that are not allowed makes it a 500.
 */
void http_reply(struct http_exchange *x, int status, const struct http_pair *fields,
                const void *body, size_t n);

/* Closes the descriptors of the request early; otherwise they are closed when the exchange ends. */
void http_close_fds(struct http_exchange *x);

/*
 * As http_reply(), with up to HTTP_FDS_MAX descriptors (unix only), which are closed once sent or
 * if the answer is lost.
 */
void http_reply_fds(struct http_exchange *x, int status, const struct http_pair *fields,
                    const void *body, size_t n, const int *fds, size_t nfds);

/*
 * Sends an answer in pieces. length < 0: unknown (chunked, or until the connection closes for
 * HTTP/1.0). Small writes of one turn of the loop are sent together. http_write() returns false if
 * more than out_high waits, or the peer is gone: stop until on_drain (or on_gone). If an answer
 * ends before its length, the connection is cut, so that the peer notices.
 */
void http_begin(struct http_exchange *x, int status, const struct http_pair *fields,
                int64_t length);
bool http_write(struct http_exchange *x, const void *bytes, size_t n);
/* True if http_write() returned false and on_drain was not called yet. */
bool http_is_full(const struct http_exchange *x);
void http_end(struct http_exchange *x);

/*
 * Ends the exchange without an answer from the handler. Sends the refusal of the server if the body
 * was malformed, too long or too slow, else cuts the connection.
 */
void http_drop(struct http_exchange *x);

/*
 * Number of unsent bytes. A handler that cannot pause its source drops peers when it is too high.
 */
size_t http_pending(const struct http_exchange *x);
bool http_is_gone(const struct http_exchange *x);
/* The user of the process at the other end: as tcp_peer_user(), also for unix sockets. It may read
 * a long table of the kernel. */
bool http_peer_user(const struct http_exchange *x, uid_t *ret);
struct loop *http_loop(const struct http_exchange *x);

/*
 * Switches the connection to another protocol (101, or 200 to CONNECT). fn gets the received bytes,
 * n = 0 when the peer has finished sending. http_write() sends raw bytes; http_end() closes after
 * they are sent. `fields` contain Upgrade and others. You own the exchange.
 */
void http_upgrade(struct http_exchange *x, int status, const struct http_pair *fields,
                  http_bytes_fn *fn);
