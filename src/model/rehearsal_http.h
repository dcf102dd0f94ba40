/*
 * A rehearsal as an HTTP server for all three formats, with real sockets and codecs, to test
 * clients.
 *
 * POST to a path that ends in /v1/messages, /chat/completions or /responses. The number of the
 * turn is the field "Carrel-Turn" if present, else the number of turns in the conversation.
 */
#pragma once

#include "base/secret.h"
#include "io/http_server.h"
#include "model/rehearsal.h"

struct rehearsal_http;

/* key: clients must send it as bearer or x-api-key; NULL: none. The caller owns script and key. */
struct rehearsal_http *rehearsal_http_new(struct loop *loop, struct rehearsal *script,
                                          const struct secret *key);
/* Call only after the server has stopped. */
void rehearsal_http_free(struct rehearsal_http *r);

/* The on_request of struct http_server_config; arg is the result of rehearsal_http_new(). */
void rehearsal_http_request(struct http_exchange *x, void *arg);

/* Number of answered requests, including faults. */
uint64_t rehearsal_http_count(const struct rehearsal_http *r);
