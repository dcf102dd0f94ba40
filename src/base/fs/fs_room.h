/*
 * Free space of a filesystem.
 *
 * Blocks reserved for root or for metadata do not count as free: a machine cannot use them.
 */
#pragma once

#include <stdint.h>

struct fs_space {
    uint64_t free_bytes;
    uint64_t unused_bytes; /* with what is reserved */
    uint64_t total_bytes;  /* 0: unknown */
};

/* Of the filesystem that a descriptor lies on. One that cannot be asked has unlimited room. */
struct fs_space fs_space(int fd);
uint64_t fs_room(int fd);

/* 0 to 100, rounded down; 0 where the size is unknown. */
unsigned fs_used_percent(const struct fs_space *s);
