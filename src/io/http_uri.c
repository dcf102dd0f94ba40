#include "io/http_uri.h"

#include <string.h>

#include "base/utf8.h"
#include "io/http_inner.h"

/* Decodes one byte of `raw`; -1: malformed. */
static int decode_byte(struct http_text raw, size_t *at, bool plus_is_blank) {
    char c = raw.s[(*at)++];
    if (c == '+' && plus_is_blank)
        return ' ';
    if (c != '%')
        return (unsigned char)c;
    if (raw.n - *at < 2 || !http_ch(raw.s[*at], HTTP_CH_HEX) ||
        !http_ch(raw.s[*at + 1], HTTP_CH_HEX))
        return -1;
    int byte = (int)(http_hex(raw.s[*at]) << 4 | http_hex(raw.s[*at + 1]));
    *at += 2;
    return byte;
}

static int http_uri_decode(struct http_text raw, char *to, size_t size, size_t *ret_n,
                           bool is_query) {
    size_t n = 0;
    for (size_t at = 0; at < raw.n;) {
        int c = decode_byte(raw, &at, is_query);
        if (c <= 0 || (c == '/' && !is_query) || n + 1 >= size)
            return -1;
        to[n++] = (char)c;
    }
    if (size == 0 || !utf8_valid(to, n))
        return -1;
    to[n] = '\0';
    *ret_n = n;
    return 0;
}

int http_decode_segment(struct http_text raw, char *to, size_t size, size_t *ret_n) {
    return http_uri_decode(raw, to, size, ret_n, false);
}

int http_decode_query(struct http_text raw, char *to, size_t size, size_t *ret_n) {
    return http_uri_decode(raw, to, size, ret_n, true);
}

/* Takes the text up to the next character `mark` from the front of *rest, and skips the mark. */
static struct http_text cut(struct http_text *rest, char mark) {
    const char *at = rest->n ? memchr(rest->s, mark, rest->n) : NULL;
    struct http_text part = {rest->s, at ? (size_t)(at - rest->s) : rest->n};
    size_t gone = part.n + (at ? 1 : 0);
    *rest = (struct http_text){rest->s + gone, rest->n - gone};
    return part;
}

bool http_path_next(struct http_text *rest, struct http_text *ret) {
    if (rest->n == 0 || rest->s[0] != '/')
        return false;
    struct http_text after = {rest->s + 1, rest->n - 1};
    const char *slash = after.n ? memchr(after.s, '/', after.n) : NULL;
    *ret = (struct http_text){after.s, slash ? (size_t)(slash - after.s) : after.n};
    *rest = (struct http_text){after.s + ret->n, after.n - ret->n};
    return true;
}

bool http_query_next(struct http_text *rest, struct http_text *key, struct http_text *value) {
    while (rest->n) {
        struct http_text pair = cut(rest, '&');
        if (pair.n == 0)
            continue;
        *key = cut(&pair, '=');
        *value = pair;
        return true;
    }
    return false;
}

/* 1 if the encoded key is `key`, else 0; -1: malformed. */
static int key_is(struct http_text raw, const char *key) {
    size_t n = 0, length = strlen(key);
    struct utf8 u = {0};
    bool same = true;
    for (size_t at = 0; at < raw.n; n++) {
        int c = decode_byte(raw, &at, true);
        if (c <= 0 || !utf8_feed(&u, &(char){(char)c}, 1))
            return -1;
        same = same && n < length && key[n] == (char)c;
    }
    return utf8_whole(&u) ? same && n == length : -1;
}

int http_query_get(struct http_text query, const char *key, char *to, size_t size, size_t *ret_n) {
    struct http_text name, value, found = {0};
    int count = 0;
    while (http_query_next(&query, &name, &value)) {
        int is = key_is(name, key);
        if (is < 0)
            return -1;
        if (is)
            found = value;
        count += is;
    }
    if (count != 1)
        return count ? -1 : 0;
    return http_decode_query(found, to, size, ret_n) < 0 ? -1 : 1;
}

static bool is_unreserved(char c) {
    return http_ch(c, HTTP_CH_DIGIT) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           strchr("-._~", c);
}

bool http_put_encoded(struct buf *b, struct http_text text) {
    size_t before = b->len;
    for (size_t i = 0; i < text.n; i++) {
        char c = text.s[i];
        bool ok = c && is_unreserved(c) ? buf_add(b, &c, 1)
                                        : buf_addf(b, "%%%02X", (unsigned)(unsigned char)c);
        if (!ok) {
            http_roll_back(b, before);
            return false;
        }
    }
    return true;
}
