/*
 * The difference of two texts, line by line, as unified hunks, and hunks applied to a text.
 *
 * Any bytes are a text: a line ends after '\n' or with the text. The shortest difference is looked
 * for, with bounded effort: where two texts have too little in common a whole stretch is replaced.
 * What comes out always turns the one text into the other.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct textdiff_count {
    uint64_t added, removed; /* lines */
};

/*
 * Appends the hunks, none for equal texts; files are not named. False: they do not fit, or a text
 * has more than 2^30 lines; then out is as it was. ret is known in either case but the latter.
 */
bool textdiff(struct buf *out, const char *a, size_t a_len, const char *b, size_t b_len,
              unsigned context, struct textdiff_count *ret);

/* Appends what hunks make of a text. False: they are malformed, or not made for it. */
bool textdiff_apply(struct buf *out, const char *a, size_t a_len, const char *hunks, size_t len);
