/*
 * Internals of the server: a connection and the exchange (one request and its answer) on it. Only
 * http_*.c include this header.
 *
 * A connection is driven from three places: its descriptor, its deferred call and the server's
 * clock. Each ends in conn_settle(), the only place that sends queued bytes, chooses what to watch
 * for and when to give up, calls the handler back, and frees the connection. Functions that a
 * handler calls only set flags, queue, send and conn_kick(), so that no handler is ever called from
 * inside its own call.
 */
#pragma once

#include "io/http_out.h"
#include "io/http_server.h"

enum conn_state {
    CONN_HEAD,     /* between two requests, or reading a head */
    CONN_EXCHANGE, /* a head was read; also while the rest of its body is discarded */
    CONN_RAW,      /* upgraded to another protocol */
    CONN_CLOSING,  /* the last answer is queued */
    CONN_LINGER,   /* shut for sending; still reads, so that the peer gets our answer */
    CONN_DEAD,     /* the socket is closed, but the handler still has its exchange */
};

enum conn_take { TAKE_NOTHING, TAKE_ALL, TAKE_PIECES, TAKE_AWAY };

/* What a connection waits for. Each kind has its own time limit. */
enum conn_wait { WAIT_NONE, WAIT_IDLE, WAIT_HEAD, WAIT_BODY, WAIT_WRITE, WAIT_LINGER };

struct conn {
    struct http_exchange x; /* must be first: an exchange is cast to its connection */
    struct http_server *server;
    struct conn *next, *prev;
    int sock;
    struct loop_watch *watch;
    unsigned watched;
    struct loop_call wake;
    struct http_peer peer;
    enum conn_state state;
    enum conn_wait wait;
    uint64_t deadline_ms;
    uint64_t served;

    char *in;                      /* buffer of server->in_cap; NULL while it is empty */
    size_t in_head, in_at, in_end; /* in `in`: end of the head, of consumed bytes, of all bytes */
    struct http_parser parser;
    struct http_head head;
    int fds[HTTP_FDS_MAX]; /* received descriptors that no request has claimed yet */
    size_t nfds;

    struct http_body body;
    enum conn_take take;
    http_bytes_fn *on_bytes;
    uint64_t body_max, body_got, body_window;
    char *collected;
    size_t collected_cap;
    struct http_refusal due; /* why the body is refused; the peer was not told yet */

    struct http_out out;
    uint64_t answer_left; /* bytes of the announced length that are not written yet */

    bool open;      /* the exchange has not ended */
    bool yours;     /* ... and the handler must end it */
    bool busy;      /* a handler may be running further up the call stack */
    bool body_done; /* the whole body was received */
    bool body_told; /* ... and the handler was told */
    bool too_long;  /* the length of the body is over its limit */
    bool paused;
    bool begun;     /* the head of the answer was queued */
    bool chunked;   /* the answer is sent in chunks */
    bool sized;     /* the answer has a Content-Length */
    bool mute;      /* the answer must not have a body: writes are dropped */
    bool keep;      /* the connection stays open after this answer */
    bool held_back; /* a request waits until more of the earlier answers is sent */
    bool told_full;
    bool told_gone;
    bool continued; /* "100 Continue" was sent */
    bool eof;       /* the peer has finished sending */
    bool half;      /* the peer hung up while the connection did not read */
    bool broken;    /* the connection must be cut */
};

struct listener;

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct listener *listeners;
    struct conn conns; /* head of the list of connections, which is a ring */
    struct conn *spare_conns;
    unsigned spare_count;
    char *spare_in; /* free buffers, linked through their first bytes */
    unsigned spare_in_count;
    size_t in_cap;
    char *scratch; /* a buffer of HTTP_SCRATCH */
    struct buf line;
    struct loop_timer *clock;
    unsigned tick_ms;
    bool deaf; /* out of file descriptors: listeners wait for the next tick */
    struct http_server_stats stats;
    char date[32];
    time_t date_of;
    bool stopping, freed;
};

enum {
    HTTP_SCRATCH = 128 << 10,
    HTTP_KEEP = 64 << 10,  /* of a collected body, after its exchange */
    HTTP_DIRECT = 4096,    /* from this size on, body bytes are read without the buffer */
    HTTP_DRAIN = 64 << 10, /* an unread body up to this size is read and discarded */
    HTTP_LINGER_MS = 2000,
    HTTP_WINDOW = 4096, /* a collected body must receive so many bytes in body_ms */
};

/* http_server.c */
char *server_take_in(struct http_server *s);
void server_give_in(struct http_server *s, char *in);
void server_conn_gone(struct http_server *s, struct conn *c); /* frees c, or keeps it for reuse */
const char *server_date(struct http_server *s);

/* http_conn.c */
void conn_on_event(void *conn, unsigned events);
void conn_on_wake(void *conn);
void conn_on_clock(struct conn *c);
void conn_kick(struct conn *c); /* continues soon, from a deferred call */
void conn_refuse(struct conn *c, struct http_refusal why);
void conn_stop(struct conn *c); /* accepts no further request */
void conn_cut(struct conn *c);  /* closes at once; call conn_settle() then */
void conn_settle(struct conn *c);

/* http_exchange.c */
void exchange_refuse(struct conn *c, struct http_refusal why);
void exchange_close(struct conn *c);
bool conn_send(struct conn *c, const struct iovec *parts, int count, bool now);
