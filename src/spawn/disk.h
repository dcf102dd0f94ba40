/*
 * A filesystem of a fixed size in a file that never has a name: an ext4 image on a loop device.
 *
 * The limit in bytes and inodes is the filesystem's own. The file goes with its mount.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

/* A detached mount, or -1. store is where the file's blocks come from. */
int disk_new(int store, uint64_t bytes, uint64_t inodes, struct err *err);
