/*
 * What an entry of an image takes on a disk, as every filesystem of a store has it at most: its
 * inode, its blocks, and those of its link's target and attributes. Pure.
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
