/*
 * Limits the space of layer copies in the store. Hard links and shared data on the disk of a box
 * may become separate files in a copy, so the limit of that disk does not bound a copy.
 *
 * The cost of a copy is recorded beside it, in the file `cost`. All copies on one saved disk share
 * a limit.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct room {
    uint64_t bytes, inodes;
};

/*
 * Space for one more copy: what the source disk can hold, at most twice that for all copies, since
 * the previous step stays until the next is complete.
 */
int room_left(int from_disk, int to_disk, struct room *ret);

/* -EDQUOT: not enough. NULL: no limit. */
int room_take(struct room *room, uint64_t inodes, uint64_t bytes);

/* For an unfinished layer, by the name of its directory. */
int cost_write(int disk, const char *name, const struct room *cost);

/* The cost of a layer that was merged from others: their sum. */
void cost_sum(int disk, const uint32_t *layers, size_t count, struct room *ret);
void cost_drop(int disk, const uint32_t *layers, size_t count);
