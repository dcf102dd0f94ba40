#include "store/ballast.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/fs_room.h"

static const char name[] = "ballast";

enum { BALLAST_PARTS = 50, BALLAST_LEAST = 512 << 10, BALLAST_MOST = 4 << 20 };

/*
 * The ballast file takes a fiftieth of the disk, within limits. That is room for hundreds of
 * journal records, and too little to be missed.
 */
static uint64_t size_for(const struct fs_space *space) {
    uint64_t part = space->total_bytes / BALLAST_PARTS;
    if (part < BALLAST_LEAST)
        return BALLAST_LEAST;
    return part < BALLAST_MOST ? part : BALLAST_MOST;
}

/* Creates the ballast file. Returns 0 or an errno; a partly allocated file is deleted. */
static int ballast_make_file(const struct ballast *b) {
    int fd DEFER_CLOSE = openat(b->dir, name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    int e = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)b->bytes);
    if (e && fd >= 0)
        unlinkat(b->dir, name, 0);
    return e;
}

/*
 * Creates the ballast file only if twice its size is free. Otherwise it would be created and
 * deleted again and again while space is scarce.
 */
static int hold(struct ballast *b, uint64_t free_bytes) {
    if (!b->held && free_bytes < 2 * b->bytes)
        return ENOSPC;
    int e = b->held ? 0 : ballast_make_file(b);
    b->held |= e == 0;
    return e;
}

void ballast_init(struct ballast *b, int dir) {
    const struct fs_space space = fs_space(dir);
    *b = (struct ballast){.dir = dir, .bytes = size_for(&space), .unused = UINT64_MAX};
    /* A ballast file of an earlier daemon occupies its space already. */
    b->held = faccessat(dir, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0 && ballast_make_file(b) == 0;
    int e = hold(b, fs_room(dir));
    if (e && e != ENOSPC && e != EDQUOT)
        b->bytes = 0;
    ballast_look(b);
}

bool ballast_release(struct ballast *b) {
    const uint64_t unused = fs_space(b->dir).unused_bytes;
    if (!b->held || unlinkat(b->dir, name, 0) < 0)
        return false;
    b->unused = unused;
    b->held = false;
    b->full = true;
    return true;
}

uint64_t ballast_room(const struct ballast *b) {
    const struct fs_space space = fs_space(b->dir);
    if (b->held || space.unused_bytes <= b->unused)
        return space.free_bytes;
    uint64_t given = space.unused_bytes - b->unused;
    return given > space.free_bytes ? given : space.free_bytes;
}

void ballast_look(struct ballast *b) {
    if (!b->bytes)
        return;
    uint64_t room = fs_room(b->dir);
    b->full = hold(b, room) != 0 || room < b->bytes;
}
