/*
 * A rehearsal as an HTTP server that speaks all three formats: real sockets and real codecs, for
 * tests of clients, ours and others'.
 *
 * POST to a path that ends in /v1/messages, /chat/completions or /responses. The step is that of
 * the field "Carrel-Step" if it is there, else the number of turns the model has had.
 */
#pragma once

#include "base/secret.h"
#include "io/http_server.h"
#include "model/rehearsal.h"

struct rehearsal_http;

/* key: what clients must send, as bearer or x-api-key; NULL: anything. Both stay the caller's. */
struct rehearsal_http *rehearsal_http_new(struct loop *loop, struct rehearsal *script,
                                          const struct secret *key);
/* Not while a server still calls it. */
void rehearsal_http_free(struct rehearsal_http *r);

/* For struct http_server_config: on_request = rehearsal_http_request, arg = what new() gave. */
void rehearsal_http_request(struct http_exchange *x, void *arg);

/* Requests that were answered, faults too. */
uint64_t rehearsal_http_count(const struct rehearsal_http *r);
