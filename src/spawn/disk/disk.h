/*
 * A disk of a machine: a filesystem of fixed size in an unnamed file on a loop device.
 *
 * The filesystem itself enforces the limit: bytes and inodes for ext4, bytes for btrfs. The file is
 * deleted when its mount is closed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum disk_kind { DISK_EXT4, DISK_BTRFS };

/* True if the program that creates this kind of filesystem is installed. */
bool disk_can(enum disk_kind kind);

/*
 * Creates a disk whose file is in the directory `store`. Returns a detached mount of the disk, or
 * -1.
 */
int disk_new(int store, enum disk_kind kind, uint64_t bytes, uint64_t inodes, struct err *err);

/*
 * A file that outlives its mounts (spawn/disk/volume.h). disk_format() gives an empty file its size
 * and an ext4 with a journal; disk_mount() returns a detached mount of it.
 */
int disk_format(int image, uint64_t bytes, uint64_t inodes, struct err *err);
/*
 * A file has one loop device at a time, so all mounts of it share one superblock. A second device
 * would write to the same blocks and destroy the filesystem.
 */
int disk_mount(int image, struct err *err);
/* 1: a loop device uses the file, so it may be mounted; 0: none does; or -1. */
int disk_is_mounted(int image, struct err *err);
