/*
 * A blocking WebSocket on an HTTP client's connection: `carrel sh` against a daemon.
 *
 * Pings are answered and fragments joined here. Poll http_client_fd() together with other
 * descriptors, and call ws_client_next() with a timeout of 0 until it returns 0.
 */
#pragma once

#include "io/http_client.h"
#include "io/websocket.h"

struct ws_client;

/*
 * Sends the upgrade request and checks the answer. The caller still owns the client and must not
 * free it before the WebSocket. *ret_status (may be NULL): the HTTP status of a refusal, whose body
 * the caller may read then; otherwise unchanged.
 */
struct ws_client *ws_client_open(struct http_client *http, const char *target,
                                 const struct http_pair *fields, size_t message_max,
                                 int *ret_status, struct err *err);
void ws_client_free(struct ws_client *ws);
void ws_client_freep(struct ws_client **ws);

int ws_client_send(struct ws_client *ws, enum ws_opcode kind, const void *data, size_t n,
                   struct err *err);

/*
 * 1: *ret is the next message. 0: none in time (timeout_ms < 0: no limit). -1: broken. WS_CLOSE is
 * the last message, with the code of the peer; it was already answered.
 */
int ws_client_next(struct ws_client *ws, int timeout_ms, struct ws_event *ret, struct err *err);

/* Sends a close frame. Continue to read until WS_CLOSE, or free the WebSocket. */
int ws_client_close(struct ws_client *ws, int code, const char *reason, struct err *err);
