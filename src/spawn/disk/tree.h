/*
 * Copies and removes directory trees without following links.
 *
 * All access is by descriptor, so concurrent renames cannot redirect it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct tree_copy {
    uid_t owner_base; /* number added to each owner and group id */
    /* names of files and directories to leave out at any depth; NULL-terminated, may be NULL */
    const char *const *skip;
    bool dirs_only;     /* copy only directories */
    bool shallow;       /* copy a directory without its contents */
    bool readable_only; /* skip files that this process may not read */
    bool public_only;   /* skip files that not everybody may read */
    uint64_t max_bytes; /* fail if the copied files would have more bytes in total */
    uint64_t bytes;     /* bytes copied so far */
};

/* Copies from/name (file, link or directory) to to/name. A missing source is not an error, also if
 * it is removed meanwhile. */
int tree_copy(int from, const char *from_name, int to, const char *to_name, struct tree_copy *how,
              struct err *err);

/*
 * True if every directory of the path is public: a world-readable file below a private directory is
 * private, too.
 */
bool tree_is_reachable(int dir, const char *path);

/* Removes dir/name and all below it on the same filesystem. A missing entry is not an error. */
int tree_remove(int dir, const char *name);

/* Creates a directory with owner and mode; an existing directory gets the same owner and mode. */
int tree_dir(int dir, const char *name, mode_t mode, uid_t uid, gid_t gid);

/*
 * Writes a small file. The write is not atomic: call it only for a private directory that nobody
 * reads meanwhile.
 */
int tree_file_bytes(int dir, const char *name, const void *bytes, size_t n, mode_t mode, uid_t uid,
                    gid_t gid);
int tree_file(int dir, const char *name, const char *text, mode_t mode, uid_t uid, gid_t gid);
