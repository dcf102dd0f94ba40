#include "spawn/disk/rootfs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/disks.h"
#include "base/limits.h"
#include "spawn/disk/disk.h"
#include "spawn/disk/tree.h"
#include "spawn/disk/volume.h"
#include "spawn/make/dev.h"
#include "spawn/make/mounts.h"
#include "spawn/weaken.h"

enum { SIDE_BYTES = 1 << 20 };

/*
 * Writes the name under which the filesystem of a root is attached in the workshop (a private
 * directory of the spawner). Old kernels accept only attached mounts as layers, and a mount that
 * was detached cannot be attached again. So the filesystem stays attached until the root is closed.
 */
static void bench_name(const struct rootfs *r, char name[24]) {
    snprintf(name, 24, "fs%u", r->slot);
}

static int bench_fs(const struct rootfs_maker *maker, struct rootfs *r) {
    char name[24];
    bench_name(r, name);
    int made = bench_put(maker, r->fs, name);
    if (made == 0 && maker->by_name)
        r->bench = maker->workshop;
    return made;
}

static void unbench_fs(struct rootfs *r) {
    char name[24];
    bench_name(r, name);
    if (r->bench < 0)
        return;
    bench_clear(&(struct rootfs_maker){.by_name = true, .workshop = r->bench}, name);
    r->bench = -1;
}

void rootfs_close(struct rootfs *r) {
    int *fds[] = {&r->lock, &r->userns, &r->fs,        &r->root, &r->usr,
                  &r->meta, &r->side,   &r->held_side, &r->dev,  &r->shm};
    unbench_fs(r);
    for (size_t i = 0; i < DISKS; i++)
        close_fd(&r->held[i]);
    for (size_t i = 0; i < sizeof(fds) / sizeof(*fds); i++)
        close_fd(fds[i]);
}

void rootfs_drop(struct rootfs_maker *maker, struct rootfs *r) {
    rootfs_close(r);
    uppers_bury(&maker->uppers, r->upper);
    slots_give(&maker->slots, r->slot);
}

/*
 * Returns a user id as stored on disk: unchanged, or shifted into the id range of the user of a
 * rootless spawner.
 */
static uid_t disk_id(const struct rootfs_maker *maker, uid_t id) {
    return maker->rootless ? id_shared(id, maker->slots.base) : id;
}

