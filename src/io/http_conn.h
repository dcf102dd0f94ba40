/*
 * The inside of the server: one connection and the exchange on it. Only http_*.c include this.
 *
 * A connection is driven from three places: its descriptor, its deferred call and the server's
 * clock. Each ends in conn_settle(), the only place that sends what waits, chooses what to watch
 * for and when to give up, tells the handler, and frees. What a handler calls never does more
 * than note, queue, send and conn_kick(): so no handler is ever called from inside its own call.
 */
#pragma once

#include "io/http_out.h"
#include "io/http_server.h"

enum conn_state {
    CONN_HEAD,     /* between two requests, or in a head */
    CONN_EXCHANGE, /* a head is there; also while what its handler left of the body is drained */
    CONN_RAW,      /* upgraded */
    CONN_CLOSING,  /* the last answer is queued */
    CONN_LINGER,   /* said all, and shut; reads so that the peer can read our answer */
    CONN_DEAD,     /* the socket is closed; the handler has not ended its exchange yet */
};

enum conn_take { TAKE_NOTHING, TAKE_ALL, TAKE_PIECES, TAKE_AWAY };

/* What a connection is waiting for, with a limit of time. */
enum conn_wait { WAIT_NONE, WAIT_IDLE, WAIT_HEAD, WAIT_BODY, WAIT_WRITE, WAIT_LINGER };

struct conn {
    struct http_exchange x; /* first: an exchange is its connection */
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

    char *in;                      /* of server->in_cap; NULL while nothing has come */
    size_t in_head, in_at, in_end; /* the head; then what is consumed; then what is not */
    struct http_parser parser;
    struct http_head head;
    int fds[HTTP_FDS_MAX]; /* came in, belong to no request yet */
    size_t nfds;

    struct http_body body;
    enum conn_take take;
    http_bytes_fn *on_bytes;
    uint64_t body_max, body_got, body_window;
    char *collected;
    size_t collected_cap;
    struct http_refusal due; /* the body failed so */

    struct http_out out;
    uint64_t answer_left; /* of a length that was promised */

    bool open;      /* the exchange has not been ended */
    bool yours;     /* ... and its handler has to */
    bool busy;      /* the handler may be on the stack, below us */
    bool body_done; /* every byte of it is there */
    bool body_told; /* ... and the handler knows */
    bool too_long;  /* its length says so */
    bool paused;
    bool begun;     /* a head of an answer was queued */
    bool chunked;   /* the answer is */
    bool sized;     /* the answer is */
    bool mute;      /* the answer has no body, whatever is written */
    bool keep;      /* the connection goes on after this answer */
    bool held_back; /* a request waits until more of the answers before it has gone */
    bool told_full;
    bool told_gone;
    bool continued; /* "100 Continue" was sent */
    bool eof;       /* the peer sends no more */
    bool half;      /* ... and we know that already */
    bool broken;    /* the socket is of no use any more */
};

struct listener;

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct listener *listeners;
    struct conn conns; /* head of the ring */
    struct conn *spare_conns;
    unsigned spare_count;
    char *spare_in; /* a list through the first bytes of each */
    unsigned spare_in_count;
    size_t in_cap;
    char *scratch; /* of HTTP_SCRATCH */
    struct buf line;
    struct loop_timer *clock;
    unsigned tick_ms;
    bool deaf; /* no descriptor was free: its listeners wait for the clock */
    struct http_server_stats stats;
    char date[32];
    time_t date_of;
    bool stopping, freed;
};

enum {
    HTTP_SCRATCH = 128 << 10,
    HTTP_DIRECT = 4096,    /* certain body bytes from here on are read without the small buffer */
    HTTP_DRAIN = 64 << 10, /* an unread body up to this is read away rather than cut off */
    HTTP_LINGER_MS = 2000,
    HTTP_WINDOW = 4096, /* a collected body must bring so much in body_ms */
};

/* http_server.c */
char *server_take_in(struct http_server *s);
void server_give_in(struct http_server *s, char *in);
void server_conn_gone(struct http_server *s, struct conn *c); /* frees or keeps it as a spare */
const char *server_date(struct http_server *s);

/* http_conn.c */
void conn_on_event(void *conn, unsigned events);
void conn_on_wake(void *conn);
void conn_on_clock(struct conn *c);
void conn_kick(struct conn *c); /* go on soon, outside of whoever calls */
void conn_refuse(struct conn *c, struct http_refusal why);
void conn_stop(struct conn *c); /* no further request */
void conn_cut(struct conn *c);  /* at once; then conn_settle() */
void conn_settle(struct conn *c);

/* http_exchange.c */
void exchange_refuse(struct conn *c, struct http_refusal why);
void exchange_close(struct conn *c);
bool conn_send(struct conn *c, const struct iovec *parts, int count, bool now);
