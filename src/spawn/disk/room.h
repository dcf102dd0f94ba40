/*
 * Limits the space of layer copies in the store. Hard links and shared data on the disk of a box
 * may become separate files in a copy, so the limit of that disk does not bound a copy.
 *
 * The cost of a copy (its bytes and inodes) is recorded beside it, in the file `cost`. All copies
 * on one saved disk share a limit.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct room {
    uint64_t bytes, inodes;
};

/*
 * Returns the space for one more copy: at most the size of the source disk. All copies together may
 * take twice that size, because the previous copy stays until the next is complete.
 */
int room_left(int from_disk, int to_disk, struct room *ret);

/* Takes space from *room. -EDQUOT: not enough is left. room NULL: no limit. */
int room_take(struct room *room, uint64_t inodes, uint64_t bytes);

/* Writes the cost of an unfinished layer into its directory `name`. */
int cost_write(int disk, const char *name, const struct room *cost);

/* Adds up the costs of layers, for the layer that they are merged into. */
void cost_sum(int disk, const uint32_t *layers, size_t count, struct room *ret);
void cost_drop(int disk, const uint32_t *layers, size_t count);
