/*
 * Ballast: a file that reserves disk space and is deleted when the disk is full, so that records of
 * operations that free space (rm, prune) can still be written.
 *
 * While the file is missing, or the disk has less free space than its size, the store is `full`:
 * operations that only use space are refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ballast {
    int dir; /* directory of the store; not owned */
    uint64_t bytes;
    bool held; /* the file exists in full size */
    bool full;
    uint64_t unused; /* free space when the file was deleted; valid while it is missing */
};

/* Creates the file if there is space. On a filesystem that cannot hold it the store is never
 * `full`. */
void ballast_init(struct ballast *b, int dir);

/* Deletes the file. False: already deleted. */
bool ballast_release(struct ballast *b);

/*
 * Returns the space for records: free space for all users, or what is left of the deleted file. If
 * reserved blocks of the disk were in use, the space of the file goes there and does not show as
 * free.
 */
uint64_t ballast_room(const struct ballast *b);

/* Call from a timer: creates the file again once there is plenty of space. */
void ballast_look(struct ballast *b);
