/*
 * A client of the API: one connection to the daemon, requests and JSON answers.
 *
 * CARREL_URL (http://ADDRESS:PORT, with CARREL_TOKEN) names a remote daemon. Otherwise
 * place_is_shared() decides: the client uses root's daemon for all users, or the daemon of this
 * user, which it starts if necessary.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/jot.h"
#include "io/http_client.h"
#include "io/place.h"
#include "io/ws_client.h"

enum { CLIENT_BODY_MAX = 256 << 20, CLIENT_TARGET_SIZE = 8192 };

struct client {
    struct http_client *http;
    struct place place;
    bool local;       /* over a unix socket: descriptors can be passed */
    char bearer[128]; /* header Authorization: "Bearer ...", or empty */
    char socket[PLACE_SIZE + 16];
    char host[64]; /* address and port of a daemon over TCP */
    uint16_t port;
};

/* When to start a daemon if none runs: always, only if machines may exist, never. */
enum client_start { CLIENT_START, CLIENT_IF_MACHINES, CLIENT_NEVER };

/* `waiting` (may be NULL) is called once when starting the daemon takes a while. A command with
 * --quiet passes client_silent, so that a new store is not announced either. */
int client_open(struct client *c, enum client_start start, void (*waiting)(void), struct err *err);
void client_silent(void);
void client_close(struct client *c);

/* Opens another connection to the same daemon, for requests while the first connection waits. */
struct http_client *client_again(const struct client *c, struct err *err);

/* The search for a daemon that went away. It ends after CARREL_WAIT seconds (default 30). */
struct client_search {
    uint64_t since_ms, again_ms; /* start and next attempt of the search; 0: no search */
    enum client_start start;     /* when to start a daemon, after GRACE_MS for a service manager */
};

enum { CLIENT_AGAIN_MS = 100 };

void client_lost(struct client_search *s);
/*
 * Tries to connect once, at most every CLIENT_AGAIN_MS. 1: connected again; 0: not yet; -1: time is
 * up, with the last error. The caller sets *s to zero to end the search.
 */
int client_look(struct client *c, struct client_search *s, struct err *err);
/* Repeats client_look() until the client is connected or time is up. */
int client_await(struct client *c, struct client_search *s, struct err *err);

/* A request to the daemon. body: JSON, or the bytes of a file or of input; NULL: none. */
struct client_request {
    const char *method;
    const char *target; /* encoded: see client_target() */
    const struct buf *body;
    const char *accept; /* NULL: application/json */
    const int *fds;
    size_t nfds;
    bool streamed;           /* the caller sends the body with http_client_write() */
    void (*idle)(void *arg); /* client_call(): called again and again until the answer begins */
    void *arg;
};

/* Sends the request and waits for the head of the answer. An error of the daemon becomes *err. */
int client_send(struct client *c, struct http_client *http, const struct client_request *r,
                struct err *err);
int client_answer(struct http_client *http, const struct http_head **ret, struct err *err);

/* Opens a WebSocket. An error of the daemon becomes *err. */
struct ws_client *client_websocket(const struct client *c, struct http_client *http,
                                   const char *target, size_t message_max, struct err *err);

/* Sends a request and reads the JSON answer. The caller owns *ret; NULL: discard the answer. */
int client_call(struct client *c, const struct client_request *r, json_t **ret, struct err *err);

/*
 * Does the same for a request that is safe to repeat, because it only reads or has a key. If the
 * daemon dies before it answers, the request is sent to the next daemon.
 */
int client_call_again(struct client *c, const struct client_request *r, json_t **ret,
                      struct err *err);
/* Writes the answer of a GET into a file, from its beginning. */
int client_fetch_again(struct client *c, const char *target, int fd, struct err *err);

/* Formats the target (path and query) of a request, such as "/v1/machines/%s/files?path=%s". Every
 * argument is percent-encoded. */
int client_target(char to[CLIENT_TARGET_SIZE], struct err *err, const char *format, ...);

/* Adds "?name=value" or "&name=value" to a target; adds nothing if value is NULL. */
int client_query(char target[CLIENT_TARGET_SIZE], const char *name, const char *value,
                 struct err *err);

/* Return a member of a JSON object; "" or 0 if the member is absent. */
const char *client_text(const json_t *object, const char *name);
long long client_number(const json_t *object, const char *name);
