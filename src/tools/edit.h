/*
 * Exact replacements in a text: pure.
 *
 * An edit's old text must occur exactly as often as the caller says (once, unless told otherwise);
 * when it does not, the message shows where it occurs, or which lines come nearest.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

struct edit_step {
    const char *old_text, *new_text;
    size_t count; /* how often it must occur: all of them are replaced */
};

/*
 * Replaces text->data. diff: unified hunks of what was done, appended. On a miss -1, text is as it
 * was, *err says what went wrong and `hint` (appended) shows the places in question.
 */
int edit_apply(struct buf *text, const struct edit_step *steps, size_t count, struct buf *diff,
               struct buf *hint, struct err *err);
