/*
 * Texts to be found in bytes that come in pieces: found whichever way the pieces are cut, and
 * replaced by as many stars, so that no length changes.
 *
 * At each place the longest text, or beginning of one, that stands there counts. What may be the
 * beginning of one is held back until more comes. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum { NEEDLES_MAX = 2048, NEEDLE_MAX = 65536 };

struct needle {
    char *s;
    size_t n;
    size_t least; /* so many of its first bytes count as well; n: only all of them */
};

/* Zero, then add. Texts are wiped by needles_done(). */
struct needles {
    struct needle *list;
    size_t count;
    bool first[256]; /* a text begins so */
};

/* A copy. False: it is empty or too long, or there are too many. One that is there is not added. */
bool needles_add(struct needles *n, const char *s, size_t len);
/* The same, and a beginning of it from `least` bytes on is replaced, too. */
bool needles_add_beginning(struct needles *n, const char *s, size_t len, size_t least);
void needles_done(struct needles *n);

/*
 * Takes the next piece; what is decided by now goes to `out`, the rest stays in `carry`, which
 * begins empty and must have room for NEEDLE_MAX bytes more than a piece. end: no more will come.
 * Returns how many were found; -1: a buffer is full.
 */
int needles_feed(const struct needles *n, struct buf *carry, const char *piece, size_t len,
                 bool end, struct buf *out);
