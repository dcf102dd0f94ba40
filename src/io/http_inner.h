/*
 * Character classes of HTTP, one table lookup per byte. Private to the codecs in src/io.
 *
 * Every byte of a head is checked against its class before it is used.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "io/http_buf.h"

enum {
    HTTP_CH_TOKEN = 1,  /* in methods and field names */
    HTTP_CH_VALUE = 2,  /* in field values: blanks, visible characters, bytes from 0x80 */
    HTTP_CH_TARGET = 4, /* in paths and queries, with characters that browsers do not encode */
    HTTP_CH_HOST = 8,   /* in host names and IPv4 addresses */
    HTTP_CH_DIGIT = 16,
    HTTP_CH_HEX = 32,
};
extern const unsigned char http_chars[256];

static inline bool http_ch(char c, unsigned classes) {
    return http_chars[(unsigned char)c] & classes;
}

/* How many bytes at the start belong to the classes. */
static inline size_t http_span(const char *s, size_t n, unsigned classes) {
    size_t i = 0;
    while (i < n && http_ch(s[i], classes))
        i++;
    return i;
}

static inline unsigned http_hex(char c) {
    return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
}
