/*
 * Finds texts in a stream of bytes, however it is split into pieces, and replaces them by stars of
 * the same length.
 *
 * At each position the longest matching text, or prefix of at least `least` bytes, counts. Bytes
 * that may begin a match are held back until more arrive. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { NEEDLES_MAX = 2048, NEEDLE_MAX = 65536 };

struct needle {
    char *s;
    size_t n;
    size_t least; /* a prefix of at least this length also matches; n: only the whole text */
};

/* The texts to find. Zero the struct, then add texts; needles_done() wipes them. */
struct needles {
    struct needle *list;
    size_t count;
    bool first[256]; /* indexed by byte: some text to find begins with this byte */
};

/* Copies the text. False: empty, too long, or too many texts. A duplicate is not added. */
bool needles_add(struct needles *n, const char *s, size_t len);
/* As needles_add(), but a prefix of at least `least` bytes matches too. */
bool needles_add_beginning(struct needles *n, const char *s, size_t len, size_t least);
void needles_done(struct needles *n);

/*
 * Processes the next piece of the stream. Bytes that cannot belong to a later match go to `out`,
 * the others stay in `carry`, which starts empty and needs room for NEEDLE_MAX bytes more than a
 * piece. end: this is the last piece. Returns the number of matches, or -1 if a buffer is full.
 */
int needles_feed(const struct needles *n, struct buf *carry, const char *piece, size_t len,
                 bool end, struct buf *out);
