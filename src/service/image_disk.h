/*
 * What a tree takes on the disk, as the filesystem counts it. Whoever made the tree also says what
 * it takes, but an archive may have taken its reader over: blocks cannot be talked away.
 */
#pragma once

#include <stdint.h>

/*
 * Bytes in the blocks of all that lies below dir; a file with several names counts once. What we
 * may not look into is not counted: a daemon without root does not see all of an image. 0, or
 * -errno; -ELOOP: it is deeper than any image.
 */
int image_disk(int dir, uint64_t *ret);
