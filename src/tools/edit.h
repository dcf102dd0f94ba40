/*
 * Replaces exact text in a file. Pure.
 *
 * The old text must occur exactly `count` times (default once). If it does not, the error shows
 * where it occurs, or which lines are nearest.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct edit_step {
    const char *old_text, *new_text;
    size_t count; /* how often the old text must occur; all occurrences are replaced */
};

/*
 * Replaces text->data and appends unified hunks to diff. On -1 the text is unchanged, *err gives
 * the reason, and `hint` gets the lines with the old text, or the most similar lines.
 */
int edit_apply(struct buf *text, const struct edit_step *steps, size_t count, struct buf *diff,
               struct buf *hint, struct err *err);

/* Shows the lines of the text that are most similar to old_text, if there are any. */
void edit_nearest(const struct buf *text, const char *old_text, struct buf *hint);
