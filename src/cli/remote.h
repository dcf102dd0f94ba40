/*
 * Runs a session's command in a machine of the daemon. Pipes are passed with the request, and the
 * answer is a stream of events; a terminal is a WebSocket. A daemon on another host gets no
 * descriptors (far.c).
 *
 * The machine exists already or is created for this command. A created one ends when the connection
 * closes, unless it is to be kept.
 */
#pragma once

#include "base/id.h"
#include "cli/client.h"
#include "io/ws_client.h"

struct session;

struct remote {
    struct client *client;
    const char *machine;    /* name or id; NULL: create a machine */
    const struct buf *spec; /* JSON of the machine to create */
    const int *dirs;        /* descriptors of granted directories, then of files */
    size_t dir_count;
    bool keep, quiet;           /* keep: keep the created machine; quiet: print no warnings */
    char key[ID_SIZE];          /* idempotency key of the request */
    char id[ID_SIZE];           /* id of the machine; empty until it is known */
    char exec[ID_SIZE];         /* id of the command; set by the caller to attach to it */
    uint64_t shown;             /* bytes of a terminal's output that were shown */
    struct http_client *second; /* connection for other requests while the first waits */
    struct http_client *screen; /* connection of the terminal */
    struct ws_client *ws;       /* WebSocket of the terminal */
    struct buf line;            /* incomplete line of the events */
    struct http_client *feed;   /* far.c: connection for input */
    uint64_t fed;               /* far.c: bytes of input sent */
    bool feeding;               /* far.c: the last piece of input is not acknowledged */
    struct buf input;           /* far.c: the last piece of input, to send it again */
    uint64_t seen[2];           /* far.c: bytes of stdout and stderr received */
    bool unread[2];             /* our stdout or stderr is closed */
    bool over;                  /* the events have ended */
    bool lost;                  /* the connection broke: call remote_return() */
    bool interrupted;           /* a signal came while the connection was lost */
    struct client_search search;
};

void remote_done(struct remote *r);

/* Starts the command. fds: one for each SESSION_STREAM_HANDED of request.streams, in order. */
int remote_start(struct session *s, const int *fds, uint32_t count, struct err *err);
int remote_fd(
    const struct session *s); /* when readable call remote_take(); -1: the events have ended */
/* Call after a broken connection. 0: the command continues, r->lost is set; -1: it has ended. */
int remote_lost(struct session *s, struct err *err);
/* Call every CLIENT_AGAIN_MS while r->lost. Continues at the last position; -1: time is up. */
int remote_return(struct session *s, struct err *err);
/* Reads events: sets result and output_open, and writes a terminal's output. */
int remote_take(struct session *s, struct err *err);
/* Sends a signal to the command. True: its machine is paused, so the command gets it later. */
bool remote_signal(struct session *s, uint32_t number);
void remote_resize(struct session *s, uint16_t rows, uint16_t cols);
/* Sends input to a terminal; n = 0: the end of input. */
int remote_type(struct session *s, const char *bytes, size_t n, struct err *err);

/* Functions of far.c, for a daemon that takes no descriptors. */
enum { FAR_FEED_MAX = 65536 };
/* Writes the output in an event of stdout (1) or stderr (2). */
int far_output(struct session *s, const json_t *event, int stream, struct err *err);
/* Sends input; n = 0: the end of input. When r->feed is readable, call far_fed(). It returns 1 if
 * the command takes no more input. */
int far_feed(struct session *s, const char *bytes, size_t n, struct err *err);
/* Sends input again that the last daemon had not acknowledged. */
int far_feed_again(struct session *s, struct err *err);
int far_fed(struct session *s, struct err *err);

/* Does the same as client_call(), but on the connection r->second, which stays open. */
int remote_call(struct remote *r, const struct client_request *request, json_t **ret,
                struct err *err);
/* Does the same as remote_call(), but reads only the head of the answer. The caller reads the
 * body. */
int remote_ask(struct remote *r, const struct client_request *request, const struct http_head **ret,
               struct err *err);
