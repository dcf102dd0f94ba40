/*
 * Bundles a commit that no ref points to; git bundles only refs.
 *
 * The owner's repository is not changed: a temporary repository borrows its objects.
 */
#pragma once

#include "base/err.h"

enum { BARE_COMMIT_SIZE = 72 };

/* The bundle names the commit by this tag. */
#define BARE_COMMIT_REF "refs/tags/carrel-base"

/*
 * Writes a bundle of commit `hash` (a full hash) of the repository at `path` to descriptor `out`.
 */
int bare_commit_bundle(const char *path, const char *hash, int out, struct err *err);
