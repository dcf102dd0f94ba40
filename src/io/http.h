/*
 * Parses and writes HTTP/1.1 (RFC 9110, 9112). It is the only HTTP parser in this project.
 *
 * Pure: it reads and writes the caller's memory, allocates nothing and makes no system call.
 * Strict: two readers must never disagree about where a message ends, so everything that RFC 9112
 * lets a recipient tolerate is refused (bare LF, folded lines, blanks before a colon,
 * Content-Length together with chunks, a repeated Content-Length, other codings than chunked). How
 * the bytes were cut into reads never changes a result.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

/* Bytes in memory that the struct does not own; not NUL-terminated. */
struct http_text {
    const char *s;
    size_t n;
};
#define HTTP_TEXT(literal) ((struct http_text){(literal), sizeof(literal) - 1})

bool http_text_is(struct http_text t, const char *s);      /* exact comparison */
bool http_text_is_like(struct http_text t, const char *s); /* ignores case */
bool http_text_same(struct http_text a, struct http_text b);
bool http_is_token(struct http_text t);

struct http_field {
    struct http_text name;
    struct http_text value; /* without the blanks around it */
};

/* Why a message is refused: the status to answer with and a sentence. */
struct http_refusal {
    int status; /* the status to answer with; 502 if a response is refused */
    const char *why;
};

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

enum http_form {
    HTTP_ORIGIN,    /* /path?query */
    HTTP_ASTERISK,  /* * (OPTIONS only) */
    HTTP_ABSOLUTE,  /* http://host/path?query, sent to a proxy */
    HTTP_AUTHORITY, /* host:port (CONNECT only) */
};

/* How the end of a body is found. */
enum http_framing {
    HTTP_NO_BODY,
    HTTP_SIZED,       /* after `length` bytes */
    HTTP_CHUNKED,     /* after the last chunk and the trailers */
    HTTP_UNTIL_CLOSE, /* at the end of the connection; only in responses */
};

enum { HTTP_FIELDS_MAX = 100 };

/* Every text points into the bytes that were parsed. */
struct http_head {
    enum http_kind kind;
    int minor; /* HTTP/1.minor: 0 or 1 */

    /* Members of a request. */
    struct http_text method, target;
    enum http_form form;
    struct http_text scheme;    /* absolute form: "http" or "https" */
    struct http_text authority; /* from the target if it has one, else from Host */
    struct http_text path;      /* raw; "/..." in origin form, may be empty in absolute form */
    struct http_text query;     /* raw, without "?"; s is NULL when there is none */

    /* Members of a response. */
    int status;
    struct http_text reason;

    struct http_field fields[HTTP_FIELDS_MAX];
    size_t count;

    enum http_framing framing;
    uint64_t length;      /* HTTP_SIZED */
    bool keep_alive;      /* another message may follow on the connection */
    bool upgrade;         /* "Connection: upgrade", and an Upgrade field */
    bool expect_continue; /* the peer waits for "100 Continue" before it sends the body */
};

struct http_limits {
    size_t line_max; /* request or status line, without CRLF */
    size_t head_max; /* the whole head, with every CRLF */
    size_t fields_max;
};
#define HTTP_LIMITS_DEFAULT \
    ((struct http_limits){.line_max = 8192, .head_max = 16384, .fields_max = HTTP_FIELDS_MAX})

struct http_parser {
    struct http_head *head;
    struct http_limits limits;
    bool answers_head; /* set by the caller if the response is to HEAD: it has no body */
    struct http_refusal refusal;
    size_t used; /* size of the head, once it is complete */

    /* Internal state of the parser. */
    size_t line; /* where the current line starts */
    size_t scan; /* position before which there is no LF */
    uint8_t state;
    uint8_t seen; /* fields seen that may occur only once */
    bool failed;
    bool chunked, close, keep;
};

/* Prepares for the next message and clears *head. */
void http_parse_begin(struct http_parser *p, enum http_kind kind, const struct http_limits *limits,
                      struct http_head *head);

/*
 * Call it again, as more bytes come, with all bytes from the start of the head, always at the same
 * address. 1: the head is complete, and the body starts at p->used. 0: more bytes are needed. -1:
 * p->refusal.
 */
int http_parse(struct http_parser *p, const char *bytes, size_t n);

/* The first field of that name, ignoring case; NULL if there is none. */
const struct http_field *http_field_find(const struct http_head *head, const char *name);
size_t http_field_count(const struct http_head *head, const char *name);

/* The value of a field, or a text with s = NULL if the field is absent or given twice. */
struct http_text http_field_only(const struct http_head *head, const char *name);

/* True if Content-Type names this media type, with or without parameters. */
bool http_type_is(const struct http_head *head, const char *type);

/* Takes the next item of a comma-separated list, without blanks; empty items are skipped. */
bool http_list_next(struct http_text *rest, struct http_text *ret);
/* True if a list in any field of that name contains the token, ignoring case. */
bool http_list_has(const struct http_head *head, const char *name, const char *token);

/*
 * Reads a body piece by piece. Chunk extensions and trailers are checked and discarded; their size
 * is limited.
 */
struct http_body {
    enum http_framing framing;
    uint64_t left; /* bytes left of the body, or of the current chunk */
    struct http_refusal refusal;
    /* Internal state. */
    uint8_t state;
    uint8_t digits;
    uint16_t ext;     /* bytes of extensions of this chunk */
    uint32_t ext_all; /* bytes of all extensions and trailers */
};

void http_body_begin(struct http_body *b, const struct http_head *head);

/*
 * Takes up to n bytes; *used says how many, *ret is the part of them that is data (n = 0: none). 1:
 * the body has ended, the bytes after *used do not belong to it. 0: call again with the bytes after
 * *used. -1: b->refusal. At the end of the stream call http_body_at_close().
 */
int http_body_next(struct http_body *b, const char *bytes, size_t n, size_t *used,
                   struct http_text *ret);

/* How many of the next bytes are certainly data. The caller may read them without the parser. */
uint64_t http_body_certain(const struct http_body *b);
/* Skips data that was read without the parser. 1: the body has ended. */
int http_body_skip(struct http_body *b, uint64_t n);
/* The stream has ended: true if the body may end here. */
bool http_body_at_close(const struct http_body *b);

/*
 * Write parts of a head. False, with the buffer unchanged, if it is full or if a text is not
 * allowed there (a CR in a value would start another field).
 */
bool http_put_request_line(struct buf *b, struct http_text method, struct http_text target);
bool http_put_status_line(struct buf *b, int status);
bool http_put_field(struct buf *b, struct http_text name, struct http_text value);
bool http_put_end(struct buf *b);
/* Writes a parsed head unchanged: the same first line, fields in the same order. */
bool http_put_head(struct buf *b, const struct http_head *head);

/* A header field to write. A list of them ends with a NULL name. */
struct http_pair {
    const char *name, *value;
};
#define HTTP_FIELDS(...) ((const struct http_pair[]){__VA_ARGS__, {NULL, NULL}})
bool http_put_pairs(struct buf *b, const struct http_pair *pairs); /* NULL: none */
bool http_put_number(struct buf *b, const char *name, uint64_t value);

/* "404 Not Found"; NULL if the status is unknown. */
const char *http_status_name(int status);

/*
 * Writes the line before the data of a chunk, such as "1f40\r\n". Returns its length. Send "\r\n"
 * after the data.
 */
enum { HTTP_CHUNK_LINE_MAX = 18 };
size_t http_chunk_line(char to[HTTP_CHUNK_LINE_MAX], uint64_t n);
#define HTTP_LAST_CHUNK "0\r\n\r\n"
