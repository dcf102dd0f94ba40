#include <string.h>

#include "io/http.h"
#include "io/http_inner.h"

enum state {
    SIZE_FIRST, /* at least one digit */
    SIZE,
    EXT,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, /* a trailer, or the empty line that ends the body */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
    DONE,
};

/* Limits: bytes of the extension of one chunk, and of all discarded bytes of a body. */
enum { EXT_MAX = 256, WASTE_MAX = 16384 };

void http_body_begin(struct http_body *b, const struct http_head *head) {
    *b = (struct http_body){.framing = head->framing, .state = SIZE_FIRST};
    if (head->framing == HTTP_SIZED)
        b->left = head->length;
    b->refusal.status = head->kind == HTTP_REQUEST ? 400 : 502;
}

static int http_body_refuse(struct http_body *b, const char *why) {
    b->refusal.why = why;
    return -1;
}

static int go(struct http_body *b, enum state state) {
    b->state = (uint8_t)state;
    return 0;
}

static int at_size(struct http_body *b, char c) {
    if (http_ch(c, HTTP_CH_HEX)) {
        if (b->digits++ == 16 || b->left > (INT64_MAX >> 4))
            return http_body_refuse(b, "the size of a chunk of the HTTP body is out of range");
        b->left = b->left << 4 | http_hex(c);
        return go(b, SIZE);
    }
    if (b->digits == 0 || (c != ';' && c != '\r'))
        return http_body_refuse(b, "the size of a chunk of the HTTP body is malformed");
    b->ext = 0;
    return go(b, c == ';' ? EXT : SIZE_LF);
}

static int at_waste(struct http_body *b) {
    if (b->ext++ == EXT_MAX || b->ext_all++ == WASTE_MAX)
        return http_body_refuse(b, "chunk extensions or trailers of the HTTP body are too long");
    return 0;
}

static int at_ext(struct http_body *b, char c) {
    if (c == '\r')
        return go(b, SIZE_LF);
    if (!http_ch(c, HTTP_CH_VALUE))
        return http_body_refuse(b, "a chunk extension of the HTTP body contains a control byte");
    return at_waste(b);
}

static int at_trailer(struct http_body *b, char c) {
    bool in_name = b->state != TRAILER_VALUE;
    if (b->state == TRAILER_FIRST && c == '\r')
        return go(b, END_LF);
    if (b->state == TRAILER_NAME && c == ':')
        return go(b, TRAILER_VALUE);
    if (b->state == TRAILER_VALUE && c == '\r')
        return go(b, TRAILER_LF);
    if (!http_ch(c, in_name ? HTTP_CH_TOKEN : HTTP_CH_VALUE))
        return http_body_refuse(b, "a trailer (header field after the HTTP body) is malformed");
    if (b->state == TRAILER_FIRST)
        go(b, TRAILER_NAME);
    b->ext = 0; /* a trailer counts only towards WASTE_MAX */
    return at_waste(b);
}

static int at_line_end(struct http_body *b, char c, char wanted, enum state next) {
    return c == wanted ? go(b, next)
                       : http_body_refuse(b, "a chunk of the HTTP body does not end with CR LF");
}

/* Takes one byte that is not data. */
static int step(struct http_body *b, char c) {
    switch ((enum state)b->state) {
    case SIZE_FIRST:
    case SIZE:
        return at_size(b, c);
    case EXT:
        return at_ext(b, c);
    case SIZE_LF:
        return at_line_end(b, c, '\n', b->left ? DATA : TRAILER_FIRST);
    case DATA_CR:
        return at_line_end(b, c, '\r', DATA_LF);
    case DATA_LF:
        b->digits = 0;
        return at_line_end(b, c, '\n', SIZE_FIRST);
    case TRAILER_FIRST:
    case TRAILER_NAME:
    case TRAILER_VALUE:
        return at_trailer(b, c);
    case TRAILER_LF:
        return at_line_end(b, c, '\n', TRAILER_FIRST);
    case END_LF:
        return at_line_end(b, c, '\n', DONE);
    case DATA:
    case DONE:
        break;
    }
    return 0;
}

static int chunked_next(struct http_body *b, const char *bytes, size_t n, size_t *used,
                        struct http_text *ret) {
    size_t i = 0;
    while (i < n && b->state != DATA && b->state != DONE)
        if (step(b, bytes[i++]) < 0)
            return -1;
    if (b->state == DATA && i < n) {
        size_t piece = b->left < n - i ? (size_t)b->left : n - i;
        *ret = (struct http_text){bytes + i, piece};
        http_body_skip(b, piece);
        i += piece;
    }
    *used = i;
    return b->state == DONE;
}

int http_body_next(struct http_body *b, const char *bytes, size_t n, size_t *used,
                   struct http_text *ret) {
    *ret = (struct http_text){bytes, 0};
    *used = 0;
    if (b->refusal.why)
        return -1;
    if (b->framing == HTTP_CHUNKED)
        return chunked_next(b, bytes, n, used, ret);
    uint64_t certain = http_body_certain(b);
    *used = ret->n = certain < n ? (size_t)certain : n;
    return http_body_skip(b, ret->n);
}

uint64_t http_body_certain(const struct http_body *b) {
    switch (b->framing) {
    case HTTP_SIZED:
        return b->left;
    case HTTP_CHUNKED:
        return b->state == DATA ? b->left : 0;
    case HTTP_UNTIL_CLOSE:
        return UINT64_MAX;
    case HTTP_NO_BODY:
        break;
    }
    return 0;
}

int http_body_skip(struct http_body *b, uint64_t n) {
    if (b->framing == HTTP_UNTIL_CLOSE)
        return 0;
    b->left -= n;
    if (b->framing != HTTP_CHUNKED)
        return b->left == 0;
    if (b->left == 0)
        b->state = DATA_CR;
    return 0;
}

bool http_body_at_close(const struct http_body *b) {
    if (b->framing == HTTP_CHUNKED)
        return b->state == DONE;
    return b->framing != HTTP_SIZED || b->left == 0;
}
