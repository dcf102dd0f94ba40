/*
 * Everything that a spawner sets up before its first box: directories, namespaces, templates, and
 * tests of the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/capability.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/disks.h"
#include "base/fs/fs_room.h"
#include "base/limits.h"
#include "base/log.h"
#include "spawn/disk/btrfs.h"
#include "spawn/disk/disk.h"
#include "spawn/disk/tree.h"
#include "spawn/make/dev.h"
#include "spawn/make/filter.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

/*
 * Files of /proc that describe the host rather than the box. Files that only their owner may read
 * need not be hidden: the owner is the host's root, which does not exist in a box.
 */
static const char *const hidden[] = {
    "acpi",       "asound",        "bus",         "cmdline",
    "config.gz",  "diskstats",     "dma",         "fs",
    "interrupts", "iomem",         "ioports",     "irq",
    "kallsyms",   "kcore",         "key-users",   "keys",
    "kmsg",       "latency_stats", "locks",       "modules",
    "mtrr",       "partitions",    "sched_debug", "scsi",
    "softirqs",   "sysrq-trigger", "timer_list",  "timer_stats",
};

static int open_place(const char *path, bool make, struct err *err) {
    if (make && mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", path);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "cannot open directory '%s'", path) : fd;
}

/* The spawner trusts the files in this directory, so no other user may be able to write there. */
static int check_private(int dir, const char *path, struct err *err) {
    struct stat st;
    if (fstat(dir, &st) < 0)
        return err_sys(err, "cannot read owner and mode of directory '%s'", path);
    if (st.st_uid == geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
        return 0;
    return err_set(err, ERR_DENIED,
                   "'%s' is not a private directory: it must belong to this user, and no other "
                   "user may write to it",
                   path);
}

/* Enters a private mount namespace and creates the workshop, a directory for temporary mounts that
 * no other process sees. */
static int enter_workshop(const char *run, struct err *err) {
    char path[4096];
    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", "none", MS_REC | MS_SLAVE, NULL) < 0)
        return err_sys(err, "cannot create the mount namespace of the spawner");
    snprintf(path, sizeof(path), "%s/workshop", run);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create directory '%s'", path);
    if (mount("none", path, "tmpfs", MS_NOSUID, "size=64m,mode=0700") < 0)
        return err_sys(err, "cannot mount a tmpfs on '%s'", path);
    int fd = open_place(path, false, err);
    if (fd < 0)
        return -1;
    static const char *const dirs[] = {"lower", "empty", "dev"};
    for (size_t i = 0; i < sizeof(dirs) / sizeof(*dirs); i++)
        if (mkdirat(fd, dirs[i], 0755) < 0)
            return err_sys(err, "cannot create directory '%s/%s'", path, dirs[i]);
    return fd;
}

/*
 * Creates the mount points where the spawner finds the disks of a box (held/N), and machine.json if
 * it is not on a disk (held/m). No box may enter the top directories of disks.
 */
static int make_held(void) {
    if (mkdir("held", 0111) < 0 || chmod("held", 0111) < 0 || mkdir("held/m", 0111) < 0)
        return -1;
    for (int i = 0; i < DISKS; i++) {
        char name[16];
        snprintf(name, sizeof(name), "held/%d", i);
        if (mkdir(name, 0111) < 0)
            return -1;
    }
    return 0;
}

/* Returns the first number after `word`, or 0. */
static unsigned long long stat_number(const char *text, const char *word) {
    const char *at = strstr(text, word);
    return at ? strtoull(at + strlen(word), NULL, 10) : 0;
}

/*
 * Writes the /proc/stat that boxes see: the same number of CPUs and the boot time, which clocks
 * show anyway. Activity of the host is hidden: interrupt counts reveal typing and the work of other
 * boxes.
 */
static int make_stat(int proc, const char *name) {
    enum { HOST_SIZE = 256 << 10, CPUS_MAX = 4096 };
    char *host DEFER_FREE = calloc(1, HOST_SIZE);
    struct buf text DEFER(buf_done) = BUF(HOST_SIZE);
    if (!host || read_file_at(proc, "stat", host, HOST_SIZE) < 0)
        return -EIO;
    bool fits = buf_addf(&text, "cpu  0 0 0 1 0 0 0 0 0 0\n");
    char line[24];
    for (unsigned i = 0; fits && i < CPUS_MAX; i++) {
        snprintf(line, sizeof(line), "\ncpu%u ", i);
        if (strstr(host, line))
            fits = buf_addf(&text, "cpu%u 0 0 0 1 0 0 0 0 0 0\n", i);
    }
    fits = fits && buf_addf(&text,
                            "intr 0\nctxt 0\nbtime %llu\nprocesses 1\nprocs_running 1\n"
                            "procs_blocked 0\nsoftirq 0 0 0 0 0 0 0 0 0 0 0\n",
                            stat_number(host, "\nbtime "));
    int fd DEFER_CLOSE = open(name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0444);
    if (fd < 0 || !fits)
        return fd < 0 ? -errno : -ENOMEM;
    int r = write_all(fd, text.data, text.len);
    return r < 0 ? r : fchmod(fd, 0444) < 0 ? -errno : 0;
}

/*
 * Runs in a child: creates the anchor, a mount namespace that shows only a small read-only
 * directory, in which the root of a box is mounted later. Its entries "file" and "dir" are mounted
 * over files of /proc. They belong to a user that no box has, so nobody in a box can open them.
 */
static int become_anchor(int proc, int workshop, uid_t owner) {
    if (fchdir(workshop) < 0 || unshare(CLONE_NEWNS) < 0 ||
        mount("none", "empty", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "size=512k,mode=0555") <
            0 ||
        chdir("empty") < 0)
        return -errno;
    int file = open("file", O_CREAT | O_WRONLY | O_CLOEXEC, 0400);
    if (file < 0 || mkdir("a", 0555) < 0 || mkdir("b", 0555) < 0 || mkdir("dir", 0500) < 0 ||
        chown("file", owner, owner) < 0 || chown("dir", owner, owner) < 0 || make_held() < 0)
        return -errno;
    close(file);
    int made = make_stat(proc, "stat");
    if (made < 0)
        return made;
    if (mount("none", ".", "none", MS_REMOUNT | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC,
              "size=512k") < 0 ||
        syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0)
        return -errno;
    return 0;
}

static int open_anchor(int proc, int workshop, uid_t owner, struct err *err) {
    int pipes[2];
    if (pipe2(pipes, O_CLOEXEC) < 0)
        return err_sys(err, "cannot create the empty mount namespace that machines start in");
    pid_t pid = fork();
    if (pid == 0) {
        int r = become_anchor(proc, workshop, owner);
        (void)!write(pipes[1], &r, sizeof(r));
        for (;;)
            pause();
    }
    close(pipes[1]);
    int r = -EIO;
    (void)!read(pipes[0], &r, sizeof(r));
    close(pipes[0]);
    char path[32];
    snprintf(path, sizeof(path), "%d/ns/mnt", (int)pid);
    int ns = r < 0 ? -1 : openat(proc, path, O_RDONLY | O_CLOEXEC);
    if (pid > 0) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    if (r < 0)
        errno = -r;
    return ns < 0 ? err_sys(err, "cannot create the empty mount namespace that machines start in")
                  : ns;
}

/* If the spawner may not create device nodes, all boxes share one /dev with the host's nodes. */
static int open_dev(int workshop, int host, struct err *err) {
    const struct mount_option options[] = {{"size", "64k"}, {"mode", "0755"}};
    int dev DEFER_CLOSE = mount_new("tmpfs", options, 2, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    int r = dev < 0 ? dev : mount_attach(dev, workshop, "dev");
    if (r == 0)
        r = dev_fill(dev, host);
    if (r == 0)
        r = mount_read_only(dev);
    if (r < 0) {
        return err_num(err, r, "cannot create the /dev that machines share");
    }
    return TAKE_FD(dev);
}

/* Copies a program of ours with execute but without read permission, so that no process in a box
 * may trace pid 1. */
static int open_program(int workshop, const char *name, const char *path, uid_t owner,
                        struct err *err) {
    struct tree_copy how = {.max_bytes = 64 << 20};
    char real[PATH_MAX];
    /*
     * Resolve links first: a link would be copied as a link, and chmod would change the program
     * itself.
     */
    if (faccessat(AT_FDCWD, path, R_OK, 0) < 0 || !realpath(path, real))
        return err_sys(err, "cannot open the program '%s'", path);
    if (tree_copy(AT_FDCWD, real, workshop, name, &how, err) < 0)
        return -1;
    /*
     * The owner of the program must not exist in the box, or root in the box would own the
     * file.
     */
    if ((owner && fchownat(workshop, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0) ||
        fchmodat(workshop, name, 0111, 0) < 0)
        return err_sys(err, "cannot set owner and mode of the copied program '%s'", path);
    int fd = openat(workshop, name, O_PATH | O_CLOEXEC);
    return fd < 0 ? err_sys(err, "cannot open the copied program '%s'", path) : fd;
}

/* Without the program there are no cell machines. */
static int open_worker(struct spawner *s, const char *path, uid_t owner, struct err *err) {
    s->worker = -1;
    if (!path || faccessat(AT_FDCWD, path, R_OK, 0) < 0)
        return 0;
    s->worker = open_program(s->maker.workshop, "cell", path, owner, err);
    return s->worker < 0 ? -1 : 0;
}

/* Reads `carrel` for machines, which is beside the guest. Without it machines have no `carrel`. */
static void open_inside(struct spawner *s, const char *guest) {
    enum { INSIDE_MAX = 256 << 10 };
    char path[PATH_MAX], *text DEFER_FREE = malloc(INSIDE_MAX);
    const char *slash = strrchr(guest, '/');
    snprintf(path, sizeof(path), "%.*scarrel-inside", slash ? (int)(slash + 1 - guest) : 0, guest);
    ssize_t n = text ? read_file_at(AT_FDCWD, path, text, INSIDE_MAX) : -ENOMEM;
    s->maker.inside = BUF(INSIDE_MAX);
    if (n < 0 || !buf_add(&s->maker.inside, text, (size_t)n))
        log_line(LOG_WARN, "spawn", "read the program '%s' for machines: %s", path,
                 strerror(n < 0 ? (int)-n : ENOMEM));
}

static void find_masks(struct spawner *s) {
    size_t n = 0;
    for (size_t i = 0; i < sizeof(hidden) / sizeof(*hidden) && n < MASK_MAX; i++) {
        struct stat st;
        if (fstatat(s->proc, hidden[i], &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISLNK(st.st_mode))
            continue;
        /*
         * Only the owner and the group may open this file of /proc, and no user of a box is one of
         * them. So it need not be hidden.
         */
        if (!(st.st_mode & 0007))
            continue;
        s->masks[n++] = (struct mask){hidden[i], S_ISDIR(st.st_mode)};
    }
    s->masks[n] = (struct mask){NULL, false};
}

/*
 * With CAP_SYS_RESOURCE, an overlay that the spawner mounts would ignore project quotas and use the
 * reserved blocks of ext4. The spawner only lowers limits, so it does not need the capability.
 */
static void drop_sys_resource(void) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0)
        return;
    data[0].effective &= ~(1u << CAP_SYS_RESOURCE);
    data[0].permitted &= ~(1u << CAP_SYS_RESOURCE);
    syscall(SYS_capset, &head, data);
}

static int open_places(struct spawner *s, const struct spawner_paths *paths, struct err *err) {
    if ((s->maker.workshop = enter_workshop(paths->run, err)) < 0)
        return -1;
    char boxes[4096], images[4096];
    snprintf(boxes, sizeof(boxes), "%s/boxes", paths->run);
    snprintf(images, sizeof(images), "%s/images", paths->home);
    /*
     * Opens the directories after enter_workshop(), because a descriptor belongs to the mount
     * namespace in which it was opened.
     */
    if ((s->run = open_place(paths->run, false, err)) < 0 ||
        check_private(s->run, paths->run, err) < 0 ||
        (s->boxes = open_place(boxes, true, err)) < 0 ||
        (s->maker.store = open_place(paths->home, true, err)) < 0 ||
        check_private(s->maker.store, paths->home, err) < 0 ||
        (s->store = open_place(images, true, err)) < 0 ||
        (s->host = open_place("/", false, err)) < 0 ||
        (s->proc = open_place("/proc", false, err)) < 0)
        return -1;
    return 0;
}

static int open_nest(struct spawner *s, struct err *err) {
    struct id_map map = id_map_nest(s->maker.slots.base);
    s->maker.nest = s->rootless ? userns_new(s->proc, 0, &map) : -1;
    return s->rootless && s->maker.nest < 0
               ? err_num(err, s->maker.nest,
                         "cannot create the user namespace that contains those of machines")
               : 0;
}

static uint32_t name_hash(const char *text) {
    uint32_t h = 2166136261u;
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 16777619u;
    return h;
}

/*
 * True if a tmpfs supports user.* attributes. A rootless overlay stores its marks in them, for
 * example that a directory was replaced.
 */
static bool tmpfs_has_user_attributes(void) {
    int fs DEFER_CLOSE = mount_new("tmpfs", NULL, 0, 0);
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fs);
    return fs >= 0 && setxattr(path, "user.carrel", "", 0, 0) == 0;
}

/*
 * Opens the directory of uppers (writable layers). Its name, like those of cgroups, contains a hash
 * of the path of the run directory.
 */
static void open_uppers(struct spawner *s, const char *run) {
    char name[16];
    snprintf(name, sizeof(name), "%08x", name_hash(run));
    if (!s->rootless) {
        uppers_open(&s->maker.uppers, s->maker.store, name);
        return;
    }
    s->maker.tmpfs_bare = !tmpfs_has_user_attributes();
    if (s->maker.tmpfs_bare)
        uppers_open_bare(&s->maker.uppers, s->maker.store, name);
}

/*
 * A store on btrfs uses btrfs disks by default. If btrfs does not work on this host, that is an
 * error only if `carrel store init` chose btrfs.
 */
static int open_disks(struct spawner *s, struct err *err) {
    struct disks d;
    if (disks_read(s->maker.store, &d, err) < 0)
        return -1;
    s->maker.usual = d.bytes && !s->rootless ? d.bytes : LIMIT_DISK;
    s->maker.made = -1;
    s->maker.btrfs =
        !s->rootless && (d.said ? d.btrfs : btrfs_is(s->maker.store) && disk_can(DISK_BTRFS));
    return 0;
}

static void open_cgroups(struct spawner *s, const char *run) {
    struct err err;
    char name[32];
    snprintf(name, sizeof(name), "carrel.%08x", name_hash(run));
    int root DEFER_CLOSE = openat(s->host, "sys/fs/cgroup", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (cgroups_open(&s->cgroups, root, s->proc, name, &err) < 0)
        snprintf(s->cgroup_note, sizeof(s->cgroup_note), "%s", err.text);
}

/*
 * The spawner starts without an image if the store is full, so that machines can be listed and
 * destroyed. Until there is space, stack_mount() refuses to create machines and the server retries
 * to build the image.
 */
static int open_image(struct spawner *s, struct err *err) {
    struct err why;
    uid_t base = s->rootless ? s->maker.slots.base : 0;
    s->image = IMAGE_NONE;
    s->image.base = base;
    if (image_open(s->store, s->host, base, &s->image, &why) == 0)
        return 0;
    if (why.code != ERR_LIMIT) {
        *err = why;
        return -1;
    }
    log_line(LOG_ERROR, "spawn", "%s", why.text);
    s->image_room = fs_room(s->store);
    return 0;
}

int spawner_open(struct spawner *s, const struct spawner_paths *paths, struct err *err) {
    drop_sys_resource();
    if (open_places(s, paths, err) < 0 || open_disks(s, err) < 0 || open_nest(s, err) < 0)
        return -1;
    open_inside(s, paths->guest);
    find_masks(s);
    open_cgroups(s, paths->run);
    open_uppers(s, paths->run);
    s->net = (struct netns_maker){.proc = s->proc, .reuse.bait.fd = -1};
    if ((s->net.home = openat(s->proc, "self/ns/net", O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(err, "cannot open the spawner's own network namespace");
    if ((s->own_uts = openat(s->proc, "self/ns/uts", O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(err, "cannot open the spawner's own UTS namespace");
    if ((s->own_mnt = openat(s->proc, "self/ns/mnt", O_RDONLY | O_CLOEXEC)) < 0)
        return err_sys(err, "cannot open the spawner's own mount namespace");
    s->maker.has_nodes = dev_can_make(s->maker.workshop);
    /*
     * A user that exists in no box: the host's root, or for a rootless spawner see id_map_shared().
     */
    uid_t unknown = s->rootless ? s->maker.slots.base + 1000 : 0;
    if ((s->anchor_ns = open_anchor(s->proc, s->maker.workshop, unknown, err)) < 0 ||
        (!s->maker.has_nodes && (s->dev = open_dev(s->maker.workshop, s->host, err)) < 0) ||
        (s->guest = open_program(s->maker.workshop, "guest", paths->guest, unknown, err)) < 0 ||
        open_worker(s, paths->worker, unknown, err) < 0 || filter_build(&s->filter, err) < 0)
        return -1;
    if (paths->archiver && paths->archiver[0] == '/')
        snprintf(s->archiver, sizeof(s->archiver), "%s", paths->archiver);
    s->maker.image = &s->image;
    s->maker.proc = s->proc;
    s->maker.rootless = s->rootless;
    return open_image(s, err);
}
