/*
 * Copies a frozen layer, on the same disk or to another, with owners, modes, times, attributes,
 * whiteouts and hard links. Data is shared if the filesystem can.
 *
 * On btrfs the copy is a snapshot of the whole disk in which the layer was moved to the top; the
 * rest of the snapshot is ignored.
 *
 * The tree was written by a box: depth is limited and no link is followed. A copy to another disk
 * may not take more space there than the disk of the box could hold.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct duplicate_plan {
    uint32_t from, into; /* numbers of layers */
    bool durable;        /* to the store: limited, and on the disk when it is done */
    bool snapshot;       /* both disks are the same, and btrfs */
};

enum duplicate_way { DUPLICATE_COPY, DUPLICATE_REFLINK, DUPLICATE_BTRFS };
/* "copy", "reflink", "btrfs" */
const char *duplicate_way_name(enum duplicate_way way);

/* The layer appears whole, or not at all. 0 or -errno; *ret_way (may be NULL): how. */
int duplicate_layer(int from_disk, int to_disk, const struct duplicate_plan *plan,
                    enum duplicate_way *ret_way);

/* 1: it is there. */
int duplicate_done(int to_disk, uint32_t into);

/*
 * A layer that is being read may be thrown away meanwhile: it is held (a descriptor), and looked
 * for again afterwards: 0, or -ESTALE: what was read of it may be less than it was.
 */
int layer_hold(int disk, uint32_t number);
int layer_still(int disk, uint32_t number, int held);

/* Copies what is no directory, one by one; several names of a file stay names of one file. */
struct copying;
struct copying *copying_new(int out); /* the top of all copies, dup'ed; NULL: errno */
void copying_free(struct copying *c);
/* from/name becomes to/name; path: the latter, below the top. */
int copying_file(struct copying *c, int from, int to, const char *name, const char *path);
