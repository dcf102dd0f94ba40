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
    REQUEST_COLLECT, /* reading the body, before the request waits for an approval */
    REQUEST_HELD,    /* waiting for an approval */
    REQUEST_DIAL,    /* allowed, waiting for the server */
    REQUEST_BODY,
    REQUEST_SENT, /* sent, the answer is not complete */
    REQUEST_CUT,  /* only a part was sent: the rest of the body is dropped */
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

/* Secrets of the current request; their values are wiped when the request ends. */
struct shield {
    struct secret_uses uses;
    struct needles forbidden;  /* placeholders that the request body must not contain */
    struct needles masked;     /* secret values to mask in the answer */
    struct buf sent, received; /* bytes of request and answer that may begin a match */
};

struct web {
    struct side client, server;
    enum request_state request;
    enum answer_state answer;
    bool handshaking;  /* the TLS handshake with the server is in progress */
    bool tunnel;       /* after status 101: bytes are relayed both ways */
    bool keeps_client; /* the client connection is kept for another request */
    bool keeps_server;
    bool wants_upgrade; /* the request asks for a websocket */
    bool recode;        /* the answer is sent in chunks */
    bool old_client;    /* the client uses HTTP/1.0, which has no chunks */
    bool wants_json;    /* the form of a refusal */
    bool answered;      /* a part of the answer was sent to the client */
    bool heard;         /* the client got bytes from the server, perhaps only an interim answer */
    char method[METHOD_SIZE];
    char *path, *query;
    uint64_t server_rule;      /* id of the rule that allowed the connection to the server */
    struct override_scan form; /* scans the body of the request */
    bool is_timed;             /* the timer of the request head is running */
    struct buf body;           /* body of a request that waits or waited for an approval */
    char body_hash[65];        /* SHA-256 of the body in hexadecimal; empty: not collected */
    bool collected;            /* the body is complete */
    size_t *held_bytes;        /* total size of the machine's waiting bodies */
    struct shield *shield;     /* NULL: no secrets are granted */
    struct cache_wish *wish;   /* the package is looked for in the cache; NULL: it is not */
    struct cache_intake *copy; /* copies the answer for the cache; NULL: it is not copied */
};

/* ---- web.c ---- */

#define WEB_BODY_PLACEHOLDER "the body of the request contains the placeholder of a secret"
#define WEB_FORM_OVERRIDES \
    "the form names another method, and a rule checks methods or asks for approval"

void web_say_no(struct conn *c, const char *why, enum remedy remedy);
void web_forward(struct conn *c, struct policy_rule *rule);
/* Decides about the current request by the present policy. */
void web_decide(struct conn *c);

/* ---- web_held.c: requests that wait for an approval ---- */

enum { WEB_BODY_MAX = 1 << 20 };

void web_hold(struct conn *c, struct policy_rule *rule);
bool web_step_collect(struct conn *c);
/* The reason why the collected body is refused. */
struct denial web_check_body(struct conn *c);
void web_send_body(struct conn *c);
void web_drop_body(struct web *w);

/* ---- web_side.c: bytes of one side, heads and bodies ---- */

/* Reads bytes into the buffer. 1: bytes are available. 0: no bytes now. -1: end of the stream or
 * error. */
int side_fill(struct side *s, struct channel *ch);
void side_consume(struct side *s, size_t n);
/* Reads and parses a head; returns what http_parse() returns. */
int side_read_head(struct side *s, struct channel *ch, enum http_kind kind, bool answers_head);

/* The texts that a body is scanned for. */
struct sieve {
    const struct needles *needles; /* NULL: none */
    struct buf *carry;
    bool forbids;
    struct override_scan *form; /* NULL: do not scan for overrides */
    struct cache_intake *copy;  /* NULL: do not copy for the cache */
};

/* Writes a piece of a body, as a chunk if `chunked` is set. */
bool web_put_piece(struct channel *to, struct http_text data, bool chunked);
/*
 * Moves a piece of a body. 1: progress. 0: no input. 2: end of the body. -1: malformed body. -2:
 * the body holds a forbidden text. -3: the form names another method.
 */
int side_step_body(struct side *s, struct channel *from, struct channel *to, bool chunked,
                   const struct sieve *sieve, size_t *ret_moved);

/* ---- web_head.c: the destination of a request, and heads written anew ---- */

/* NULL, or the reason to refuse the request. */
const char *web_check_target(struct conn *c, const struct http_head *h);
bool web_put_request(const struct conn *c, const struct http_head *h, struct buf *out);
bool web_put_answer(struct web *w, const struct http_head *h, struct buf *out);

/* ---- web_shield.c: secrets of the current request ---- */

/* Finds the secrets of the request, before it is sent. Returns the reason to refuse it. */
struct denial shield_raise(struct conn *c);
/* Masks the secrets in a complete head; no bytes are held back for a later match. */
bool shield_mask_head(const struct shield *s, struct buf *head);
/* NULL, or the reason why secrets could not be found in the answer's body. */
const char *shield_cannot_see(const struct shield *s, const struct http_head *h);
void shield_tell_uses(struct conn *c);
void shield_free(struct shield *s);
