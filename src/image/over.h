/*
 * Finds what a layer must contain: the entries of a machine's files that differ from the image
 * below. Only directories that the machine's layers contain are listed, so the cost depends on what
 * changed.
 *
 * The layers are overlayfs uppers, written by a box. They only say where to look: names, and marks
 * of directories that replace or move others. All attributes and contents come from the merged
 * files, as the box saw them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/image_below.h"
#include "base/layers.h"

enum { OVER_UPPERS_MAX = LAYERS_MAX + IMAGE_BELOW_MAX };

/* One directory: its counterparts in the image below and in the layers of the machine. */
struct over {
    int base;                    /* in the image below; -1: the image does not have it */
    bool whole;                  /* every entry belongs to the layer */
    int uppers[OVER_UPPERS_MAX]; /* in the layers, topmost first */
    size_t count;
    const char *marks; /* prefix of overlayfs attributes: "trusted.overlay." or "user.overlay." */
};

void over_done(struct over *o);

/* Finds the counterparts of the subdirectory `name`. 0 or -errno. */
int over_enter(const struct over *o, const char *name, struct over *ret);

/* Calls `add` for each name to look at; a name may come several times. 0 or -errno. */
int over_list(const struct over *o, int merged, int (*add)(void *arg, const char *name), void *arg);

/* 1 if the image below has an entry of this name, 0 if not, or -errno. */
int over_hides(const struct over *o, const char *name);
