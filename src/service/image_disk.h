/*
 * Disk space of an image tree, as the filesystem counts it. The process that unpacked the tree
 * reports a size too, but a hostile archive may control that process; block counts cannot be
 * forged.
 */
#pragma once

#include <stdint.h>

/*
 * Bytes in the blocks of all that lies below dir; a file with several names counts once. What we
 * may not look into is not counted: a daemon without root does not see all of an image. 0, or
 * -errno; -ELOOP: it is deeper than any image.
 */
int image_disk(int dir, uint64_t *ret);
