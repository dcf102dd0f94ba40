/*
 * The disk format of a store: the file `disks`, which `carrel store init` writes. It contains
 * "btrfs 8589934592" or "plain". Without the file, machines get the default disks of the host.
 *
 * Any other content is an error, and then no machine is created.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DISKS_NAME "disks"
enum { DISKS_TEXT_SIZE = 64 };

/* A smaller btrfs has no room for files beside its own metadata. */
#define DISKS_BTRFS_MIN (256ull << 20)
#define DISKS_BTRFS_MAX (64ull << 40)

struct disks {
    bool said;      /* the file exists: the format was set */
    bool btrfs;     /* each disk is a btrfs in a file of the store; false: plain */
    uint64_t bytes; /* size of a disk, unless the machine names another; 0: the default */
};

int disks_parse(const char *text, struct disks *ret, struct err *err);
void disks_print(const struct disks *d, char text[DISKS_TEXT_SIZE]);

/* Reads the file of the store that is open as `home`. Without the file, `said` is false. */
int disks_read(int home, struct disks *ret, struct err *err);
