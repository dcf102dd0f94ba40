/*
 * Compares two states of a machine's files, on the host and without the machine.
 *
 * Both states are mounted as read-only overlays. Only paths in layers that one of them lacks can
 * differ, so the work depends on the changes, not on the size of the tree. The trees are hostile:
 * links are not followed, only regular files are opened, and names, depth and time are limited. A
 * confined worker, carrel-compare, does it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/wire/changes.h"

enum {
    COMPARE_LAYERS_MAX = 1024,
    COMPARE_UNDER_SIZE = 4096,
    COMPARE_ENTRIES_MAX = 5000,   /* paths that are listed */
    COMPARE_LOOKED_MAX = 2000000, /* names that are looked at */
    COMPARE_PATHS_MAX = 1 << 20,  /* bytes of all paths and targets */
    COMPARE_TEXT_MAX = 1 << 20,   /* bytes of all differences of text */
    COMPARE_FILE_MAX = 1 << 20,   /* a longer file is not compared line by line */
    COMPARE_MS = 25000,
    COMPARE_OUT_MAX = 8 << 20,
};
#define COMPARE_READ_MAX (4ull << 30) /* bytes of files that have the same size */

enum compare_task { COMPARE_TREES = 1, COMPARE_SIZES };

/* What descriptors a worker gets with its order. */
enum compare_fd {
    FD_ROOT_BEFORE,
    FD_USR_BEFORE,
    FD_ROOT_AFTER,
    FD_USR_AFTER,
    FD_DISK,
    COMPARE_FDS, /* and after the last, the disk, rootless: the machine's user namespace */
};

/*
 * One message. TREES: the layers of the disk that only one of the two has, in any order. SIZES: the
 * layers to be measured, or none to be told which there are; the disk is then its only descriptor.
 */
struct compare_order {
    uint32_t task;
    uint32_t context; /* lines around a change */
    uint32_t text;    /* 0: no differences of texts */
    uint32_t usr;     /* /usr is an overlay of its own; otherwise its descriptors stand for none */
    uint32_t
        root_id; /* rootless, what the machine's root is on disk: the worker finds it; else 0 */
    uint32_t layer_count;
    uint32_t layers[COMPARE_LAYERS_MAX];
    char under[COMPARE_UNDER_SIZE]; /* only this path and what is below it; "": everything */
};

/* A well-formed order: counts within their limits, a path without "." and "..". */
bool compare_order_ok(const struct compare_order *o);

/* Records, the last one a CHANGES_END. What does not fit is counted, and the end says so. */
void compare_trees(const struct compare_order *o, const int fds[COMPARE_FDS], struct buf *out);
void compare_sizes(const struct compare_order *o, int disk, struct buf *out);

/* From here on this process can read below its descriptors, compute and answer; -errno. */
int compare_confine(int root);
