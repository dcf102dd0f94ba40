/*
 * Disk space of an image tree, as the filesystem counts it. The process that unpacked the tree
 * reports a size too, but a hostile archive may control that process; block counts cannot be
 * forged.
 */
#pragma once

#include <stdint.h>

/*
 * Bytes in the blocks of all files below dir; a file with several links counts once. Unreadable
 * directories are not counted: a rootless daemon does not see all of an image. 0 or -errno; -ELOOP:
 * deeper than any image. least: bytes that each entry counts at least.
 */
int image_disk(int dir, uint64_t least, uint64_t *ret);
