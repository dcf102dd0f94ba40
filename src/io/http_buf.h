/*
 * For encoders that append to a buffer.
 *
 * An encoder that fails leaves the buffer as it was: it remembers the length and rolls back to it.
 */
#pragma once

#include <stddef.h>

#include "base/buf.h"

/* Removes what was appended since the buffer had this length. */
static inline void http_roll_back(struct buf *b, size_t len) {
    b->len = len;
    if (b->data)
        b->data[len] = '\0';
}
