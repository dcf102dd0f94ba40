#include "spawn/disk/room.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "spawn/disk/tree.h"

enum { COST_SIZE = 64, NUMBER_DIGITS = 9 };

/*
 * Returns the size of a disk and a little more: a short link target or extended attribute may take
 * no block on the source disk, but one in the copy.
 */
static int room_of(int disk, struct room *ret) {
    struct statvfs fs;
    if (fstatvfs(disk, &fs) < 0)
        return -errno;
    ret->bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
    ret->bytes += ret->bytes / 16;
    ret->inodes = fs.f_files ? fs.f_files : fs.f_blocks;
    return 0;
}

/*
 * Returns the recorded cost (bytes and inodes) of a saved layer; 0 if the layer was saved before
 * costs were recorded.
 */
static struct room cost_read(int disk, const char *name) {
    char path[32], text[COST_SIZE], *end = text;
    struct room cost = {0};
    snprintf(path, sizeof(path), "%.*s/cost", NUMBER_DIGITS, name);
    if (read_file_at(disk, path, text, sizeof(text)) <= 0)
        return cost;
    cost.bytes = strtoull(text, &end, 10);
    cost.inodes = strtoull(end, NULL, 10);
    return cost;
}

static void cost_add(struct room *sum, const struct room *cost) {
    sum->bytes += cost->bytes;
    sum->inodes += cost->inodes;
}

static int room_used(int disk, struct room *ret) {
    DIR *d DEFER(dir_close) = dir_list(disk, ".");
    *ret = (struct room){0};
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        if (e->d_name[strspn(e->d_name, "0123456789")])
            continue; /* the entry is not a layer */
        struct room cost = cost_read(disk, e->d_name);
        cost_add(ret, &cost);
    }
    return 0;
}

static uint64_t left_of(uint64_t whole, uint64_t used) {
    return used < whole ? whole : used - whole < whole ? 2 * whole - used : 0;
}

int room_left(int from_disk, int to_disk, struct room *ret) {
    struct room whole = {0}, used = {0};
    int r = room_of(from_disk, &whole);
    if (r == 0)
        r = room_used(to_disk, &used);
    if (r < 0)
        return r;
    *ret = whole.bytes
               ? (struct room){left_of(whole.bytes, used.bytes), left_of(whole.inodes, used.inodes)}
               : (struct room){UINT64_MAX, UINT64_MAX}; /* the disk reports no limit */
    return 0;
}

int room_take(struct room *room, uint64_t inodes, uint64_t bytes) {
    if (!room)
        return 0;
    if (inodes > room->inodes || bytes > room->bytes)
        return -EDQUOT;
    room->inodes -= inodes;
    room->bytes -= bytes;
    return 0;
}

int cost_write(int disk, const char *name, const struct room *cost) {
    char path[32], text[COST_SIZE];
    snprintf(path, sizeof(path), "%s/cost", name);
    snprintf(text, sizeof(text), "%" PRIu64 " %" PRIu64 "\n", cost->bytes, cost->inodes);
    return tree_file(disk, path, text, 0600, 0, 0);
}

void cost_sum(int disk, const uint32_t *layers, size_t count, struct room *ret) {
    *ret = (struct room){0};
    for (size_t i = 0; i < count; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%" PRIu32, layers[i]);
        struct room cost = cost_read(disk, name);
        cost_add(ret, &cost);
    }
}

void cost_drop(int disk, const uint32_t *layers, size_t count) {
    for (size_t i = 0; i < count; i++) {
        char path[32];
        snprintf(path, sizeof(path), "%" PRIu32 "/cost", layers[i]);
        unlinkat(disk, path, 0);
    }
}