static int new_tmpfs(uint64_t bytes) {
    char size[24], inodes[24];
    snprintf(size, sizeof(size), "%" PRIu64, bytes);
    snprintf(inodes, sizeof(inodes), "%" PRIu64, LIMIT_INODES(bytes));
    const struct mount_option options[] = {{"size", size}, {"nr_inodes", inodes}, {"mode", "0755"}};
    return mount_new("tmpfs", options, 3, MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
}

/*
 * Creates a directory with a quota for the changes of a box, and a separate mount of it that can
 * have the box's id map.
 */
static int new_upper(struct rootfs_maker *maker, struct rootfs *r, uint64_t disk, struct err *err) {
    int dir DEFER_CLOSE = uppers_new(&maker->uppers, slots_first(&maker->slots, r->slot), disk,
                                     LIMIT_INODES(disk), &r->upper, err);
    if (dir < 0)
        return -1;
    int mount DEFER_CLOSE = mount_clone(dir, "");
    int made = mount < 0 ? mount : mount_harden(mount);
    return made < 0 ? err_num(err, made, "cannot mount the directory for the machine's changes")
                    : TAKE_FD(mount);
}

bool rootfs_fits_tmpfs(const struct rootfs_maker *maker, uint64_t disk, uint64_t mem) {
    return maker->rootless || disk <= mem / 2;
}

static int new_fs(struct rootfs_maker *maker, struct rootfs *r, uint64_t disk, uint64_t mem,
                  struct err *err) {
    bool in_memory = rootfs_fits_tmpfs(maker, disk, mem) && !maker->tmpfs_plain;
    if (weakened("disk limit"))
        disk = LIMIT_DISK;
    if (maker->tmpfs_bare)
        return new_upper(maker, r, disk, err);
    if (maker->made >= 0 && disk == maker->made_bytes)
        return TAKE_FD(maker->made);
    if (maker->btrfs && disk >= DISKS_BTRFS_MIN)
        return disk_new(maker->store, DISK_BTRFS, disk, LIMIT_INODES(disk), err);
    if (in_memory) {
        int fs = new_tmpfs(disk);
        return fs < 0 ? err_num(err, fs, "cannot mount a tmpfs for the machine's changes") : fs;
    }
    if (maker->uppers.limited)
        return new_upper(maker, r, disk, err);
    return disk_new(maker->store, DISK_EXT4, disk, LIMIT_INODES(disk), err);
}

static int lay_out_dev(int fs, uid_t root) {
    int r = tree_dir(fs, "d", 0755, root, root);
    int dir DEFER_CLOSE = r < 0 ? -1 : dir_open_path(fs, "d");
    return r < 0 ? r : dir < 0 ? -errno : dev_fill(dir, -1);
}

/*
 * Writes a new boot id for each start of a box. The host's id would show that two boxes share a
 * host.
 */
static int write_boot_id(int dir, uid_t owner) {
    uint8_t b[16];
    char text[40];
    if (getrandom(b, sizeof(b), 0) != sizeof(b))
        return -EIO;
    b[6] = (b[6] & 0x0f) | 0x40; /* version 4: a random UUID, like the kernel's own boot id */
    b[8] = (b[8] & 0x3f) | 0x80;
    snprintf(text, sizeof(text),
             "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x\n", b[0], b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14],
             b[15]);
    return tree_file(dir, "boot_id", text, 0444, owner, owner);
}

/*
 * Creates m, the directory of machine.json. The boot id is written now, because the set-up of the
 * box needs it; machine.json is written later.
 */
static int lay_out_meta(const struct rootfs_maker *maker, int fs, uid_t root) {
    const struct buf *inside = &maker->inside;
    int r = tree_dir(fs, "m", 0755, root, root);
    int dir DEFER_CLOSE = r < 0 ? -1 : dir_open_path(fs, "m");
    if (r < 0 || dir < 0)
        return r < 0 ? r : -errno;
    if (inside->len && (r = tree_dir(dir, "bin", 0755, root, root)) == 0)
        r = tree_file_bytes(dir, "bin/carrel", inside->data, inside->len, 0555, root, root);
    return r < 0 ? r : write_boot_id(dir, root);
}

/*
 * Creates the directories m (machine.json), s (shared memory), d (/dev) and 1 (the first upper). No
 * box may enter the top directory, so a box sees only the mounts of these directories.
 */
static int lay_out(const struct rootfs_maker *maker, int fs) {
    uid_t root = disk_id(maker, 0), nobody = maker->rootless ? maker->slots.base + 1000 : 0;
    int r = lay_out_meta(maker, fs, root);
    if (r == 0)
        r = tree_dir(fs, "s", 01777, root, root);
    if (r == 0 && maker->has_nodes)
        r = lay_out_dev(fs, root);
    if (r == 0)
        r = layer_make(fs, LAYER_FIRST, root);
    return r < 0 ? r : tree_dir(fs, ".", 0700, nobody, nobody);
}

/* Clones a mount of the directory `name` with an id map; userns -1: keep the id map of `fs`. */
static int make_view(int fs, const char *name, int userns, int (*finish)(int mount)) {
    int mount DEFER_CLOSE = mount_clone(fs, name);
    int made = mount < 0 ? mount : userns < 0 ? 0 : mount_idmap(mount, userns);
    if (made == 0 && finish)
        made = finish(mount);
    return made < 0 ? made : TAKE_FD(mount);
}

/*
 * Mounts m for /run/carrel and d for /dev. Only the mount of d allows device nodes to be opened: a
 * box could be given device nodes elsewhere on the filesystem.
 */
