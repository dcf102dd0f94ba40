/*
 * Removes the usage record from a Chat stream, for clients that did not ask for it: the record
 * whose list of choices is empty and that has the usage. All other bytes pass unchanged.
 *
 * Pure. The stream comes from a provider and is untrusted: a record longer than USAGE_RECORD_MAX
 * passes without being read.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"

enum { USAGE_RECORD_MAX = 64 << 10 };

/* Zero the struct, except for `record`, which is BUF(USAGE_RECORD_MAX). */
struct usage_strip {
    struct buf record; /* the record that has begun */
    size_t line;       /* bytes of its last line */
    bool is_long;      /* the record passes as it comes */
};
void usage_strip_done(struct usage_strip *s);

/* Adds the bytes that may pass to *to. False: *to is full. */
bool usage_strip_feed(struct usage_strip *s, const char *bytes, size_t n, struct buf *to);
/* Adds a record that has no end. */
bool usage_strip_end(struct usage_strip *s, struct buf *to);
