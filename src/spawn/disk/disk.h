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
