/*
 * Project quota of ext4 and xfs: a directory tree with a hard limit in bytes and inodes.
 *
 * Inodes inherit the project of their directory. A rename into another project fails with EXDEV, so
 * all directories between which an overlay moves files must be in one project. A process with
 * CAP_SYS_RESOURCE ignores the limits. All functions are thin wrappers of system calls and return
 * -errno on failure; fd is any file on the filesystem.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Assigns an empty directory, and everything created in it, to a project. */
int quota_assign(int dir, uint32_t project);

/* Sets the limits of a project. A limit of 0 means unlimited. */
int quota_limit(int fd, uint32_t project, uint64_t bytes, uint64_t inodes);

/*
 * Returns 1 if the filesystem counts quota projects and this project id is unused, 0 if it is in
 * use.
 */
int quota_unused(int fd, uint32_t project);
