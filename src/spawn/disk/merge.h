/*
 * Merges several layers into one with the same content, by hard links. Files of snapshots cannot be
 * linked; they are copied, and share data if the filesystem supports that. The sources stay
 * unchanged, so mounts of them are not affected.
 *
 * A directory of the result is looked up as the kernel does it: by path, layer by layer, following
 * redirects. Whiteouts (deletion marks) stay, because there are layers below. A box wrote the tree,
 * so depth is limited and no link is followed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/layers.h"

struct merge_plan {
    int disk; /* writable mount of the disk with the layers, with user ids as stored on disk */
    bool userxattr;            /* the extended attributes of overlayfs are named user.overlay.* */
    bool saved;                /* the result is in the store: sync it before it appears */
    bool home;                 /* only /home and /root of the layers */
    uint32_t into;             /* number of the resulting layer */
    uint32_t from[LAYERS_MAX]; /* numbers of the layers to merge, topmost first */
    size_t count;
};

/* Merges the layers. The result appears complete or not at all. 0 or -errno. */
int merge_layers(const struct merge_plan *plan);

/*
 * 1: the result exists and was merged from these layers; 0: missing; -EEXIST: it was merged from
 * other layers.
 */
int merge_done(const struct merge_plan *plan);
