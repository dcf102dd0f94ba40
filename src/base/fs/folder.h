/*
 * Durable directory entries: a synced file is still lost in a power failure if its name was not
 * synced. Thin wrappers that return -errno; they block.
 */
#pragma once

/* Syncs a directory: the names in it are then durable. */
int folder_sync(const char *path);

/* Syncs the parent directory of a path, so that the last name of the path is durable. */
int folder_sync_above(const char *path);

/* Creates a directory with mode 0700 and syncs its name. Returns 0 also if it exists. */
int folder_make(const char *path);
