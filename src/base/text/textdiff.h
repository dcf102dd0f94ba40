/*
 * Computes the difference of two texts as unified hunks, and applies hunks to a text.
 *
 * A text may have any bytes; a line ends after '\n' or at the end of the text. The search for the
 * shortest difference is bounded: if two texts have too little in common, whole ranges are
 * replaced. The hunks always turn the first text into the second.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct textdiff_count {
    uint64_t added, removed; /* numbers of lines */
};

/*
 * Appends the hunks to `out`, none for equal texts, without file names. False: they do not fit, or
 * a text has more than 2^30 lines; then `out` is unchanged. *ret is set except for too many lines.
 */
bool textdiff(struct buf *out, const char *a, size_t a_len, const char *b, size_t b_len,
              unsigned context, struct textdiff_count *ret);

/* Appends text `a` with the hunks applied. False: they are malformed, or do not match the text. */
bool textdiff_apply(struct buf *out, const char *a, size_t a_len, const char *hunks, size_t len);
