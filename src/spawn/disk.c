#include "spawn/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "spawn/mounts.h"

static int make_filesystem(int image, uint64_t inodes, struct err *err) {
    char count[24], path[32];
    snprintf(count, sizeof(count), "%" PRIu64, inodes);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(image, F_SETFD, 0);
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        /* Forced, also if it takes the file for one that is mounted: it is new, and ours alone. */
        execl("/sbin/mke2fs", "mke2fs", "-q", "-F", "-F", "-t", "ext4", "-b", "4096", "-m", "0",
              "-N", count, "-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard",
              path, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0)
        return err_sys(err, "fork");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        err_set(err, ERR_UNSUPPORTED, "there is no /sbin/mke2fs");
        return err_remedy(err, "apt-get install e2fsprogs");
    }
    return err_set(err, ERR_INTERNAL, "mke2fs failed with %s %d",
                   WIFEXITED(status) ? "status" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int attach_loop(int image, char name[32], struct err *err) {
    int control DEFER_CLOSE = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return err_sys(err, "open /dev/loop-control");
    struct loop_config config = {.fd = (uint32_t)image, .block_size = 4096};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    /* Another process may take the free device first: ask again. */
    for (int attempt = 0; attempt < 64; attempt++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            return err_sys(err, "find a free loop device");
        snprintf(name, 32, "/dev/loop%d", n);
        int loop DEFER_CLOSE = open(name, O_RDWR | O_CLOEXEC);
        if (loop < 0)
            continue;
        if (ioctl(loop, LOOP_CONFIGURE, &config) == 0)
            return TAKE_FD(loop);
        if (errno == EINVAL)
            config.info.lo_flags &= ~(uint32_t)LO_FLAGS_DIRECT_IO;
    }
    return err_set(err, ERR_BUSY, "no free loop device");
}

int disk_new(int store, uint64_t bytes, uint64_t inodes, struct err *err) {
    int image DEFER_CLOSE = openat(store, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (image < 0 || ftruncate(image, (off_t)bytes) < 0)
        return err_sys(err, "make a disk image of %" PRIu64 " bytes", bytes);
    if (make_filesystem(image, inodes, err) < 0)
        return -1;
    char name[32];
    int loop DEFER_CLOSE = attach_loop(image, name, err);
    if (loop < 0)
        return -1;
    const struct mount_option options[] = {
        {"source", name}, {"noinit_itable", NULL}, {"discard", NULL}};
    int mount = mount_new("ext4", options, 3, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    if (mount < 0) {
        return err_num(err, mount, "mount disk image");
    }
    return mount;
}
