/*
 * The uncommitted work of the owner's repository: changed and untracked files, without ignored
 * ones.
 *
 * The owner's repository is not changed: a temporary repository borrows its objects and its index.
 */
#pragma once

#include "base/err.h"

/* Name of the uncommitted work in a bundle: a commit whose parent is the commit that was cloned.
 * The script of service/grants/repo.c uses the same name. */
#define DIRTY_REF "refs/carrel/dirty"

/* Counts the changed and untracked files; 0 if the repository has no working tree. */
long dirty_count(const char *path);

/*
 * Writes a bundle to descriptor `out`: commit `hash`, which is checked out, as `ref`, and the
 * uncommitted work as DIRTY_REF.
 */
int dirty_bundle(const char *path, const char *ref, const char *hash, int out, struct err *err);
