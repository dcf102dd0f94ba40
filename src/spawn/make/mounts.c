#include "spawn/make/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <linux/securebits.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/err.h"
#include "spawn/weaken.h"

enum { OPTION_SIZE = 256 };

static int option_set(int fs, const char *key, const char *value) {
    int r = value ? fsconfig(fs, FSCONFIG_SET_STRING, key, value, 0)
                  : fsconfig(fs, FSCONFIG_SET_FLAG, key, NULL, 0);
    return r < 0 ? -errno : 0;
}

static int mounts_finish(int fs, uint64_t attrs) {
    if (fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return -errno;
    int mount = fsmount(fs, FSMOUNT_CLOEXEC, (unsigned)attrs);
    return mount < 0 ? -errno : mount;
}

int mount_new(const char *type, const struct mount_option *options, size_t count, uint64_t attrs) {
    int fs DEFER_CLOSE = fsopen(type, FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    for (size_t i = 0; i < count; i++) {
        int r = option_set(fs, options[i].key, options[i].value);
        if (r < 0)
            return r;
    }
    return mounts_finish(fs, attrs);
}

int mount_clone_all(int dir) {
    int fd = open_tree(dir, "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
    return fd < 0 ? -errno : fd;
}

int mount_clone(int dir, const char *path) {
    int fd =
        open_tree(dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | (*path ? 0 : AT_EMPTY_PATH));
    return fd < 0 ? -errno : fd;
}

static int set_attr(int mount, struct mount_attr attr) {
    return mount_setattr(mount, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ? -errno : 0;
}

int mount_idmap(int mount, int userns) {
    return set_attr(
        mount, (struct mount_attr){.attr_set = MOUNT_ATTR_IDMAP, .userns_fd = (uint64_t)userns});
}

int mount_read_only(int mount) {
    return set_attr(mount, (struct mount_attr){.attr_set = MOUNT_ATTR_RDONLY});
}

int mount_shelve(int mount) {
    return set_attr(mount, (struct mount_attr){.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                           MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC});
}

int mount_writable(int mount) {
    return set_attr(mount, (struct mount_attr){.attr_clr = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC});
}

int mount_confine(int mount) {
    return set_attr(mount, (struct mount_attr){.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                                           MOUNT_ATTR_NOEXEC});
}

int mount_harden(int mount) {
    return set_attr(mount, (struct mount_attr){.attr_set = MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID});
}

int mount_devices(int mount) {
    return set_attr(mount, (struct mount_attr){.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                                           MOUNT_ATTR_NOEXEC,
                                               .attr_clr = MOUNT_ATTR_NODEV});
}

int mount_point(int dir, const char *path) {
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_SYMLINKS};
    int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

int mount_attach(int mount, int dir, const char *path) {
    int at DEFER_CLOSE = mount_point(dir, path);
    if (at < 0)
        return at;
    int r = move_mount(mount, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
    return r < 0 ? -errno : 0;
}

void act_as(unsigned id) {
    prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP);
    setfsgid(id);
    setfsuid(id);
}

static const struct mount_option overlay_options[] = {
    {"metacopy", "off"},
    {"index", "off"},
    {"xino", "auto"},
    {"volatile", NULL},
};

static int set_common(int fs, const struct overlay_plan *plan) {
    int r = plan->userxattr ? option_set(fs, "userxattr", NULL)
                            : option_set(fs, "redirect_dir", plan->whole ? "off" : "on");
    bool writable = plan->upper >= 0;
    for (size_t i = 0; r == 0 && i < sizeof(overlay_options) / sizeof(*overlay_options); i++)
        if (writable || strcmp(overlay_options[i].key, "volatile") != 0)
            r = option_set(fs, overlay_options[i].key, overlay_options[i].value);
    return r;
}

static int layers_by_fd(int fs, const struct overlay_plan *plan) {
    for (size_t i = 0; i < plan->lower_count; i++)
        if (fsconfig(fs, FSCONFIG_SET_FD, "lowerdir+", NULL, plan->lowers[i]) < 0)
            return -errno;
    if (plan->upper < 0)
        return 0;
    if (fsconfig(fs, FSCONFIG_SET_FD, "upperdir", NULL, plan->upper) < 0 ||
        fsconfig(fs, FSCONFIG_SET_FD, "workdir", NULL, plan->work) < 0)
        return -errno;
    return 0;
}

static int layers_by_name(int fs, const struct overlay_plan *plan) {
    char lowers[OPTION_SIZE], name[16];
    size_t n = 0;
    for (size_t i = 0; i < plan->lower_count && n < sizeof(lowers); i++)
        n +=
            (size_t)snprintf(lowers + n, sizeof(lowers) - n, "%s%d", i ? ":" : "", plan->lowers[i]);
    if (n >= sizeof(lowers))
        return -E2BIG;
    int r = option_set(fs, "lowerdir", lowers);
    if (r < 0 || plan->upper < 0)
        return r;
    snprintf(name, sizeof(name), "%d", plan->upper);
    if ((r = option_set(fs, "upperdir", name)) < 0)
        return r;
    snprintf(name, sizeof(name), "%d", plan->work);
    return option_set(fs, "workdir", name);
}

/*
 * Makes /proc/self/fd the current directory, or "/" again. Mount options have at most 255 bytes, so
 * layers are named by descriptor number, relative to /proc/self/fd. No other code of the spawner
 * uses relative paths.
 */
static bool stand_among_descriptors(bool there) {
    return chdir(there ? "/proc/self/fd" : "/") == 0;
}

static int overlay_make(const struct overlay_plan *plan, bool by_name) {
    int fs DEFER_CLOSE = fsopen("overlay", FSOPEN_CLOEXEC);
    if (fs < 0)
        return -errno;
    int r = by_name ? layers_by_name(fs, plan) : layers_by_fd(fs, plan);
    if (r == 0)
        r = set_common(fs, plan);
    bool set_id = plan->set_id || weakened("nosuid");
    return r < 0 ? r : mounts_finish(fs, MOUNT_ATTR_NODEV | (set_id ? 0 : MOUNT_ATTR_NOSUID));
}

/*
 * Why the kernel made an overlay read-only: it could not create its files in the work directory,
 * because the disk is full, or because the creator is outside the id map.
 */
static int read_only_why(int upper) {
    enum { WORK_FILES = 16, WORK_BLOCKS = 16 }; /* more than an overlay creates */
    struct statvfs v;
    bool is_full = fstatvfs(upper, &v) == 0 && ((v.f_files && v.f_favail < WORK_FILES) ||
                                                (v.f_blocks && v.f_bavail < WORK_BLOCKS));
    return is_full ? -ENOSPC : -EROFS;
}

/* An overlay keeps the credentials of its creator and uses them for whiteouts and copies. */
int overlay_new(const struct overlay_plan *plan, bool by_name) {
    if (by_name && !stand_among_descriptors(true))
        return -errno;
    act_as(plan->owner);
    int mount = overlay_make(plan, by_name);
    act_as(0);
    if (by_name)
        stand_among_descriptors(false);
    if (mount < 0 || plan->upper < 0)
        return mount;

    /* The kernel does not report it. */
    struct statvfs v;
    if (fstatvfs(mount, &v) < 0 || (v.f_flag & ST_RDONLY)) {
        close(mount);
        return read_only_why(plan->upper);
    }
    return mount;
}
