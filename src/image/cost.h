/*
 * Upper bound of the disk space that one file, directory or link of an image takes on any supported
 * filesystem: inode, blocks, link target and attributes. Pure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { COST_BLOCK = 4096, COST_INODE = 512 };

/* type: S_IFREG and so on; size: bytes of a file; target: length of a symbolic link's target. */
uint64_t cost_entry(mode_t type, uint64_t size, size_t target);

/* bytes: total of the names and values of all extended attributes of one entry. */
uint64_t cost_attributes(size_t bytes);

/*
 * True if a piece of a file contains only zeros. Such a piece is not written, so that a sparse file
 * of a machine, which took no space there, takes none in an image.
 */
bool cost_is_hole(const void *bytes, size_t n);
