/* Little-endian numbers in the formats of this folder, and a reader that cannot leave its bytes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/wire/little.h"

/* Reads from `at` on. After the first read past the end, `failed` is set and all numbers are 0. */
struct bytes {
    const uint8_t *at;
    size_t left;
    bool failed;
};

static inline uint64_t bytes_number(const uint8_t *at, unsigned size) {
    return little_get(at, size);
}

/* Returns n bytes and moves past them; NULL if there are fewer. */
static inline const uint8_t *bytes_take(struct bytes *b, size_t n) {
    const uint8_t *at = b->at;
    if (b->failed || n > b->left) {
        b->failed = true;
        return NULL;
    }
    b->at += n;
    b->left -= n;
    return at;
}

static inline uint64_t bytes_take_number(struct bytes *b, unsigned size) {
    const uint8_t *at = bytes_take(b, size);
    return at ? bytes_number(at, size) : 0;
}

static inline bool bytes_put_number(struct buf *to, uint64_t value, unsigned size) {
    uint8_t out[8];
    little_put(out, value, size);
    return buf_add(to, out, size);
}
