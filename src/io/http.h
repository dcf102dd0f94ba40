/*
 * HTTP/1.1 (RFC 9110, 9112): bytes to structs and back. The only parser of it in this project.
 *
 * Pure: it reads and writes the caller's memory, allocates nothing and makes no system call.
 * Strict: two readers must never disagree about where a message ends, so whatever RFC 9112
 * leaves to the recipient's kindness is refused (bare LF, folded lines, blanks before a colon,
 * both lengths, a repeated length, other codings than chunked). How the bytes were cut into
 * reads never changes a result.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Bytes in somebody else's memory; not NUL-terminated. */
struct http_text {
    const char *s;
    size_t n;
};
#define HTTP_TEXT(literal) ((struct http_text){(literal), sizeof(literal) - 1})

bool http_text_is(struct http_text t, const char *s);      /* every byte */
bool http_text_is_like(struct http_text t, const char *s); /* letters of either case */
bool http_text_same(struct http_text a, struct http_text b);
bool http_is_token(struct http_text t);

struct http_field {
    struct http_text name;
    struct http_text value; /* without the blanks around it */
};

/* Why a message is refused: the status to answer with and a sentence. */
struct http_refusal {
    int status; /* for a response that is refused: 502 */
    const char *why;
};

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

enum http_form {
    HTTP_ORIGIN,    /* /path?query */
    HTTP_ASTERISK,  /* * (OPTIONS only) */
    HTTP_ABSOLUTE,  /* http://host/path?query: said to a proxy */
    HTTP_AUTHORITY, /* host:port (CONNECT only) */
};

/* Where the body ends. */
enum http_framing {
    HTTP_NO_BODY,
    HTTP_SIZED,       /* after `length` bytes */
    HTTP_CHUNKED,     /* after the last chunk and the trailers */
    HTTP_UNTIL_CLOSE, /* with the connection; responses only */
};

enum { HTTP_FIELDS_MAX = 100 };

/* Every text points into the bytes that were parsed. */
struct http_head {
    enum http_kind kind;
    int minor; /* HTTP/1.minor: 0 or 1 */

    /* Of a request. */
    struct http_text method, target;
    enum http_form form;
    struct http_text scheme;    /* absolute form: "http" or "https" */
    struct http_text authority; /* from the target if it has one, else from Host */
    struct http_text path;      /* raw; "/..." in origin form, may be empty in absolute form */
    struct http_text query;     /* raw, without "?"; s is NULL when there is none */

    /* Of a response. */
    int status;
    struct http_text reason;

    struct http_field fields[HTTP_FIELDS_MAX];
    size_t count;

    enum http_framing framing;
    uint64_t length;      /* HTTP_SIZED */
    bool keep_alive;      /* as far as the message says */
    bool upgrade;         /* "Connection: upgrade", and an Upgrade field */
    bool expect_continue; /* the peer waits for "100 Continue" before it sends the body */
};

struct http_limits {
    size_t line_max; /* request or status line, without CRLF */
    size_t head_max; /* all of it, with every CRLF */
    size_t fields_max;
};
#define HTTP_LIMITS_DEFAULT \
    ((struct http_limits){.line_max = 8192, .head_max = 16384, .fields_max = HTTP_FIELDS_MAX})

struct http_parser {
    struct http_head *head;
    struct http_limits limits;
    bool answers_head; /* set it when the response is to HEAD: then there is no body */
    struct http_refusal refusal;
    size_t used; /* bytes of the head, when it is done */

    /* The parser's own. */
    size_t line; /* where the current line starts */
    size_t scan; /* no LF before this */
    uint8_t state;
    uint8_t seen; /* fields that may come once */
    bool failed;
    bool chunked, close, keep;
};

/* Prepares for the next message; the head is made anew. */
void http_parse_begin(struct http_parser *p, enum http_kind kind, const struct http_limits *limits,
                      struct http_head *head);

/*
 * Give it all bytes from the head's first one on, at the same address each time, as more come
 * in. 1: done, p->used says where the body starts. 0: more bytes are needed. -1: p->refusal.
 */
int http_parse(struct http_parser *p, const char *bytes, size_t n);

/* The first field of that name, in any case; NULL when there is none. */
const struct http_field *http_field_find(const struct http_head *head, const char *name);
size_t http_field_count(const struct http_head *head, const char *name);

/* The value, or a text with s = NULL when the field is absent or there is more than one. */
struct http_text http_field_only(const struct http_head *head, const char *name);

/* Next member of a comma-separated list, without blanks; empty members are skipped. */
bool http_list_next(struct http_text *rest, struct http_text *ret);
/* Whether the list, taken over all fields of that name, has the token (in any case). */
bool http_list_has(const struct http_head *head, const char *name, const char *token);

/*
 * A body, piece by piece. Extensions of chunks and trailers are checked and thrown away; both
 * are capped.
 */
struct http_body {
    enum http_framing framing;
    uint64_t left; /* of the length, or of the current chunk */
    struct http_refusal refusal;
    /* Its own. */
    uint8_t state;
    uint8_t digits;
    uint16_t ext;     /* of this chunk's line */
    uint32_t ext_all; /* of all of them, and the trailers */
};

void http_body_begin(struct http_body *b, const struct http_head *head);

/*
 * Takes up to n bytes; *used says how many, *ret the part of them that is data (n = 0: none).
 * 1: the body ended, what follows is not its own. 0: call again with what comes after *used.
 * -1: b->refusal. At the end of the stream ask http_body_at_close().
 */
int http_body_next(struct http_body *b, const char *bytes, size_t n, size_t *used,
                   struct http_text *ret);

/* So many of the next bytes are certainly data: they may be read straight to where they go. */
uint64_t http_body_certain(const struct http_body *b);
/* For data that was read that way. 1 when that ended the body. */
int http_body_skip(struct http_body *b, uint64_t n);
/* The stream ended: true when the body may end so. */
bool http_body_at_close(const struct http_body *b);

/*
 * Heads, written. False, with the buffer as it was, when it is full or when a text could not
 * stand there (a CR in a value would start another field).
 */
bool http_put_request_line(struct buf *b, struct http_text method, struct http_text target);
bool http_put_status_line(struct buf *b, int status);
bool http_put_field(struct buf *b, struct http_text name, struct http_text value);
bool http_put_end(struct buf *b);
/* A parsed head, as it came: same line, fields in the same order. */
bool http_put_head(struct buf *b, const struct http_head *head);

/* Fields to be written, by those who write whole messages; ends with a NULL name. */
struct http_pair {
    const char *name, *value;
};
#define HTTP_FIELDS(...) ((const struct http_pair[]){__VA_ARGS__, {NULL, NULL}})
bool http_put_pairs(struct buf *b, const struct http_pair *pairs); /* NULL: none */
bool http_put_number(struct buf *b, const char *name, uint64_t value);

/* "404 Not Found"; NULL when the status has no name. */
const char *http_status_name(int status);

/* "1f40\r\n", the line before a chunk's data; "\r\n" follows the data. Returns its length. */
enum { HTTP_CHUNK_LINE_MAX = 18 };
size_t http_chunk_line(char to[HTTP_CHUNK_LINE_MAX], uint64_t n);
#define HTTP_LAST_CHUNK "0\r\n\r\n"
