/*
 * Bundles a commit that no ref points to; git bundles only refs.
 *
 * The owner's repository is not changed: a temporary repository borrows its objects.
 */
#pragma once

#include "base/err.h"

enum { BARE_COMMIT_SIZE = 72 };

/* Name of the commit in the bundle. */
#define BARE_COMMIT_REF "refs/tags/carrel-base"

/*
 * Uses a temporary repository that borrows the objects of the owner's and has this one ref; nothing
 * is written to the owner's repository. `hash` is a full hash.
 */
int bare_commit_bundle(const char *path, const char *hash, int out, struct err *err);
