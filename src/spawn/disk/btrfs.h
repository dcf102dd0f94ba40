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

/* Does it lie on btrfs? */
bool btrfs_is(int fd);

/* All of the subvolume whose top `disk` is, as `name` in it: a directory that can be written to. */
int btrfs_snapshot(int disk, const char *name);

/*
 * A snapshot goes, whatever is in it; the kernel frees what only it held by and by. -ENOTDIR: that
 * is none (or there is nothing of that name).
 */
int btrfs_destroy(int dir, const char *name);

/*
 * What was written is on the disk; what only destroyed snapshots held begins to be freed, which it
 * would otherwise half a minute later.
 */
int btrfs_sync(int disk);