static int make_places(const struct rootfs_maker *maker, struct rootfs *r, int fs, int userns) {
    r->meta = make_view(fs, "m", userns, mount_read_only);
    if (r->meta >= 0 && maker->has_nodes)
        r->dev = make_view(fs, "d", userns, mount_devices);
    return r->meta < 0 ? r->meta : maker->has_nodes && r->dev < 0 ? r->dev : 0;
}

/*
 * Fills the tmpfs of make_side(). Before Linux 6.3 a tmpfs has no id map: then its files get ids of
 * the host.
 */
static int fill_side(const struct rootfs_maker *maker, struct rootfs *r, int fs) {
    int probe DEFER_CLOSE = maker->rootless ? -1 : mount_clone(fs, "");
    bool mapped = probe >= 0 && mount_idmap(probe, r->userns) == 0;
    int userns = mapped ? r->userns : -1;
    uid_t root =
        maker->rootless || mapped ? disk_id(maker, 0) : slots_first(&maker->slots, r->slot);
    int made = lay_out_meta(maker, fs, root);
    if (made == 0 && maker->has_nodes)
        made = lay_out_dev(fs, root);
    if (made == 0)
        made = r->side = make_view(fs, "m", userns, NULL);
    if (made >= 0)
        made = r->held_side = make_view(fs, "m", -1, mount_shelve);
    return made < 0 ? made : make_places(maker, r, fs, userns);
}

/*
 * Creates a small tmpfs for everything that is not an overlay. The mount table of a box shows the
 * path of a mount in its filesystem; for a directory of the store this would be a path of the host.
 */
static int make_side(const struct rootfs_maker *maker, struct rootfs *r) {
    int fs DEFER_CLOSE = new_tmpfs(SIDE_BYTES);
    int made = fs < 0 ? fs : bench_put(maker, fs, "side");
    if (made < 0)
        return made;
    made = fill_side(maker, r, fs);
    bench_clear(maker, "side");
    return made;
}

/* If changes are on a tmpfs, /dev/shm is a directory of it, which saves a filesystem per box. */
static int make_shm(struct rootfs *r) {
    struct statfs st;
    if (fstatfs(r->fs, &st) < 0)
        return -errno;
    if (st.f_type != TMPFS_MAGIC)
        return 0;
    r->shm = mount_clone(r->fs, "s");
    return r->shm < 0 ? r->shm : 0;
}

struct stack rootfs_stack(const struct rootfs_maker *maker, const struct rootfs *r) {
    struct stack stack = STACK_NONE;
    stack.image = maker->image;
    stack.owner = slots_first(&maker->slots, r->slot);
    stack.userns = r->userns;
    stack.disks[0] = r->fs;
    return stack;
}

/*
 * Creates a read-only mount of the disk that stays in the box, so that later mounts can be cloned
 * from it. Old kernels clone only attached mounts, and map ids only of detached ones.
 */
static int hold_disk(const struct rootfs_maker *maker, struct rootfs *r) {
    int made = bench_put(maker, r->fs, "raw");
    if (made < 0)
        return made;
    r->held[0] = mount_clone(r->fs, "");
    int loose DEFER_CLOSE = maker->by_name ? mount_clone(r->fs, "") : -1;
    bench_clear(maker, "raw");
    if (r->held[0] < 0 || (maker->by_name && loose < 0))
        return r->held[0] < 0 ? r->held[0] : loose;
    if (maker->by_name) {
        close(r->fs);
        r->fs = TAKE_FD(loose);
    }
    return mount_shelve(r->held[0]);
}

