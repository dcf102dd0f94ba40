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
};

/* Makes the file if there is room for it. A filesystem that cannot have one is never `full`. */
void ballast_init(struct ballast *b, int dir);

/* Gives the file up. False: it was gone already. */
bool ballast_release(struct ballast *b);

/* From a timer: looks at the room there is, and makes the file again if that is plenty. */
void ballast_look(struct ballast *b);
