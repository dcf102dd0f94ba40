/*
 * The btrfs calls that the disk of a machine needs: snapshot the whole disk in constant time, and
 * delete it.
 *
 * Each snapshot is its own filesystem. Several subvolumes of one filesystem would not work:
 * overlayfs shows one device for all of them while inode numbers repeat, so `mv` takes two files
 * for one and loses data. Thin wrappers: -errno on failure.
 */
#pragma once

#include <stdbool.h>

/* True if it is on btrfs. */
bool btrfs_is(int fd);

/* Snapshots the subvolume with top `disk` into the writable directory `name` in it. */
int btrfs_snapshot(int disk, const char *name);

/*
 * Deletes a snapshot with its content; the kernel frees the space later. -ENOTDIR: not a snapshot,
 * or missing.
 */
int btrfs_destroy(int dir, const char *name);

/*
 * Syncs the disk and starts to free the space of deleted snapshots, which otherwise begins half a
 * minute later.
 */
int btrfs_sync(int disk);
