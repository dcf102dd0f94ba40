/*
 * The memory of a vm in a file: a page with the header, the stream of QEMU's migration, then the
 * table of the server of its files (spawn/fuse/table.h).
 *
 * The spawner writes the header last, so an unfinished file has none. Whoever uses a file checks it
 * first: QEMU and the server of the files read the rest.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/sha256.h"

enum {
    VM_MEMORY_STREAM = 4096,           /* where the stream begins */
    VM_MEMORY_TABLE_MAX = 64 << 20,    /* bytes */
    VM_MEMORY_DEVICES_MAX = 128 << 20, /* what a stream has besides the memory of the guest */
};

/* What a guest that goes on in saved memory is told: MSG_RESUMED. */
enum vm_resumed {
    VM_RESUMED_BACK,   /* the machine was rewound */
    VM_RESUMED_COPY,   /* another machine: it gets a machine id and keys of its own */
    VM_RESUMED_PAUSED, /* the machine was paused */
};

struct vm_memory_head {
    char magic[16];
    uint8_t key[SHA256_BYTES]; /* of everything that the vm was booted with */
    uint64_t mem_bytes;        /* memory of the guest */
    uint64_t stream_bytes, table_bytes;
    uint32_t lost; /* files that were deleted while they were open: they are not in the table */
    uint32_t stopped_ms; /* for how long the vm stood still */
    /*
     * SipHash of all after the page of the header, part by part, then of the header with a zero
     * here. It finds damage: nobody but the user of the daemon can write the file.
     */
    uint64_t sum, head_sum;
};

/* Fills in the magic. */
void vm_memory_begin(struct vm_memory_head *head);

/* True if a file of this size can have this header. Pure. */
bool vm_memory_fits(const struct vm_memory_head *head, uint64_t file_bytes);

/* Fills in both sums. -errno. */
int vm_memory_sum(struct vm_memory_head *head, int fd);

/*
 * Reads the header of a file that belongs to this user and that nobody else may write. All
 * bytes are summed up, so it blocks.
 */
int vm_memory_open(const char *path, int *ret, struct vm_memory_head *head, struct err *err);
