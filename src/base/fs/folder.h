/*
 * Durable directory entries: a synced file is still lost in a power failure if its name was not
 * synced. Thin wrappers that return -errno; they block.
 */
#pragma once

/* Syncs the names in the directory. */
int folder_sync(const char *path);

/* Syncs the last name of the path. */
int folder_sync_above(const char *path);

/* Creates the directory with mode 0700 and syncs its name. 0 also if it exists. */
int folder_make(const char *path);
