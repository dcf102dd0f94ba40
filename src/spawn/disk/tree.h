/*
 * Copies and removes directory trees without following links.
 *
 * All access is by descriptor, so concurrent renames do no harm.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct tree_copy {
    uid_t owner_base;        /* added to the owner and group written */
    const char *const *skip; /* names left out at any depth; NULL-terminated, may be NULL */
    bool dirs_only;          /* directories and nothing in them */
    bool readable_only;      /* what this user may not read is left out */
    bool public_only;        /* what not everybody may read is left out */
    uint64_t max_bytes;      /* the copy fails beyond */
    uint64_t bytes;          /* copied so far */
};

/* Copies from/name (file, link or directory) to to/name. A missing source is not an error. */
int tree_copy(int from, const char *from_name, int to, const char *to_name, struct tree_copy *how,
              struct err *err);

/* Removes dir/name and all below it on the same filesystem. A missing one is not an error. */
int tree_remove(int dir, const char *name);

/* mkdir, owner and mode in one; an existing directory only gets them. */
int tree_dir(int dir, const char *name, mode_t mode, uid_t uid, gid_t gid);

/* A whole small file, replaced atomically enough for a private directory. */
int tree_file(int dir, const char *name, const char *text, mode_t mode, uid_t uid, gid_t gid);
