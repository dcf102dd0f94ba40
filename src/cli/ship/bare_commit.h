/*
 * Bundles a commit that no ref points to; git bundles only refs.
 *
 * The owner's repository is not changed: a temporary repository borrows its objects.
 */
#pragma once

#include "base/err.h"

enum { BARE_COMMIT_SIZE = 72 };

/* The ref that the bundle has for it. */
#define BARE_COMMIT_REF "refs/tags/carrel-base"

/*
 * A repository beside the owner's that borrows its objects and has that one ref is made, bundled
 * from and removed again: nothing is written to the owner's. hash: whole. -1 with *err.
 */
int bare_commit_bundle(const char *path, const char *hash, int out, struct err *err);
