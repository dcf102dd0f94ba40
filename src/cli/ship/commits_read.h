/* Asks the owner's git for the files that commits change, in a repository that was checked. */
#pragma once

#include "review/commits.h"

/*
 * Reads the changes from commit `from` to commit `to`. Each file also gets the flags in `more`.
 * is_parent: `from` is known to be the only parent of `to`.
 */
int commits_read(const char *repo, const char *from, const char *to, bool is_parent, unsigned more,
                 struct commits *ret, struct err *err);
