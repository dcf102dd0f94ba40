/*
 * Merges layers: several become one with the same content, by hard links. Data is copied only out
 * of snapshots whose filesystem cannot share it. The sources stay unchanged, so mounts of them
 * notice nothing.
 *
 * A directory of the result is resolved as the kernel does it: by path, layer by layer, following
 * redirects. Whiteouts stay, because there are layers below. The tree was written by a box: depth
 * is limited and no link is followed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layers.h"

struct merge_plan {
    int disk;                  /* writable, with ids as on disk */
    bool userxattr;            /* overlay marks are user.overlay.* */
    bool saved;                /* on a saved disk: synced before it appears */
    uint32_t into;             /* number of the new layer */
    uint32_t from[LAYERS_MAX]; /* topmost first */
    size_t count;
};

/* The layer appears complete or not at all; 0 or -errno. */
int merge_layers(const struct merge_plan *plan);

/* 1: it exists and was made of these; 0: missing; -EEXIST: made of others. */
int merge_done(const struct merge_plan *plan);
