/*
 * Asks which changes of a repository are shipped. See repo_pick.c.
 *
 * `repo` is the quarantine, in which git has checked every object.
 */
#pragma once

#include "base/err.h"
#include "review/commits.h"

enum { REPO_PICK_HASH = 72 };

struct repo_pick_from {
    const char *repo;
    const char *base, *work; /* commits of the owner and of the machine */
    const char *machine;     /* name for the message of the commit */
    const struct commits *changes;
};

/* Writes the new commit; empty: nothing was chosen. */
int repo_pick(const struct repo_pick_from *from, char ret[REPO_PICK_HASH], struct err *err);
