/*
 * Checks UTF-8 (RFC 3629).
 *
 * Text may come in pieces that are cut at any byte; struct utf8 holds the state between two pieces.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct utf8 {
    uint8_t left;      /* continuation bytes still to come */
    uint8_t low, high; /* range of the next continuation byte */
};

/* False as soon as the text cannot be UTF-8 whatever follows. Start with a zeroed struct. */
bool utf8_feed(struct utf8 *u, const void *bytes, size_t n);

/* Whether the text may end here: no character is incomplete. */
static inline bool utf8_whole(const struct utf8 *u) {
    return u->left == 0;
}

bool utf8_valid(const void *bytes, size_t n);

/* Decodes the character at the start: returns its length in bytes and sets its code point; 0: not a
 * complete UTF-8 character. */
size_t utf8_decode(const void *bytes, size_t n, uint32_t *ret);

/*
 * Find places where a text can be cut. utf8_end() returns how many of n bytes to keep so that the
 * last character is complete; utf8_begin() returns how many to skip so that the first is complete.
 */
size_t utf8_end(const void *bytes, size_t n);
size_t utf8_begin(const void *bytes, size_t n);
