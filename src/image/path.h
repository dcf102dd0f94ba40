/*
 * Names of entries of an archive, which are hostile: pure, no look at any disk.
 *
 * What leaves the tree by its spelling is refused, not repaired: an archive that tries is not one
 * that anybody wants half of.
 */
#pragma once

#include "base/err.h"

enum {
    IMAGE_PATH_SIZE = 4096, /* with the NUL, from the root of the tree */
    IMAGE_PART_MAX = 255,
    IMAGE_DEPTH_MAX = 128,
};

/*
 * "./usr//bin/" becomes "usr/bin", the root itself "". Refused: absolute names, "..", empty ones,
 * parts and paths that are too long, too many directories.
 */
int image_path(const char *raw, char ret[IMAGE_PATH_SIZE], struct err *err);

/* The name within its directory, and where that begins in path. */
const char *image_path_last(const char *path);
