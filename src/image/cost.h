/*
 * Upper bound of the disk space of one entry on any supported filesystem: inode, blocks, link
 * target and attributes. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { COST_BLOCK = 4096, COST_INODE = 512 };

/* type: S_IFREG and so on; size: of a file's contents; target: bytes of a link's. */
uint64_t cost_entry(mode_t type, uint64_t size, size_t target);

/* All attributes of one entry: bytes of their names and values. */
uint64_t cost_attributes(size_t bytes);
