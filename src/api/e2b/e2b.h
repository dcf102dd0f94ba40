/*
 * The face for clients of E2B: their control plane over the functions of the service.
 *
 * It shares the port of the REST API, whose paths differ. A sandbox is a machine that this face
 * made; it never shows or changes another machine. docs/reference/e2b.md describes it.
 */
#pragma once

#include "io/http_server.h"
#include "service/service.h"

/* The note of tokens that are keys of clients. */
#define E2B_NOTE "e2b"

struct e2b_face;

/* Authenticates a caller of the REST API. Opens a port for the clients if none is open. */
typedef int e2b_caller_fn(void *arg, const struct http_exchange *x, struct caller *ret,
                          struct err *err);
typedef int e2b_listen_fn(void *arg, struct err *err);

struct e2b_face *e2b_face_new(struct loop *loop, struct service *service, e2b_caller_fn *caller,
                              e2b_listen_fn *listen, void *arg);
/* The last request in progress frees the face. */
void e2b_face_free(struct e2b_face *f);
size_t e2b_face_busy(const struct e2b_face *f); /* requests in progress */

/* Whether pages of other sites may send the request: what it may do its own token says. */
bool e2b_face_is_open(const struct http_exchange *x);
/* Refuses a request of a client for its Host or Origin. False: it is of nobody that is known. */
bool e2b_face_refuse(struct http_exchange *x, const struct err *err);
/* True: the request was for the face and has been taken. */
bool e2b_face_take(struct e2b_face *f, struct http_exchange *x);