static int assemble(struct rootfs_maker *maker, struct rootfs *r, bool bare, struct err *err) {
    int made = bench_fs(maker, r);
    if (made < 0)
        return err_num(err, made, "cannot attach the filesystem of the machine's changes");
    struct stack stack = rootfs_stack(maker, r);
    stack.upper = r->layer = LAYER_FIRST;
    if (!bare && stack_mount(maker, &stack, &r->root, &r->usr, err) < 0)
        return -1;
    made = r->upper ? make_side(maker, r) : make_places(maker, r, r->fs, -1);
    if (made < 0)
        return err_num(err, made, "cannot mount /run/carrel and /dev");
    made = make_shm(r);
    return made < 0 ? err_num(err, made, "cannot mount /dev/shm") : 0;
}

static int rootfs_fill(struct rootfs_maker *maker, struct rootfs *r, const struct rootfs_size *size,
                       struct err *err) {
    uint32_t first = slots_first(&maker->slots, r->slot);
    struct id_map map = maker->rootless ? id_map_shared(first) : id_map_plain(first);
    r->userns = maker->rootless ? userns_new_in(maker->proc, maker->nest, &map)
                                : userns_new(maker->proc, first, &map);
    if (r->userns < 0)
        return err_num(err, r->userns, "cannot create the user namespace of a machine");
    r->fs = new_fs(maker, r, size->disk_bytes, size->mem_bytes, err);
    if (r->fs < 0)
        return -1;
    int made = lay_out(maker, r->fs);
    if (made < 0)
        return err_num(err, made, "cannot create the directories on the machine's disk");
    if ((made = hold_disk(maker, r)) < 0)
        return err_num(err, made, "cannot keep a read-only mount of the machine's disk");
    if (!maker->rootless && (made = mount_idmap(r->fs, r->userns)) < 0)
        return err_num(err, made, "cannot map user ids on the machine's disk");
    return assemble(maker, r, size->bare, err);
}

int rootfs_new(struct rootfs_maker *maker, const struct rootfs_size *size, struct rootfs *ret,
               struct err *err) {
    struct rootfs r = ROOTFS_NONE;
    if (slots_take(&maker->slots, &r.slot, &r.lock, err) < 0)
        return -1;
    if (rootfs_fill(maker, &r, size, err) < 0) {
        rootfs_drop(maker, &r);
        return err_wrap(err, "cannot create the root filesystem of a machine");
    }
    *ret = r;
    return 0;
}

int rootfs_meta(const struct rootfs_maker *maker, struct rootfs *r, const char *json,
                struct err *err) {
    uid_t first = slots_first(&maker->slots, r->slot);
    act_as(first);
    int dir DEFER_CLOSE = r->side >= 0 ? dir_open_path(r->side, ".") : dir_open_path(r->fs, "m");
    int made = dir < 0 ? dir : tree_file(dir, "machine.json", json, 0444, first, first);
    act_as(0);
    return made < 0 ? err_num(err, made, "cannot write machine.json on the machine's disk") : 0;
}

/*
 * Reopens a directory of the client (the daemon) by its path, because a mount of another mount
 * namespace cannot be cloned through a descriptor. The path must lead to the same directory: the
 * client's access was checked only for that one.
 */
static int reopen(int dir, struct stat *ret) {
    char link[32], path[PATH_MAX];
    struct stat here;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0 || fstat(dir, ret) < 0)
        return -errno;
    path[n] = '\0';
    int fd DEFER_CLOSE = dir_open(AT_FDCWD, path);
    if (fd < 0 || fstat(fd, &here) < 0)
        return -errno;
    if (here.st_dev != ret->st_dev || here.st_ino != ret->st_ino)
        return -ESTALE;
    return TAKE_FD(fd);
}

/*
 * Mounts a granted directory with an id map: in the box its owner appears as `user`. In a private
 * or writable grant other owners appear under no id. So nobody in the box has an owner's rights on
 * their files, and no file that the box writes to the host belongs to somebody else: root of the
 * box could otherwise leave a set-user-id program of the host's root. In other grants of the host's
 * root the other owners keep their ids, so that the box can read their files.
 */
