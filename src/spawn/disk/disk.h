/*
 * A filesystem of fixed size in an unnamed file on a loop device.
 *
 * The filesystem itself enforces the limit: bytes and inodes for ext4, bytes for btrfs. The file
 * disappears with its mount.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

enum disk_kind { DISK_EXT4, DISK_BTRFS };

/* True if the program that makes this kind is installed. */
bool disk_can(enum disk_kind kind);

/* Returns a detached mount, or -1. The blocks of its file are in `store`. */
int disk_new(int store, enum disk_kind kind, uint64_t bytes, uint64_t inodes, struct err *err);
