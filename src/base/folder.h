/*
 * Folders whose names outlive a power cut: a file that was synced is still lost when the name that
 * leads to it was not. Thin wrappers, which return -errno; they block.
 */
#pragma once

/* The names in it are on the disk. */
int folder_sync(const char *path);

/* The name that this path ends with is on the disk. */
int folder_sync_above(const char *path);

/* Makes it for us alone, and its name is on the disk. 0 also if it is there. */
int folder_make(const char *path);
