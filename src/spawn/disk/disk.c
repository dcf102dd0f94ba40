#include "spawn/disk/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "spawn/disk/btrfs.h"
#include "spawn/make/mounts.h"

enum { OPTIONS = 5, ARGUMENTS = 20 };

/* A block group of ext4 with blocks of 4 KiB and one inode per block. */
enum { GROUP_INODES = 32768 };
#define GROUP_BYTES (GROUP_INODES * 4096ull)

/* The smallest journal that ext4 accepts, and the smallest disk that has one. */
#define JOURNAL_BYTES (4ull << 20)
#define JOURNAL_DISK_MIN (64ull << 20)

/* How to make and mount each kind of disk, and the package to install if the program is missing. */
struct kind {
    const char *type, *program, *package;
    const char *const *arguments; /* of the program, without the path of the file */
    /* mount options besides the source device; the last key is NULL */
    struct mount_option options[OPTIONS];
};

/*
 * The option -F makes mke2fs write the file even if mke2fs believes that the file is mounted. The
 * file is new, and nobody else uses it.
 */
#define EXT4_ARGUMENTS "mke2fs", "-q", "-F", "-F", "-t", "ext4", "-b", "4096", "-m", "0"

static const char *const bare_arguments[] = {
    EXT4_ARGUMENTS, "-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", NULL};

static const char *const ext4_arguments[] = {EXT4_ARGUMENTS,
                                             "-O",
                                             "has_journal,^resize_inode",
                                             "-J",
                                             "size=4", /* JOURNAL_BYTES */
                                             "-E",
                                             "lazy_itable_init=1,lazy_journal_init=1,nodiscard",
                                             NULL};

/*
 * --mixed stores data and metadata in the same block groups. Otherwise one of them could be full
 * while the other has space.
 */
static const char *const btrfs_arguments[] = {"mkfs.btrfs", "-q", "-f", "-K", "--mixed", NULL};

/*
 * The file of a disk has no name and is lost if the host crashes, so write barriers and the order
 * of data and metadata are worth nothing. Saved layers are copies in the store, and synced there.
 */
static const struct kind kinds[] = {
    /*
     * The journal is there for speed: without one, ext4 searches past all recently deleted inodes
     * to find a free inode. After 20,000 deletions each new file takes a millisecond.
     */
    [DISK_EXT4] = {"ext4",
                   "/sbin/mke2fs",
                   "e2fsprogs",
                   ext4_arguments,
                   {{"noinit_itable", NULL},
                    {"discard", NULL},
                    {"data", "writeback"},
                    {"nobarrier", NULL},
                    {NULL, NULL}}},
    /* The space of a deleted snapshot is free after the second commit, so commits are frequent. */
    [DISK_BTRFS] = {"btrfs",
                    "/sbin/mkfs.btrfs",
                    "btrfs-progs",
                    btrfs_arguments,
                    {{"nobarrier", NULL},
                     {"nodatasum", NULL},
                     {"discard", "sync"},
                     {"commit", "2"},
                     {NULL, NULL}}},
};

/* A disk of ext4 below JOURNAL_DISK_MIN, which has no journal. */
static const struct kind bare_ext4 = {
    "ext4",
    "/sbin/mke2fs",
    "e2fsprogs",
    bare_arguments,
    {{"noinit_itable", NULL}, {"discard", NULL}, {"nobarrier", NULL}, {NULL, NULL}}};

/*
 * A volume outlives the host's crash: it keeps write barriers and the order of data and metadata.
 * After an I/O error, for example of a full store, it is read-only rather than inconsistent.
 */
static const struct kind lasting_ext4 = {
    "ext4",
    "/sbin/mke2fs",
    "e2fsprogs",
    ext4_arguments,
    {{"noinit_itable", NULL}, {"discard", NULL}, {"errors", "remount-ro"}, {NULL, NULL}}};

bool disk_can(enum disk_kind kind) {
    return access(kinds[kind].program, X_OK) == 0;
}

