/*
 * Heads of requests to exposed ports: which credentials stand in them, and the same head without
 * any, as the machine gets it. A request may hold many: a stale cookie, one that the machine set
 * itself, a link that was opened twice. Each is tried, and none is passed on. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "io/http.h"

#define INGRESS_COOKIE "carrel_expose"
#define INGRESS_QUERY "carrel_token"

enum { INGRESS_TOKENS_MAX = 32 };

struct ingress_tokens {
    struct http_text list[INGRESS_TOKENS_MAX];
    size_t count, all; /* more than are in the list were there: all > count */
    bool in_query;
};

void ingress_tokens_find(const struct http_head *h, struct ingress_tokens *ret);

/* Path and query without what is ours. False: the buffer is full. */
bool ingress_put_target(const struct http_head *h, struct buf *out);
/* The head without credentials, for a connection that carries no other request. */
bool ingress_put_request(const struct http_head *h, struct buf *out);
/* An answer, after which the connection ends; one that upgrades stays as it is. */
bool ingress_put_answer(const struct http_head *h, struct buf *out);
/* Wherever else a token stands in a head (a Referer): stars. */
void ingress_mask(struct buf *head, struct http_text token);

/* A page of another origin may not open a websocket with the cookie of this one. */
bool ingress_origin_ok(const struct http_head *h);
