#include "spawn/make/berth.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/make/mounts.h"
#include "spawn/make/netns.h"
#include "spawn/make/nursery.h"
#include "spawn/spawner.h"

#define PIDFS_MAGIC 0x50494446 /* from linux/magic.h */

static int make_netns(struct spawner *s, struct berth *b, struct err *err) {
    b->netns = reuse_take(&s->net);
    if (b->netns < 0)
        b->netns = netns_new(&s->net);
    return b->netns < 0 ? err_num(err, b->netns, "cannot create the network namespace of a machine")
                        : 0;
}

/*
 * Creates the root filesystem of a berth. The first one shows what this kernel supports: overlays
 * of detached layers (6.15) and a tmpfs with an id map (6.3). If one of them fails, the method for
 * older kernels is used from then on.
 */
static int make_root(struct spawner *s, struct berth *b, const struct rootfs_size *wanted,
                     struct err *err) {
    struct rootfs_size size = *wanted;
    size.bare &= s->probed;
    for (;;) {
        if (rootfs_new(&s->maker, &size, &b->root, err) == 0) {
            /*
             * Only a root on a tmpfs tests both features. Until then it is unknown whether the
             * kernel has them.
             */
            s->probed |= rootfs_fits_tmpfs(&s->maker, size.disk_bytes, size.mem_bytes);
            return 0;
        }
        /*
         * Only ERR_INVALID and ERR_UNSUPPORTED mean that the kernel lacks the feature, and only if
         * it never worked before.
         */
        if (s->probed || !err || (err->code != ERR_INVALID && err->code != ERR_UNSUPPORTED))
            return -1;
        if (!s->maker.by_name)
            s->maker.by_name = true;
        else if (!s->maker.tmpfs_plain && !s->rootless)
            s->maker.tmpfs_plain = true;
        else
            return -1;
    }
}

/*
 * The start time is field 22 of /proc/PID/stat. Field 2 is the program name, which may contain
 * spaces and brackets, so fields are counted from its end.
 */
uint64_t process_began(int proc, pid_t pid) {
    char path[32], text[1024];
    snprintf(path, sizeof(path), "%d/stat", (int)pid);
    if (read_file_at(proc, path, text, sizeof(text)) <= 0)
        return 0;
    const char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

uint64_t process_born(int proc, pid_t pid, int pidfd) {
    struct statfs fs;
    struct stat st;
    if (fstatfs(pidfd, &fs) == 0 && fs.f_type == PIDFS_MAGIC && fstat(pidfd, &st) == 0)
        return st.st_ino;
    return process_began(proc, pid);
}

static int start_waiting(struct spawner *s, struct berth *b, struct err *err) {
    int ends[2];
    /* Device nodes of a shared /dev are mounts themselves, so clone them all. */
    int dev = s->maker.has_nodes ? TAKE_FD(b->root.dev) : mount_clone_all(s->dev);
    if (dev < 0)
        return err_num(err, dev, "cannot clone the mount of /dev for a machine");
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
        close(dev);
        return err_sys(err, "cannot create the socket pair to the process of a machine");
    }
    int r = nursery_bear(s, b, dev, ends[1], err);
    b->born = r == 0 ? process_born(s->proc, b->pid, b->pidfd) : 0;
    close(dev);
    close(ends[1]);
    b->socket = ends[0];
    return r;
}

int berth_advance(struct spawner *s, struct berth *b, const struct rootfs_size *size,
                  struct err *err) {
    int r = 0;
    switch (b->stage) {
    case 0:
        r = make_netns(s, b, err);
        break;
    case BERTH_ROOT:
        r = make_root(s, b, size, err);
        break;
    case 2:
        r = cgroup_new(&s->cgroups, &b->cgroup, err);
        break;
    case 3:
        r = start_waiting(s, b, err);
        break;
    }
    if (r == 0)
        b->stage++;
    return r;
}

void berth_close(struct berth *b) {
    close_fd(&b->netns);
    close_fd(&b->socket);
    close_fd(&b->pidfd);
    rootfs_close(&b->root);
    cgroup_close(&b->cgroup);
}

void berth_drop(struct spawner *s, struct berth *b) {
    uint64_t number = b->cgroup.number;
    unsigned stage = b->stage;
    if (b->pid > 0) {
        kill(b->pid, SIGKILL);
        cgroup_thaw(&s->cgroups, number); /* a frozen process cannot die */
        while (waitpid(b->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    berth_close(b);
    if (stage > 1)
        rootfs_drop(&s->maker, &b->root);
    if (stage > 2)
        cgroup_remove(&s->cgroups, number);
    *b = BERTH_NONE;
}