static int granted_lower(struct rootfs_maker *maker, struct rootfs *r,
                         const struct plan_grant *grant, int client_dir, struct stat *st) {
    int dir DEFER_CLOSE = reopen(client_dir, st);
    if (dir < 0)
        return dir;
    if (maker->rootless)
        return lower_new(maker, dir, -1);
    uint32_t first = slots_first(&maker->slots, r->slot);
    struct id_map map = {id_list_swap(st->st_uid, first), id_list_swap(st->st_gid, first)};
    if (grant->private || grant->mode == PLAN_GRANT_RW)
        map = (struct id_map){id_list_one(st->st_uid, first), id_list_one(st->st_gid, first)};
    int userns DEFER_CLOSE = userns_new(maker->proc, 0, &map);
    return userns < 0 ? userns : lower_new(maker, dir, userns);
}

void rootfs_grant_name(char ret[16], unsigned number) {
    snprintf(ret, 16, "g%u", number);
}

static int make_cow(struct rootfs_maker *maker, struct rootfs *r, int lower, mode_t mode,
                    unsigned number, int *ret_upper) {
    char upper[16], work[16];
    rootfs_grant_name(upper, number);
    snprintf(work, sizeof(work), "h%u", number);
    /* The directory belongs to `user` of the box, through the box's id map. */
    uid_t first = slots_first(&maker->slots, r->slot);
    act_as(first);
    uid_t user = maker->rootless ? id_shared(1000, first) : first + 1000;
    int made = tree_dir(r->fs, upper, mode & 0777, user, user);
    if (made == 0)
        made = tree_dir(r->fs, work, 0755, first, first);
    act_as(0);
    if (made < 0)
        return made;
    made = overlay_on(maker, first, &(struct lower_list){&lower, 1, 0, 1},
                      &(struct upper_place){r->fs, upper, work}, true);
    if (made < 0)
        return made;
    *ret_upper = openat(r->fs, upper, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (*ret_upper < 0) {
        int failed = -errno;
        close(made);
        return failed;
    }
    return made;
}

/*
 * Read-only grants use an overlay too, because sockets and pipes of the host do not work through an
 * overlay.
 */
static int make_ro(struct rootfs_maker *maker, struct rootfs *r, int lower) {
    int empty DEFER_CLOSE = dir_open_path(maker->workshop, "empty");
    if (empty < 0)
        return empty;
    const int lowers[] = {lower, empty};
    int made =
        overlay_on(maker, slots_first(&maker->slots, r->slot),
                   &(struct lower_list){lowers, 2, 0, 1}, &(struct upper_place){.fs = -1}, false);
    int closed = made < 0 ? 0 : mount_read_only(made);
    if (closed == 0)
        return made;
    close(made);
    return closed;
}

int rootfs_grant(struct rootfs_maker *maker, struct rootfs *r, const struct plan_grant *grant,
                 unsigned number, int host_dir, int *ret_mount, int *ret_upper, struct err *err) {
    struct stat st;
    int lower DEFER_CLOSE = grant->volume ? volume_lower(maker, host_dir, r->userns, &st, err)
                                          : granted_lower(maker, r, grant, host_dir, &st);
    int made = lower;
    *ret_upper = -1;
    if (lower < 0 && grant->volume)
        return err_wrap(err, "cannot attach a volume at '%s'", grant->path);
    if (lower >= 0) {
        switch (grant->mode) {
        case PLAN_GRANT_RO:
            made = make_ro(maker, r, lower);
            break;
        case PLAN_GRANT_COW:
            made = make_cow(maker, r, lower, st.st_mode, number, ret_upper);
            break;
        case PLAN_GRANT_RW:
            made = mount_harden(lower);
            if (made == 0)
                made = TAKE_FD(lower);
            break;
        }
    }
    if (made < 0) {
        char what[PATH_MAX];
        snprintf(what, sizeof(what), "cannot grant directory '%s'", grant->path);
        return lower_failed(err, made, what,
                            "copy the directory to a disk with ext4, xfs or btrfs");
    }
    *ret_mount = made;
    return 0;
}
