/* Encoders that append to a buffer, and leave it as it was when they fail. */
#pragma once

#include <stddef.h>

#include "base/buf.h"

/* Removes what was appended since the buffer had this length. */
static inline void http_roll_back(struct buf *b, size_t len) {
    b->len = len;
    if (b->data)
        b->data[len] = '\0';
}
