/*
 * Private declarations of the HTTP relay (web*.c). Only for src/gate.
 *
 * Client and server are both hostile: each head is parsed and written anew, never copied.
 */
#pragma once

#include "gate/inner.h"
#include "gate/override.h"

enum { IN_SIZE = 20480, METHOD_SIZE = 32, HEAD_OUT_MAX = 65536 };

enum request_state {
    REQUEST_HEAD,
    REQUEST_COLLECT, /* reading the body, before it waits for an approval */
    REQUEST_HELD,    /* waiting for an approval */
    REQUEST_DIAL,    /* allowed, waiting for the server */
    REQUEST_BODY,
    REQUEST_SENT, /* sent, the answer is not complete */
    REQUEST_CUT,  /* as REQUEST_SENT, but the rest of the body is dropped */
};

enum answer_state { ANSWER_NONE, ANSWER_HEAD, ANSWER_BODY };

/* Input of one side. The buffer must not move, because parsed heads point into it. */
struct side {
    char in[IN_SIZE];
    size_t n;
    bool ended;
    bool parsing;
    struct http_parser parser;
    struct http_head head;
    struct http_body body;
};

/* Secrets of the current request; the values are wiped when it ends. */
struct shield {
    struct secret_uses uses;
    struct needles forbidden;  /* placeholders, in what it sends */
    struct needles masked;     /* values, in what comes back */
    struct buf sent, received; /* held back, of either */
};

struct web {
    struct side client, server;
    enum request_state request;
    enum answer_state answer;
    bool handshaking;  /* with the server */
    bool tunnel;       /* after 101: bytes both ways */
    bool keeps_client; /* the client connection is kept for another request */
    bool keeps_server;
    bool wants_upgrade; /* to a websocket */
    bool recode;        /* the answer goes out in chunks */
    bool old_client;    /* HTTP/1.0: no chunks */
    bool answered;      /* a part of the answer was sent to the client */
    bool heard;         /* the client got bytes from the server, perhaps only an interim answer */
    char method[METHOD_SIZE];
    char *path, *query;
    uint64_t server_rule;      /* under which the server was dialled */
    struct override_scan form; /* of the request's body */
    bool is_timed;             /* the timer of the request head is running */
    struct buf body;           /* of a request that waits or waited for an approval */
    char body_hash[65];        /* in hexadecimal; empty: it has none */
    bool collected;            /* all of it is there */
    size_t *held_bytes;        /* the machine's total of waiting bodies */
    struct shield *shield;     /* NULL: there is nothing to hide */
};

/* ---- web.c ---- */

#define WEB_BODY_PLACEHOLDER "its body holds the placeholder of a secret"
#define WEB_FORM_OVERRIDES \
    "the form names another method, and a rule checks methods or asks for approval"

void web_say_no(struct conn *c, const char *why);
void web_forward(struct conn *c, struct policy_rule *rule);
/* By the policy as it is now. */
void web_decide(struct conn *c);

/* ---- web_held.c: requests that wait for an approval ---- */

enum { WEB_BODY_MAX = 1 << 20 };

void web_hold(struct conn *c, struct policy_rule *rule);
bool web_step_collect(struct conn *c);
/* NULL, or the reason why the collected body is refused. */
const char *web_check_body(struct conn *c);
void web_send_body(struct conn *c);
void web_drop_body(struct web *w);

/* ---- web_side.c: bytes of one side, heads and bodies ---- */

/* 1: bytes are available. 0: none now. -1: end or error. */
int side_fill(struct side *s, struct channel *ch);
void side_consume(struct side *s, size_t n);
/* As http_parse(), with reading. */
int side_read_head(struct side *s, struct channel *ch, enum http_kind kind, bool answers_head);

/* What a body is scanned for. */
struct sieve {
    const struct needles *needles; /* NULL: for none */
    struct buf *carry;
    bool forbids;
    struct override_scan *form; /* NULL: it is none */
};

/* A piece of a body, framed as it goes out. */
bool web_put_piece(struct channel *to, struct http_text data, bool chunked);
/*
 * 1: progress. 0: no input. 2: end of the body. -1: malformed body. -2: the body holds a forbidden
 * text. -3: the form names another method.
 */
int side_step_body(struct side *s, struct channel *from, struct channel *to, bool chunked,
                   const struct sieve *sieve, size_t *ret_moved);

/* ---- web_head.c: where a request wants to go, and heads written anew ---- */

/* NULL, or the reason to refuse the request. */
const char *web_check_target(struct conn *c, const struct http_head *h);
bool web_put_request(const struct conn *c, const struct http_head *h, struct buf *out);
bool web_put_answer(struct web *w, const struct http_head *h, struct buf *out);

/* ---- web_shield.c: secrets of a request under way ---- */

/* Called before anything is sent; NULL, or the reason to refuse. */
const char *shield_raise(struct conn *c);
/* Masks a complete head; nothing is held back. */
bool shield_mask_head(const struct shield *s, struct buf *head);
/* NULL, or the reason why secrets could not be found in the answer's body. */
const char *shield_cannot_see(const struct shield *s, const struct http_head *h);
void shield_tell_uses(struct conn *c);
void shield_free(struct shield *s);
