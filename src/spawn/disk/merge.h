/*
 * Merging layers: several become one that shows the same, by hard links. No data is copied (but out
 * of snapshots where their filesystem cannot share it), and the originals stay as they are; whoever
 * has them mounted notices nothing.
 *
 * What a directory of the result shows is worked out as the kernel looks it up: by its path, layer
 * by layer, the path being rewritten by the redirects it meets. Whiteouts stay, since there are
 * layers below. The tree is a box's: depth is limited, nothing is followed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layers.h"

struct merge_plan {
    int disk;                  /* writable, as on disk */
    bool userxattr;            /* marks are user.overlay.* */
    bool saved;                /* on a disk that outlives the host: synced before it appears */
    uint32_t into;             /* number of the new layer */
    uint32_t from[LAYERS_MAX]; /* topmost first */
    size_t count;
};

/* The layer appears whole, or not at all; 0 or -errno. */
int merge_layers(const struct merge_plan *plan);

/* 1: it is there already, and made of these. 0: there is none. -EEXIST: of others. */
int merge_done(const struct merge_plan *plan);
