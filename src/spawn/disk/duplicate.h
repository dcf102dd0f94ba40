/*
 * Copies a frozen (read-only) layer, on the same disk or to another disk, with owners, modes,
 * times, attributes, whiteouts and hard links. The copy shares its data with the source (reflink)
 * if the filesystem supports that.
 *
 * On btrfs the copy is a snapshot of the whole disk in which the layer was moved to the top; the
 * rest of the snapshot is ignored. It has its final name at once, and is complete when it has "u".
 * A rename would be a write to the disk, which only a sync tells from those of the box.
 *
 * The tree was written by a box: depth is limited and no link is followed. A copy to another disk
 * may not take more space there than the disk of the box could hold.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct duplicate_plan {
    uint32_t from, into; /* number of the layer to copy, and of the copy */
    bool durable;        /* the copy is in the store: its size is limited, and it is synced */
    bool snapshot;       /* source and copy are on the same btrfs disk */
};

enum duplicate_way { DUPLICATE_COPY, DUPLICATE_REFLINK, DUPLICATE_BTRFS };
/* Returns "copy", "reflink" or "btrfs". */
const char *duplicate_way_name(enum duplicate_way way);

struct duplicated {
    enum duplicate_way way;
    uint64_t generation; /* btrfs_generation() of the disk at its snapshot; 0: unknown */
};

/*
 * Copies a layer. The copy becomes complete (duplicate_done()) in one instant or never. Returns 0
 * or -errno. *ret (may be NULL): how it was copied.
 */
int duplicate_layer(int from_disk, int to_disk, const struct duplicate_plan *plan,
                    struct duplicated *ret);

/* Returns 1 if the copy with the layer number `into` exists and is complete. */
int duplicate_done(int to_disk, uint32_t into);

/*
 * A layer may be deleted while it is read. layer_hold() opens it; layer_still() checks at the end:
 * 0, or -ESTALE if the layer was deleted, so that the read may be incomplete.
 */
int layer_hold(int disk, uint32_t number);
int layer_still(int disk, uint32_t number, int held);

/* Copies single files of a layer and keeps the hard links between them. */
struct copying;
struct copying *copying_new(int out); /* out: top directory of the copies; NULL: see errno */
void copying_free(struct copying *c);
/* Copies from/name to to/name. path: path of to/name relative to the top directory. */
int copying_file(struct copying *c, int from, int to, const char *name, const char *path);
