#include "image/cost.h"

#include <string.h>
#include <sys/stat.h>

/* Bytes of a link target or of attributes that fit into the inode itself. */
enum { COST_INLINE_TARGET = 59, COST_INLINE_ATTRIBUTES = 64 };

static uint64_t blocks(uint64_t bytes) {
    uint64_t rest = bytes % COST_BLOCK;
    return rest ? bytes - rest + COST_BLOCK : bytes;
}

uint64_t cost_entry(mode_t type, uint64_t size, size_t target) {
    if (size > UINT64_MAX / 2)
        return UINT64_MAX / 2;
    switch (type & S_IFMT) {
    case S_IFREG:
        return COST_INODE + blocks(size);
    case S_IFDIR:
        return COST_INODE + COST_BLOCK;
    case S_IFLNK:
        return COST_INODE + (target > COST_INLINE_TARGET ? blocks(target) : 0);
    default:
        return COST_INODE;
    }
}

uint64_t cost_attributes(size_t bytes) {
    return bytes > COST_INLINE_ATTRIBUTES ? blocks(bytes) : 0;
}

bool cost_is_hole(const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    return n > 0 && p[0] == 0 && memcmp(p, p + 1, n - 1) == 0;
}
