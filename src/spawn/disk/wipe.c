#include "spawn/disk/wipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "spawn/disk/btrfs.h"

enum { TRASH_TRIES = 1000 };

/* wipe_trash() deletes an empty trash directory, also between mkdirat() and renameat(). */
int trash_put(int disk, const char *name, const char *as) {
    char to[NAME_MAX + 16];
    struct stat st;
    snprintf(to, sizeof(to), "trash/%s", as);
    for (int i = 0; i < TRASH_TRIES; i++) {
        if (mkdirat(disk, "trash", 0700) < 0 && errno != EEXIST)
            return -errno;
        if (renameat(disk, name, disk, to) == 0)
            return 0;
        if (errno != ENOENT || fstatat(disk, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            return -errno;
    }
    return -EBUSY;
}

/* True: the entry was deleted or moved to the trash. */
static bool remove_entry(int trash, int dir, const char *name) {
    static atomic_uint next;
    char fresh[24];
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return true;
    if (errno != EISDIR && errno != EPERM)
        return false;
    if (unlinkat(dir, name, AT_REMOVEDIR) == 0)
        return true;
    snprintf(fresh, sizeof(fresh), "x%u", atomic_fetch_add(&next, 1));
    return errno == ENOTEMPTY && renameat(dir, name, trash, fresh) == 0;
}

static bool empty_dir(int trash, const char *name) {
    DIR *d DEFER(dir_close) = dir_list(trash, name);
    bool progress = false;
    for (struct dirent *e; d && (e = readdir(d));)
        if (!is_dots(e->d_name))
            progress |= remove_entry(trash, dirfd(d), e->d_name);
    return progress;
}

/*
 * Deletes the entries of the trash directory in one pass. True: something was deleted, so call it
 * again.
 */
static bool pass(int disk, bool *destroyed) {
    DIR *d DEFER(dir_close) = dir_list(disk, "trash");
    bool progress = false;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        if (btrfs_destroy(dirfd(d), e->d_name) == 0) {
            *destroyed = progress = true;
            continue;
        }
        progress |= empty_dir(dirfd(d), e->d_name);
        progress |= unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR) == 0 ||
                    unlinkat(dirfd(d), e->d_name, 0) == 0;
    }
    return progress;
}

void wipe_trash(int disk) {
    bool destroyed = btrfs_destroy(disk, "trash") == 0;
    while (pass(disk, &destroyed))
        ;
    unlinkat(disk, "trash", AT_REMOVEDIR);
    if (destroyed)
        btrfs_sync(disk);
}
