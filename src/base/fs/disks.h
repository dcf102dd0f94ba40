/*
 * What the disks of a store's machines are, as `carrel store init` wrote it down in the store: the
 * file `disks`, "btrfs 8589934592" or "plain". Without one it is as the host has it.
 *
 * Parsing is total: anything but these two forms is refused, and then no machine is made.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define DISKS_NAME "disks"
enum { DISKS_TEXT_SIZE = 64 };

/* A btrfs must not be too small for what it keeps of its own. */
#define DISKS_BTRFS_MIN (256ull << 20)
#define DISKS_BTRFS_MAX (64ull << 40)

struct disks {
    bool said;      /* somebody chose */
    bool btrfs;     /* each is a btrfs in a file of the store */
    uint64_t bytes; /* of a machine that names no other; 0: what its kind has */
};

int disks_parse(const char *text, struct disks *ret, struct err *err);
void disks_print(const struct disks *d, char text[DISKS_TEXT_SIZE]);

/* Of the store that is open as home. No file is no error: nobody chose. */
int disks_read(int home, struct disks *ret, struct err *err);
