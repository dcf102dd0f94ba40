/*
 * Opens untrusted paths, such as those of a recipe, an OCI layout, an archive or a change set. A
 * path never leads out of its directory, whatever symbolic links exist there. The kernel checks
 * while it resolves the path (openat2), so nobody can replace a part of it after the check.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * Opens a path below `dir`, with O_CLOEXEC. Returns a descriptor or -errno: -EXDEV for an absolute
 * path and for links or ".." that lead out of `dir`, -ELOOP for magic links such as those of /proc.
 * Other links are followed; with O_NOFOLLOW the last name must not be a link.
 */
int beneath_open(int dir, const char *path, int flags);

/* As beneath_open(); with O_CREAT, a new file gets this mode. */
int beneath_create(int dir, const char *path, int flags, unsigned mode);

/* As beneath_open(), but returns -ELOOP if any part of the path is a symbolic link. */
int beneath_open_plain(int dir, const char *path, int flags);

/* Opens the parent directory of a path, without links; *ret_name is the last name of the path. */
int beneath_parent(int dir, const char *path, int flags, const char **ret_name);

/* True if this -errno means that the path leads out of its directory or through a link. */
bool beneath_leaves(int r);

/* Opens a regular file for reading. Refuses a link as the last name; never blocks on a pipe. */
int beneath_open_file(int dir, const char *path, struct err *err);
