/*
 * A file that takes up room in the store, to be given up when the disk is full: then what frees
 * room (rm, prune) can still be written down.
 *
 * While the file is gone, or the disk has less room than the file takes, the store is `full`:
 * whoever would only use up room is refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct ballast {
    int dir; /* the store's; not owned */
    uint64_t bytes;
    bool held; /* the file is there, whole */
    bool full;
    uint64_t unused; /* on the disk, when the file was given up; only while it is gone */
};

/* Makes the file if there is room for it. A filesystem that cannot have one is never `full`. */
void ballast_init(struct ballast *b, int dir);

/* Gives the file up. False: it was gone already. */
bool ballast_release(struct ballast *b);

/*
 * The room for records: what the disk has for everybody, or what is left of the file that was
 * given up. Where the reserve of a disk was used, the file's room goes there and does not show
 * as free.
 */
uint64_t ballast_room(const struct ballast *b);

/* From a timer: looks at the room there is, and makes the file again if that is plenty. */
void ballast_look(struct ballast *b);