/* Runs in the child process: executes mke2fs or mkfs.btrfs. inodes 0: no limit. */
static void exec_maker(const struct kind *k, const char *path, uint64_t inodes) {
    const char *argv[ARGUMENTS + 4] = {NULL};
    char count[24];
    size_t n = 0;
    for (; n < ARGUMENTS && k->arguments[n]; n++)
        argv[n] = k->arguments[n];
    snprintf(count, sizeof(count), "%" PRIu64, inodes);
    if (inodes) {
        argv[n++] = "-N";
        argv[n++] = count;
    }
    argv[n] = path;
    execv(k->program, (char *const *)argv);
}

static int make_filesystem(const struct kind *k, int image, uint64_t inodes, struct err *err) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", image);
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(image, F_SETFD, 0);
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDIN_FILENO);
        dup2(null, STDOUT_FILENO);
        dup2(null, STDERR_FILENO);
        exec_maker(k, path, inodes);
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    if (pid < 0)
        return err_sys(err, "cannot start the program that creates a filesystem");
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return 0;
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) {
        err_set(err, ERR_UNSUPPORTED,
                "program %s, which creates the disks of machines, is not installed", k->program);
        return err_remedy(err, "apt-get install %s", k->package);
    }
    return err_set(err, ERR_INTERNAL, "%s failed with %s %d", k->program,
                   WIFEXITED(status) ? "status" : "signal",
                   WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static int attach_loop(int image, char name[32], struct err *err) {
    int control DEFER_CLOSE = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
    if (control < 0)
        return err_sys(err, "cannot open /dev/loop-control");
    struct loop_config config = {.fd = (uint32_t)image, .block_size = 4096};
    config.info.lo_flags = LO_FLAGS_AUTOCLEAR | LO_FLAGS_DIRECT_IO;
    /* Another process may take the free loop device first: then ask for the next one. */
    for (int attempt = 0; attempt < 64; attempt++) {
        int n = ioctl(control, LOOP_CTL_GET_FREE);
        if (n < 0)
            return err_sys(err, "cannot find a free loop device");
        snprintf(name, 32, "/dev/loop%d", n);
        int loop DEFER_CLOSE = open(name, O_RDWR | O_CLOEXEC);
        if (loop < 0)
            continue;
        if (ioctl(loop, LOOP_CONFIGURE, &config) == 0)
            return TAKE_FD(loop);
        if (errno == EINVAL)
            config.info.lo_flags &= ~(uint32_t)LO_FLAGS_DIRECT_IO;
    }
    return err_set(err, ERR_BUSY, "all loop devices of the host are in use");
}

static int mount_image(const struct kind *k, const char *device, struct err *err) {
    struct mount_option options[OPTIONS] = {{"source", device}};
    size_t count = 1;
    for (; k->options[count - 1].key; count++)
        options[count] = k->options[count - 1];
    int mount = mount_new(k->type, options, count, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
    if (mount == -ENODEV) {
        err_set(err, ERR_UNSUPPORTED, "the kernel does not support the filesystem %s", k->type);
        return err_remedy(err, "modprobe %s", k->type);
    }
    return mount < 0 ? err_num(err, mount, "cannot mount a disk image") : mount;
}

/*
 * If the store is on btrfs, turns off copy-on-write of the file that holds a disk: the filesystem
 * inside the file may do its own copy-on-write.
 */
static void write_in_place(int image) {
    int flags = FS_NOCOW_FL;
    (void)ioctl(image, FS_IOC_SETFLAGS, &flags);
}

/*
 * Adds the journal to the size of the file, so that it takes nothing of the machine's limit. mke2fs
 * leaves out a short last group if the inodes fit in the others, so one inode more is requested
 * than fits there.
 */
static void add_journal(uint64_t *bytes, uint64_t *inodes) {
    *bytes += JOURNAL_BYTES;
    uint64_t fit = (*bytes - 1) / GROUP_BYTES * GROUP_INODES;
    if (*inodes <= fit)
        *inodes = fit + 1;
}

int disk_new(int store, enum disk_kind kind, uint64_t bytes, uint64_t inodes, struct err *err) {
    const struct kind *k = &kinds[kind];
    uint64_t file_bytes = bytes;
    if (kind == DISK_BTRFS)
        inodes = 0;
    else if (bytes < JOURNAL_DISK_MIN)
        k = &bare_ext4;
    else
        add_journal(&file_bytes, &inodes);
    int image DEFER_CLOSE = openat(store, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (image >= 0 && btrfs_is(image))
        write_in_place(image);
    if (image < 0 || ftruncate(image, (off_t)file_bytes) < 0) {
        char size[AMOUNT_SIZE];
        int r = -errno;
        amount_size(bytes, size);
        return err_num(err, r, "cannot create a disk image of %s", size);
    }
    if (make_filesystem(k, image, inodes, err) < 0)
        return -1;
    char name[32];
    int loop DEFER_CLOSE = attach_loop(image, name, err);
    return loop < 0 ? -1 : mount_image(k, name, err);
}

int disk_format(int image, uint64_t bytes, uint64_t inodes, struct err *err) {
    add_journal(&bytes, &inodes);
    if (btrfs_is(image))
        write_in_place(image);
    if (ftruncate(image, (off_t)bytes) < 0)
        return err_sys(err, "cannot set the size of a disk image");
    return make_filesystem(&lasting_ext4, image, inodes, err);
}

/* ---- loop devices in use ---- */

/* True if the loop device is bound to the file with this stat. Opening it keeps it bound. */
static bool is_loop_of(int loop, const struct stat *st) {
    struct loop_info64 info;
    return ioctl(loop, LOOP_GET_STATUS64, &info) == 0 && info.lo_inode == st->st_ino &&
           info.lo_device == (uint64_t)st->st_dev;
}

static int open_loop(const char *device, char name[32]) {
    int n = snprintf(name, 32, "/dev/%.20s", device);
    return n < 32 ? open(name, O_RDWR | O_CLOEXEC) : -1;
}

/*
 * Finds the loop device that is bound to the file. Returns its descriptor, -ENOENT if there is
 * none, or another -errno. The kernel's list is asked, because a device may come from a spawner
 * that died.
 */
static int find_loop(int image, char name[32]) {
    struct stat st;
    struct dirent *e;
    char bound[300];
    DIR *all DEFER(dir_close) = dir_list(AT_FDCWD, "/sys/block");
    if (!all || fstat(image, &st) < 0)
        return -errno;
    for (errno = 0; (e = readdir(all)); errno = 0) {
        snprintf(bound, sizeof(bound), "%s/loop/backing_file", e->d_name);
        if (strncmp(e->d_name, "loop", 4) != 0 || faccessat(dirfd(all), bound, F_OK, 0) < 0)
            continue;
        int loop DEFER_CLOSE = open_loop(e->d_name, name);
        if (loop < 0 && errno != ENXIO && errno != ENOENT)
            return -errno; /* it may be the one: a second device would be worse than a refusal */
        if (loop >= 0 && is_loop_of(loop, &st))
            return TAKE_FD(loop);
    }
    return errno ? -errno : -ENOENT;
}

int disk_mount(int image, struct err *err) {
    char name[32];
    int loop DEFER_CLOSE = find_loop(image, name);
    if (loop < 0 && loop != -ENOENT)
        return err_num(err, loop, "cannot list the loop devices of the host");
    if (loop < 0)
        loop = attach_loop(image, name, err);
    return loop < 0 ? -1 : mount_image(&lasting_ext4, name, err);
}

int disk_is_mounted(int image, struct err *err) {
    char name[32];
    int loop DEFER_CLOSE = find_loop(image, name);
    if (loop < 0 && loop != -ENOENT)
        return err_num(err, loop, "cannot list the loop devices of the host");
    return loop >= 0;
}
