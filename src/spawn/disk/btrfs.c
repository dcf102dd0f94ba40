#include "spawn/disk/btrfs.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"

enum { TOP_INODE = 256 }; /* inode number of the top directory of every btrfs subvolume */

bool btrfs_is(int fd) {
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC;
}

/*
 * Reopens the top directory of a mount for reading: `dir` is an O_PATH descriptor, on which ioctl()
 * does not work.
 */
static int open_top(int dir) {
    return dir_open(dir, ".");
}

int btrfs_snapshot(int disk, const char *name) {
    int top DEFER_CLOSE = open_top(disk);
    struct btrfs_ioctl_vol_args_v2 args = {.fd = top};
    if (strlen(name) >= sizeof(args.name))
        return -ENAMETOOLONG;
    snprintf(args.name, sizeof(args.name), "%s", name);
    return top < 0 || ioctl(top, BTRFS_IOC_SNAP_CREATE_V2, &args) < 0 ? -errno : 0;
}

int btrfs_destroy(int dir, const char *name) {
    struct btrfs_ioctl_vol_args args = {0};
    struct stat st;
    if (!btrfs_is(dir) || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        !S_ISDIR(st.st_mode) || st.st_ino != TOP_INODE)
        return -ENOTDIR;
    if (strlen(name) >= sizeof(args.name))
        return -ENAMETOOLONG;
    snprintf(args.name, sizeof(args.name), "%s", name);
    int top DEFER_CLOSE = open_top(dir);
    return top < 0 || ioctl(top, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : 0;
}

int btrfs_sync(int disk) {
    int top DEFER_CLOSE = open_top(disk);
    return top < 0 || ioctl(top, BTRFS_IOC_SYNC) < 0 ? -errno : 0;
}

uint64_t btrfs_generation(int disk) {
    int top DEFER_CLOSE = open_top(disk);
    struct btrfs_ioctl_get_subvol_info_args info = {0};
    return top < 0 || ioctl(top, BTRFS_IOC_GET_SUBVOL_INFO, &info) < 0 ? 0 : info.generation;
}
