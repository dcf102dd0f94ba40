/*
 * Free space of a filesystem.
 *
 * Blocks reserved for root or for metadata do not count as free: a machine cannot use them.
 */
#pragma once

#include <stdint.h>

struct fs_space {
    uint64_t free_bytes;
    uint64_t unused_bytes; /* including reserved blocks */
    uint64_t total_bytes;  /* 0: unknown */
};

/* The space of the filesystem that contains fd. If it is unknown, free_bytes is UINT64_MAX. */
struct fs_space fs_space(int fd);
uint64_t fs_room(int fd);

/* The used part of the filesystem: 0 to 100, rounded down; 0 if the size is unknown. */
unsigned fs_used_percent(const struct fs_space *s);
