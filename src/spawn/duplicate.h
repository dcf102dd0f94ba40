/*
 * A second copy of a frozen layer, on the same disk or another: what it holds, owners, modes,
 * times, attributes, whiteouts and hard links as they are. Data is shared where the filesystem can.
 *
 * The tree is a box's: depth is limited, and nothing is followed.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct duplicate_plan {
    uint32_t from, into; /* numbers of layers */
    bool durable;        /* on the disk when it is done, and not only with the kernel */
};

/* The layer appears whole, or not at all. 0 or -errno; *ret_shared (may be NULL): no data was
 * copied. */
int duplicate_layer(int from_disk, int to_disk, const struct duplicate_plan *plan,
                    bool *ret_shared);

/* 1: it is there. */
int duplicate_done(int to_disk, uint32_t into);
