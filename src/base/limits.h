/*
 * Default limits of a machine, and the ranges that requests may use.
 *
 * CLI, API and spawner take their ranges from here.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/amount.h"

#define LIMIT_MEM (2ull << 30)
#define LIMIT_VM_MEM (512ull << 20) /* of a vm, without the memory of QEMU */
/* QEMU's own memory (most is its cache of translated code), the server of its files and their
 * caches. */
#define LIMIT_VM_EXTRA (384ull << 20)
#define LIMIT_DISK (1ull << 30) /* at most half the memory, so that the disk can be on tmpfs */
#define LIMIT_PIDS 1024ull
#define LIMIT_FUEL 100000000000ull  /* of a command in a cell machine: a few minutes */
#define LIMIT_FUEL_MAX (1ull << 50) /* as large as numbers in the store */

#define LIMIT_MEM_MIN (4ull << 20)
#define LIMIT_DISK_MIN (1ull << 20)
#define LIMIT_PIDS_MAX 4000000ull
#define LIMIT_CPU_MAX_MILLI 1024000ull
#define LIMIT_BYTES_MAX (1ull << 50)
#define LIMIT_LIFETIME_MAX_MS (INT32_MAX * 1000ull)

/* The ranges of the API are narrower than those of the spawner. */
#define LIMIT_MEM_MAX (1ull << 44)
#define LIMIT_DISK_MAX (1ull << 46)
#define LIMIT_PIDS_MIN 4ull
#define LIMIT_CPU_MIN_MILLI 10ull
#define LIMIT_VOLUME_MIN (16ull << 20)
#define LIMIT_VOLUME_MAX (1ull << 40) /* the spawner formats it, and nobody may keep it busy */
#define LIMIT_TTL_MAX_MS (3650ull * 24 * 3600 * 1000)

/* One inode per 4 KiB of disk, but enough to unpack a package in a small box. */
#define LIMIT_INODES(disk_bytes) ((disk_bytes) / 4096 < 4096 ? 4096 : (disk_bytes) / 4096)

struct err;
struct jot;

/* A number with its range, as messages show it. */
struct limit_range {
    const char *name; /* "memory limit", "--mem" */
    enum amount_unit unit;
    uint64_t value; /* 0: not given */
    uint64_t min, max;
};

/* ERR_INVALID names the first number that is given and out of range. */
int ranges_check(const struct limit_range *rows, size_t count, struct err *err);

/* The limits as the machine sees them in machine.json. */
struct limits_told {
    uint64_t mem_bytes, disk_bytes, pids;
    uint64_t cpu_milli;   /* thousandths of a CPU; 0: no limit */
    uint64_t lifetime_ms; /* 0: no limit */
};

/* Checks the ranges; ERR_INVALID names the limit that is out of range. A limit of 0 is skipped. */
int limits_in_range(const struct limits_told *l, struct err *err);

/* Writes the member "limits" of machine.json. */
void limits_write(struct jot *j, const struct limits_told *l);
