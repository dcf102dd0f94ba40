/*
 * The btrfs calls that the disk of a machine needs: create a snapshot of the whole disk in constant
 * time, and delete a snapshot.
 *
 * Each disk is a filesystem of its own. Disks as subvolumes of one filesystem would not work: an
 * overlay shows one device for all of them, but each subvolume numbers its inodes anew. `mv` would
 * then take two files for one and lose data. All functions are thin wrappers of system calls and
 * return -errno on failure.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* True if the file is on btrfs. */
bool btrfs_is(int fd);

/*
 * Creates the directory `name` in `disk`: a writable snapshot of the subvolume whose top is `disk`.
 */
int btrfs_snapshot(int disk, const char *name);

/*
 * Deletes a snapshot with its content; the kernel frees the space later. -ENOTDIR: `name` is not a
 * snapshot, or does not exist.
 */
int btrfs_destroy(int dir, const char *name);

/*
 * Syncs the disk and starts to free the space of deleted snapshots, which otherwise begins half a
 * minute later.
 */
int btrfs_sync(int disk);

/*
 * Returns a number that changes whenever something on the disk was written and synced, snapshots
 * excepted. 0: unknown.
 */
uint64_t btrfs_generation(int disk);
