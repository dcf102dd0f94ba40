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
 * For one more copy: what the disk it comes from can hold, and twice that with those that are
 * there, since the step before stays until the next one is whole.
 */
int room_left(int from_disk, int to_disk, struct room *ret);

/* -EDQUOT: there is not so much. NULL has no end. */
int room_take(struct room *room, uint64_t inodes, uint64_t bytes);

/* Of a layer in the making, by the name of its directory. */
int cost_write(int disk, const char *name, const struct room *cost);

/* One that was made of others, by links: what they cost is its cost, once it is there. */
void cost_sum(int disk, const uint32_t *layers, size_t count, struct room *ret);
void cost_drop(int disk, const uint32_t *layers, size_t count);
