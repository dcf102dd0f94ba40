/*
 * Asks the owner which files and hunks are shipped, in the manner of `git add -p`.
 *
 * Contents come from a machine, so they are shown with their control characters made visible.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "review/hunks.h"

/* One changed file. `before` or `after` is NULL if the file does not exist or is not a text. */
struct pick_file {
    const char *path;
    char change;      /* A, M or D */
    const char *note; /* flags of the file, for the heading; "" for none */
    const char *before, *after;
    size_t before_n, after_n;
};

enum pick_choice { PICK_NONE, PICK_SOME, PICK_ALL };

/* The answers so far. */
struct pick {
    bool is_over; /* the owner answered q: nothing more is shipped */
};

/*
 * Shows the file and asks. PICK_SOME: `chosen` has the hunks of the diff with context CONTEXT, from
 * 1 on.
 */
enum pick_choice pick_ask(struct pick *p, const struct pick_file *f, bool chosen[HUNKS_MAX + 1]);
/* Makes the text of the file with only the chosen hunks. */
int pick_apply(const struct pick_file *f, const bool chosen[HUNKS_MAX + 1], struct buf *ret,
               struct err *err);
