#include "base/fs/fs_room.h"

#include <sys/statvfs.h>

struct fs_space fs_space(int fd) {
    struct statvfs fs;
    if (fstatvfs(fd, &fs) < 0 || fs.f_blocks == 0)
        return (struct fs_space){.free_bytes = UINT64_MAX, .unused_bytes = UINT64_MAX};
    return (struct fs_space){.free_bytes = fs.f_bavail * fs.f_frsize,
                             .unused_bytes = fs.f_bfree * fs.f_frsize,
                             .total_bytes = fs.f_blocks * fs.f_frsize};
}

uint64_t fs_room(int fd) {
    return fs_space(fd).free_bytes;
}

unsigned fs_used_percent(const struct fs_space *s) {
    if (s->total_bytes < 100 || s->free_bytes >= s->total_bytes)
        return 0;
    return (unsigned)((s->total_bytes - s->free_bytes) / (s->total_bytes / 100));
}
