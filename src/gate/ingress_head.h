/*
 * Request heads (request line and header fields) for exposed ports: finds the tokens in a head, and
 * writes the head for the machine without them. A request may hold several tokens: a stale cookie,
 * one set by the machine, a link opened twice. All are tried and none is passed on. Pure.
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
    size_t count, all; /* all > count: the request has more tokens than the list can hold */
    bool in_query, in_cookie;
};

void ingress_tokens_find(const struct http_head *h, struct ingress_tokens *ret);

/* Writes path and query without the Carrel token. False: the buffer is full. */
bool ingress_put_target(const struct http_head *h, struct buf *out);
/* Writes the request head for the machine, without tokens and with Connection: close. */
bool ingress_put_request(const struct http_head *h, struct buf *out);
/* Writes the head of the machine's answer with Connection: close; an upgrade is kept. */
bool ingress_put_answer(const struct http_head *h, struct buf *out);
/* Whether clients send tokens of this daemon in the field of this name, as do those of E2B. */
bool ingress_is_key_field(struct http_text name);
/* Whether the value contains a token of an owner or a browser, or a key of E2B. */
bool ingress_has_key(struct http_text value);
/* Removes the fields for which is_key() is true. */
void ingress_drop_fields(struct http_head *h, bool (*is_key)(void *arg, const struct http_field *f),
                         void *arg);
/* Replaces a token elsewhere in the head (such as Referer) by stars. */
void ingress_mask(struct buf *head, struct http_text token);

/* Whether the request may open a websocket: a web page of another origin must not use the cookie of
 * this host. */
bool ingress_origin_ok(const struct http_head *h);
/* Whether a browser made the request for a page. */
bool ingress_is_page(const struct http_head *h);
/* Whether the request loads a page into a frame of another page, such as a preview. Only there may
 * a cookie be sent by pages of other sites. */
bool ingress_in_frame(const struct http_head *h);
/* Whether a page of another site makes the request, other than by opening a page: the cookie of a
 * preview does not allow that. */
bool ingress_foreign(const struct http_head *h);
