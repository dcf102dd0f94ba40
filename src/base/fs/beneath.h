/*
 * Opens untrusted paths: a path in a recipe, an OCI layout, an archive or a change set is resolved
 * beneath its directory and never outside, whatever links exist there. The kernel checks while it
 * resolves (openat2), so nothing can be swapped in between.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

/*
 * A descriptor (O_CLOEXEC is added) or -errno. An absolute path, and links or dots that lead out,
 * are -EXDEV; links of /proc are -ELOOP. Links that stay beneath are followed, unless with
 * O_NOFOLLOW the last name is one.
 */
int beneath_open(int dir, const char *path, int flags);

/* The same, and no part of the path may be a link: -ELOOP. */
int beneath_open_plain(int dir, const char *path, int flags);

/* The directory that holds the path's last name, which is in *ret_name; reached without links. */
int beneath_parent(int dir, const char *path, int flags, const char **ret_name);

/* Does this -errno say that the path leads out, or through a link where none may be? */
bool beneath_leaves(int r);

/* A regular file for reading: the last name is no link, and a pipe does not make us wait. */
int beneath_open_file(int dir, const char *path, struct err *err);
