#include "spawn/disk/wipe.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <unistd.h>

#include "base/banned.h"
#include "base/defer.h"
#include "spawn/disk/btrfs.h"

static void close_dir(DIR **d) {
    if (*d)
        closedir(*d);
}

static DIR *open_listing(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? NULL : fdopendir(fd);
}

static bool is_dots(const char *name) {
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

/* Gone, or out of its directory. */
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
    DIR *d DEFER(close_dir) = open_listing(trash, name);
    bool progress = false;
    for (struct dirent *e; d && (e = readdir(d));)
        if (!is_dots(e->d_name))
            progress |= remove_entry(trash, dirfd(d), e->d_name);
    return progress;
}

/* True: there may be more. */
static bool pass(int disk, bool *destroyed) {
    DIR *d DEFER(close_dir) = open_listing(disk, "trash");
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
