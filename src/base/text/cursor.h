/*
 * The unread rest of a text, for small parsers of text.
 *
 * Each function here removes the given text from the front of the rest and returns true. If the
 * rest begins with another text, it changes nothing and returns false.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct cursor {
    const char *at;
    const char *end;
};

static inline bool take(struct cursor *c, const char *text, size_t n) {
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, text, n) != 0)
        return false;
    c->at += n;
    return true;
}

static inline bool take_char(struct cursor *c, char wanted) {
    return take(c, &wanted, 1);
}
