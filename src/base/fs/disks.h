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
