/* One request of the API: the caller, the route, the parameters and the response.
 * The dispatcher (api.c) creates a call and gives it to the handler of the route. The handler ends
 * it with one of the functions below, now or later; then it is freed. If the client disconnects,
 * `on_gone` is called and the response is dropped, but the request is still carried out.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/sha256.h"
#include "io/http_server.h"
#include "io/ws_server.h"
#include "service/schema.h"
#include "service/service.h"

enum {
    CALL_PARAMS = 3,
    CALL_PARAM_SIZE = 128,
    CALL_QUERIES = 8,
    CALL_FDS = 16,
    CALL_BODY_MAX = 8 << 20,
};

struct api;
struct route;

/* One query parameter, percent-decoded. */
struct call_word {
    char name[32];
    char *value;
};

struct call {
    struct api *api;
    struct service *service;
    struct http_exchange *http;
    const struct route *route;
    struct caller who;
    char params[CALL_PARAMS]
               [CALL_PARAM_SIZE]; /* parameters of the path, in order: machine, exec ... */
    struct call_word queries[CALL_QUERIES];
    size_t query_count;
    json_t *json;               /* the parsed body */
    void *request;              /* the body as the struct of route->request; NULL: no body */
    uint8_t hash[SHA256_BYTES]; /* hash of the body, to compare idempotent requests */
    const int *fds;             /* descriptors of the request; owned by the exchange */
    size_t nfds;
    int64_t length; /* Content-Length of a streamed response; -1: unknown */
    /* Set by the handler. */
    void *user;
    void (*on_gone)(
        struct call *c); /* called once; the call lives until it is answered or abandoned */
    void (*on_drain)(struct call *c); /* there is room again after call_write() returned false */
    void (*on_body)(struct call *c, const char *bytes, size_t n);
    void (*on_end)(struct call *c); /* the call was answered and is about to be freed */
    char machine[ID_SIZE];          /* machine that on_end deletes */
    char used[ID_SIZE];             /* cell machine that stays awake until the call ends */
    char *warnings;                 /* warnings about a machine created for this call */
    struct ticket *ticket;          /* the ticket that allows the call, or NULL */
    uint64_t moved;                 /* bytes of a file that were read or written */
    bool whole;                     /* the file was written, or read to its end */
    /* Set by the dispatcher. */
    uint64_t started_us;
    int status;
    enum err_code failed;
    bool streaming;
    bool by_ticket; /* a ticket of the console stands in the query */
};

/* Returns the value of a query parameter; NULL: absent. It is valid as long as the call. */
const char *call_query(struct call *c, const char *name);
bool call_flag(struct call *c, const char *name);
/* Reads a number from the query; -1: it is out of range. *ret stays untouched if it is absent. */
int call_number(struct call *c, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                struct err *err);
/*
 * Reads where a stream starts: the header Last-Event-ID, which a browser sends when it connects
 * again, or the query parameter `name`, which overrides it. *ret stays untouched if both are
 * absent.
 */
int call_stream_start(struct call *c, const char *name, uint64_t *ret, struct err *err);
/* True: the Accept header contains that type. */
bool call_accepts(struct call *c, const char *type);

/* Each of these functions sends the response and ends the call. */
void call_view(struct call *c, int status, const struct schema *schema, const void *view);
void call_json(struct call *c, int status, const struct jot *j, const struct buf *text);
/* Answers with {"NAME": [rows]}: what `list` finds for the caller, and with `all` of all owners. */
typedef int call_list_fn(struct service *s, const struct caller *who, bool all_owners,
                         service_row_fn *row, void *arg, struct err *err);
void call_list(struct call *c, const char *name, const struct schema *schema, call_list_fn *list);
void call_error(struct call *c, const struct err *err);
void call_error_status(struct call *c, int status, const struct err *err);
/* Sends an error with one additional header, made by HTTP_FIELDS(), or NULL. */
void call_error_more(struct call *c, int status, const struct err *err,
                     const struct http_pair *more);
void call_text(struct call *c, int status, const char *type, const void *body, size_t n);
/* Callback for service functions that return JSON; arg is the call. */
void call_told(void *arg, const char *json, const struct err *err);
/* A service_machine_fn: answers with the new state of a machine. arg: the call. */
void call_machine_told(void *arg, const struct machine_view *view, const struct err *err);
void call_done(struct call *c); /* answers with "{}" */
void call_done_fds(struct call *c, const int *fds, size_t nfds);
/* Ends the call without a response: the client disconnected, or the server refused the body. */
void call_abandon(struct call *c);
/* Does the same as call_abandon() before call_listen(): the HTTP server still owns the exchange. */
void call_forget(struct call *c);

/* Turns the connection into a WebSocket and ends the call. NULL: refused and answered. */
struct ws *call_upgrade(struct call *c, const struct ws_handler *handler, void *user);
/* Answers a request that does not ask for a WebSocket. */
void call_needs_upgrade(struct call *c);

bool call_is_gone(const struct call *c);

/* Closes received descriptors that were passed on: a copy here would keep a pipe open. */
void call_close_fds(struct call *c);

/* For BODY_STREAM: on_body gets the body in pieces, then a piece of length 0. */
void call_body(struct call *c, uint64_t max,
               void (*on_body)(struct call *c, const char *bytes, size_t n));
void call_body_pause(struct call *c);
void call_body_resume(struct call *c);

/* A streamed response. call_write() returns false when the client's buffer is full: wait for
 * on_drain. */
void call_begin(struct call *c, int status, const char *type, const struct http_pair *more);
bool call_write(struct call *c, const void *bytes, size_t n);
bool call_is_full(const struct call *c); /* true: write nothing before on_drain */
void call_end(struct call *c);

/* The HTTP status of an error. */
int api_status_of(enum err_code code);
/* Writes {"error":{...}}. */
void error_json(struct jot *j, const struct err *err);
