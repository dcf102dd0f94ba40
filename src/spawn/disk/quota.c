#include "spawn/disk/quota.h"

#include <errno.h>
#include <linux/fs.h>
#include <linux/quota.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * Calls quotactl_fd() (kernel 5.14), which names the filesystem by a descriptor, so that its block
 * device need not be found.
 */
static int quota_call(int fd, unsigned command, uint32_t project, struct if_dqblk *block) {
    return syscall(SYS_quotactl_fd, fd, QCMD(command, PRJQUOTA), project, block) < 0 ? -errno : 0;
}

int quota_assign(int dir, uint32_t project) {
    struct fsxattr attr;
    if (ioctl(dir, FS_IOC_FSGETXATTR, &attr) < 0)
        return -errno;
    attr.fsx_projid = project;
    attr.fsx_xflags |= FS_XFLAG_PROJINHERIT;
    return ioctl(dir, FS_IOC_FSSETXATTR, &attr) < 0 ? -errno : 0;
}

/* Q_SETQUOTA works on ext4 and xfs. */
int quota_limit(int fd, uint32_t project, uint64_t bytes, uint64_t inodes) {
    struct if_dqblk block = {
        .dqb_bhardlimit = bytes / QIF_DQBLKSIZE, .dqb_ihardlimit = inodes, .dqb_valid = QIF_LIMITS};
    return quota_call(fd, Q_SETQUOTA, project, &block);
}

int quota_unused(int fd, uint32_t project) {
    struct if_dqblk b = {0};
    int r = quota_call(fd, Q_GETQUOTA, project, &b);
    if (r == -ENOENT) /* xfs has no record of the project yet */
        return 1;
    if (r < 0)
        return r;
    return !(b.dqb_bhardlimit | b.dqb_bsoftlimit | b.dqb_curspace | b.dqb_ihardlimit |
             b.dqb_isoftlimit | b.dqb_curinodes);
}
