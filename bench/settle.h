/*
 * When a spawner has come to rest: background work of ours must not fall into anybody's time.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum settle {
    SETTLE_RESTED, /* exactly so many boxes exist, nothing of older ones is left, pools are full */
    SETTLE_EMPTY,  /* so many boxes exist, whatever the pools hold */
    SETTLE_REAPED, /* so many boxes are alive; what others left may still be there */
};

/* Waits for it on a connection to the spawner. `go_on` (may be NULL) says when to give up. */
int settle(int link, enum settle what, unsigned boxes, int (*go_on)(struct err *), struct err *err);

/* A new order for the contenders of a round. */
void shuffle(unsigned *order, size_t n, uint64_t *seed);

/*
 * Run files belong on a tmpfs, as /run is on every distribution, though not in every container.
 * There this process and all that it starts get one, if they may; call it first.
 */
void mount_run(void);
/* Where run files are, then. */
const char *run_base(void);
