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
    const char *machine;    /* as the caller names it; NULL: one is made */
    const struct buf *spec; /* of that one, as JSON */
    const int *dirs;        /* directories lent to it, then files: one descriptor each */
    size_t dir_count;
    bool keep, quiet;           /* quiet: no word of what the host cannot do for it */
    char key[ID_SIZE];          /* of our request: sent again, it is the same command */
    char id[ID_SIZE];           /* of the machine, once we were told; else empty */
    char exec[ID_SIZE];         /* of our command, likewise; given: come back to it */
    uint64_t shown;             /* of a terminal's output */
    struct http_client *second; /* for all else while the first waits */
    struct http_client *screen; /* of a terminal in a machine of our own */
    struct ws_client *ws;       /* of a terminal */
    struct buf line;            /* of the stream of events, not whole yet */
    struct http_client *feed;   /* far.c: for input */
    uint64_t fed;               /* of it */
    bool feeding;               /* the last of it is not taken yet */
    struct buf input;           /* far.c: that piece, to send it again */
    uint64_t seen[2];           /* far.c: of stdout and stderr */
    bool unread[2];             /* nobody takes stdout, stderr from us any more */
    bool over;                  /* nothing comes any more */
    bool lost;                  /* the daemon went away under our command: remote_return() */
    bool interrupted;           /* and we were told to end meanwhile */
    struct client_search search;
};

void remote_done(struct remote *r);

/* fds: for those of request.streams that are SESSION_STREAM_HANDED, in order. */
int remote_start(struct session *s, const int *fds, uint32_t count, struct err *err);
int remote_fd(const struct session *s); /* readable: remote_take(); -1: nothing comes any more */
/* Our connection broke: 0 and r->lost when the command goes on without it, else -1. */
int remote_lost(struct session *s, struct err *err);
/* While r->lost, every CLIENT_AGAIN_MS: reads on where it was; -1: the daemon did not come back. */
int remote_return(struct session *s, struct err *err);
/* Something came: sets result and output_open, writes a terminal's output. */
int remote_take(struct session *s, struct err *err);
void remote_signal(struct session *s, uint32_t number);
void remote_resize(struct session *s, uint16_t rows, uint16_t cols);
/* Typed into a terminal; n = 0: the end of it. */
int remote_type(struct session *s, const char *bytes, size_t n, struct err *err);

/* far.c: where no descriptor can be handed over. */
enum { FAR_FEED_MAX = 65536 };
/* An event of stdout (1) or stderr (2). */
int far_output(struct session *s, const json_t *event, int stream, struct err *err);
/* n = 0: the end of it. Then, when r->feed is readable, far_fed(); 1: it takes no more. */
int far_feed(struct session *s, const char *bytes, size_t n, struct err *err);
/* What was not taken when the daemon went. */
int far_feed_again(struct session *s, struct err *err);
int far_fed(struct session *s, struct err *err);

/* A request beside the session's: see client_call(). The connection stays in r->second. */
int remote_call(struct remote *r, const struct client_request *request, json_t **ret,
                struct err *err);
/* The same, up to the head of the answer: its body is read from r->second. */
int remote_ask(struct remote *r, const struct client_request *request, const struct http_head **ret,
               struct err *err);
