/*
 * Checks the names of an archive's entries, which may be hostile. Pure: it does not touch the disk.
 *
 * A name that leaves the tree is refused, not repaired: such an archive cannot be trusted.
 */
#pragma once

#include "base/err.h"

enum {
    IMAGE_PATH_MAX = 4095,  /* path from the root of the tree */
    IMAGE_PATH_SIZE = 4100, /* path of a whiteout of such a path, with its NUL */
    IMAGE_PART_MAX = 255,
    IMAGE_DEPTH_MAX = 128,
};

/* Start of the name of a whiteout: ".wh.NAME" in a layer hides NAME of the layers below. */
#define IMAGE_WHITEOUT ".wh."

/*
 * Makes `raw` canonical: "./usr//bin/" becomes "usr/bin", and the root becomes "". Refuses absolute
 * and empty names, "..", and names that are too long or too deep. The name and the
 * path of a whiteout may be as long as those that it can hide need.
 */
int image_path(const char *raw, char ret[IMAGE_PATH_SIZE], struct err *err);

/* Returns the last component of `path`, as a pointer into `path`. */
const char *image_path_last(const char *path);
