/*
 * One request of the API: who asks, for which route, with which words, and how it is answered.
 *
 * Made by the dispatcher (api.c), given to a route's handler, gone once it was answered. Handlers
 * answer with one of the functions below, now or later. When the client vanishes, `on_gone` is
 * called and every answer goes nowhere; what was asked is done all the same.
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

/* One parameter of the query, decoded. */
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
    char params[CALL_PARAMS][CALL_PARAM_SIZE]; /* of the path, in order: machine, exec ... */
    struct call_word queries[CALL_QUERIES];
    size_t query_count;
    json_t *json;               /* the body, and ... */
    void *request;              /* ... its struct; NULL for a route without one */
    uint8_t hash[SHA256_BYTES]; /* of the body */
    const int *fds;             /* that came with it; they are the exchange's */
    size_t nfds;
    int64_t length; /* of an answer in pieces; -1: not known */
    /* The handler's. */
    void *user;
    void (*on_gone)(struct call *c);  /* once; the call stays until it is answered or abandoned */
    void (*on_drain)(struct call *c); /* room for more after call_write() said it is full */
    void (*on_body)(struct call *c, const char *bytes, size_t n);
    void (*on_end)(struct call *c); /* it was answered: last words */
    char machine[ID_SIZE];          /* for on_end */
    char *warnings;                 /* of a machine made for this call, told with `start` */
    /* For the dispatcher. */
    uint64_t started_us;
    int status;
    enum err_code failed;
    bool streaming;
};

/* The value of a query parameter; NULL: not given. Lives as long as the call. */
const char *call_query(struct call *c, const char *name);
bool call_flag(struct call *c, const char *name);
/* 0 or -1 with *err: not a number in range. *ret is untouched when it was not given. */
int call_number(struct call *c, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
                struct err *err);
/* The Accept header names that type. */
bool call_accepts(struct call *c, const char *type);

/* These end the call. */
void call_view(struct call *c, int status, const struct schema *schema, const void *view);
void call_json(struct call *c, int status, const struct jot *j, const struct buf *text);
void call_error(struct call *c, const struct err *err);
void call_error_status(struct call *c, int status, const struct err *err);
/* With one more field, as HTTP_FIELDS() makes it, or NULL. */
void call_error_more(struct call *c, int status, const struct err *err,
                     const struct http_pair *more);
void call_text(struct call *c, int status, const char *type, const void *body, size_t n);
/* The answer of a verb that gives JSON; arg is the call. */
void call_told(void *arg, const char *json, const struct err *err);
void call_done(struct call *c); /* "{}" */
void call_done_fds(struct call *c, const int *fds, size_t nfds);
/* Without an answer: its client is gone, or the server refuses the body that we were taking. */
void call_abandon(struct call *c);
/* The same before the exchange is ours: nothing is said to the server. */
void call_forget(struct call *c);

/* The connection becomes a WebSocket and the call ends. NULL: it was refused, and told so. */
struct ws *call_upgrade(struct call *c, const struct ws_handler *handler, void *user);

bool call_is_gone(const struct call *c);

/* What came with the request was passed on: a pipe must not stay open through us. */
void call_close_fds(struct call *c);

/* A route with BODY_STREAM takes the body: pieces, then one of length 0. */
void call_body(struct call *c, uint64_t max,
               void (*on_body)(struct call *c, const char *bytes, size_t n));
void call_body_pause(struct call *c);
void call_body_resume(struct call *c);

/* An answer in pieces. False from call_write(): enough, wait for on_drain. */
void call_begin(struct call *c, int status, const char *type, const struct http_pair *more);
bool call_write(struct call *c, const void *bytes, size_t n);
bool call_is_full(const struct call *c); /* on_drain is still to come: add nothing before */
void call_end(struct call *c);

/* {"error":{...}} */
void error_json(struct jot *j, const struct err *err);
