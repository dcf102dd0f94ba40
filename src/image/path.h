/*
 * Checks entry names of an archive, which are hostile. Pure: it does not touch the disk.
 *
 * A name that leaves the tree is refused, not repaired: the whole archive is then untrustworthy.
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
