/*
 * Ballast: a file that reserves disk space and is deleted when the disk is full, so that records of
 * operations that free space (rm, prune) can still be written.
 *
 * While the ballast file is missing, or the disk has less free space than its size, the store is
 * `full`: operations that only use space are refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ballast {
    int dir; /* descriptor of the store directory; not owned */
    uint64_t bytes;
    bool held; /* the ballast file exists in full size */
    bool full;
    uint64_t unused; /* free space when the ballast file was deleted; valid while it is missing */
};

/*
 * Creates the ballast file if there is space. On a filesystem that cannot hold the file the store
 * is never `full`.
 */
void ballast_init(struct ballast *b, int dir);

/* Deletes the ballast file. False: it was already deleted. */
bool ballast_release(struct ballast *b);

/*
 * Returns the disk space for records: the space that is free for all users, or the unused rest of
 * the deleted ballast file. If blocks that the filesystem reserves for root were in use, the space
 * of the deleted file refills them and does not show as free.
 */
uint64_t ballast_room(const struct ballast *b);

/* Call from a timer: creates the ballast file again once there is plenty of space. */
void ballast_look(struct ballast *b);
