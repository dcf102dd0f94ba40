/*
 * The few calls of btrfs that a machine's disk needs: a snapshot of the whole of it, in constant
 * time, and its end.
 *
 * Such a disk is a filesystem of its own. Several subvolumes of one would not do: an overlay shows
 * the inode numbers of its layers and one device for all of a filesystem, each subvolume begins to
 * number anew, and then two files of one box have the same device and number; `mv` takes them for
 * one and loses data. A snapshot has the numbers of what it was made of, and what is made later has
 * others.
 *
 * Thin wrappers: -errno on failure.
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
