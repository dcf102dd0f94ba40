#include "spawn/disk/overlays.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/fs/fs_room.h"
#include "spawn/disk/rootfs.h"
#include "spawn/disk/tree.h"
#include "spawn/make/mounts.h"

/*
 * Error number of lower_new() for a filesystem without support for id maps; no system call here
 * returns this number.
 */
enum {
    NO_IDMAP = EMEDIUMTYPE,
    LOWERS_MAX = LAYERS_MAX + IMAGE_BELOW_MAX + 2,
    NAME_SIZE = 24,
    ATTRIBUTES_MAX = 65536
};

/* ---- mounts in the workshop ---- */

int bench_put(const struct rootfs_maker *maker, int mount, const char *name) {
    if (!maker->by_name)
        return 0;
    if (mkdirat(maker->workshop, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    return mount_attach(mount, maker->workshop, name);
}

void bench_clear(const struct rootfs_maker *maker, const char *name) {
    char path[64];
    if (!maker->by_name)
        return;
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", maker->workshop, name);
    umount2(path, MNT_DETACH);
    unlinkat(maker->workshop, name, AT_REMOVEDIR);
}

/* ---- lower directories ---- */

int lower_new(const struct rootfs_maker *maker, int dir, int userns) {
    int mount DEFER_CLOSE = mount_clone(dir, "");
    if (mount < 0 || maker->rootless || userns < 0)
        return mount < 0 ? mount : TAKE_FD(mount);
    int r = mount_idmap(mount, userns);
    /* EINVAL means that the filesystem does not support id maps. */
    return r == -EINVAL ? -NO_IDMAP : r < 0 ? r : TAKE_FD(mount);
}

int lower_failed(struct err *err, int made, const char *what, const char *remedy) {
    if (made != -NO_IDMAP)
        return err_num(err, made, "%s", what);
    err_set(err, ERR_UNSUPPORTED,
            "%s: this kernel cannot map user ids on the filesystem that holds it", what);
    return err_remedy(err, "%s", remedy);
}

/* Attaches the detached lower directories, for old kernels; loose_clear() detaches them. */
static int loose_put(const struct rootfs_maker *maker, const struct lower_list *l) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < l->loose_count; i++) {
        char name[NAME_SIZE];
        snprintf(name, sizeof(name), "lower%zu", i);
        r = bench_put(maker, l->fds[l->loose + i], name);
    }
    return r;
}

static void loose_clear(const struct rootfs_maker *maker, const struct lower_list *l) {
    for (size_t i = 0; i < l->loose_count; i++) {
        char name[NAME_SIZE];
        snprintf(name, sizeof(name), "lower%zu", i);
        bench_clear(maker, name);
    }
}

int overlay_on(struct rootfs_maker *maker, uint32_t owner, const struct lower_list *lowers,
               const struct upper_place *place, bool whole) {
    bool writable = place->fs >= 0;
    int upper DEFER_CLOSE = writable ? dir_open_path(place->fs, place->upper) : -1;
    int work DEFER_CLOSE = writable ? dir_open_path(place->fs, place->work) : -1;
    if (writable && (upper < 0 || work < 0))
        return upper < 0 ? upper : work;
    const struct overlay_plan plan = {
        .lowers = lowers->fds,
        .lower_count = lowers->count,
        .upper = upper,
        .work = work,
        .owner = owner,
        .userxattr = maker->rootless,
        .whole = whole,
        .set_id = place->set_id,
    };
    int made = loose_put(maker, lowers);
    if (made == 0)
        made = overlay_new(&plan, maker->by_name);
    loose_clear(maker, lowers);
    return made;
}

void left_add(struct left *l, int fd) {
    if (fd >= 0 && l->count < LEFT_MAX)
        l->fds[l->count++] = fd;
    else if (fd >= 0)
        close(fd);
}

/* ---- stack of layers ---- */

/* Lower directories of one overlay: layers on disks, then mounts of the image. */
struct lowers {
    int fds[LOWERS_MAX];
    size_t count, dirs, loose, loose_count;
    struct left *left;
};

static void lowers_close(struct lowers *l) {
    while (l->count > l->dirs)
        left_add(l->left, l->fds[--l->count]);
    while (l->count)
        close(l->fds[--l->count]);
}

static int lowers_add(struct lowers *l, int fd) {
    if (fd < 0)
        return fd;
    l->fds[l->count++] = fd;
    return 0;
}

static void layer_part(char name[NAME_SIZE], uint32_t number, char part) {
    snprintf(name, NAME_SIZE, "%" PRIu32 "/%c", number, part);
}

/* Adds a layer of the image, mounted with the id map of the box. */
static int lowers_add_loose(const struct rootfs_maker *maker, struct lowers *l, int dir,
                            int userns) {
    int r = lowers_add(l, lower_new(maker, dir, userns));
    l->loose_count += r == 0;
    return r;
}

/* Collects the lower directories of one overlay: of the root ('u'), or of /usr ('U'). */
static int overlays_gather(struct rootfs_maker *maker, const struct stack *s, char part,
                           struct lowers *ret) {
    const struct image *image = s->image;
    bool root = part == 'u';
    int r = 0, over = root ? -1 : image->usr_dirs;
    for (size_t i = 0; r == 0 && i < s->count; i++) {
        char name[NAME_SIZE];
        if (!root && s->layers[i].usr_is_bare)
            continue;
        layer_part(name, s->layers[i].number, part);
        r = lowers_add(ret, dir_open_path(s->disks[s->layers[i].disk], name));
    }
    ret->dirs = ret->count;
    if (r == 0 && !root && image->usr_over >= 0) {
        ret->loose = ret->count;
        r = lowers_add_loose(maker, ret, image->usr_over, s->userns);
        if (r == 0 && over >= 0)
            r = lowers_add_loose(maker, ret, over, s->userns);
        return r < 0 ? r : lowers_add_loose(maker, ret, image->usr, s->userns);
    }
    /*
     * Clone the mount: the box's mount table shows the path of a layer, which is "/" for a clone.
     */
    if (r == 0 && over >= 0)
        r = lowers_add(ret,
                       maker->by_name ? fcntl(over, F_DUPFD_CLOEXEC, 3) : mount_clone(over, ""));
    ret->loose = ret->count;
    for (size_t i = 0; r == 0 && root && i < image->over_count; i++)
        r = lowers_add_loose(maker, ret, image->over[i], s->userns);
    if (r == 0)
        r = lowers_add_loose(maker, ret, root ? image->skeleton : image->usr, s->userns);
    /* An overlay without an upper (writable layer) requires two lower directories. */
    return r < 0 || s->upper || ret->count > 1
               ? r
               : lowers_add(ret, dir_open_path(maker->workshop, "empty"));
}

static int mount_part(struct rootfs_maker *maker, const struct stack *s, const char *parts) {
    struct lowers lowers DEFER(lowers_close) = {.left = &maker->left};
    char upper[NAME_SIZE], work[NAME_SIZE];
    int r = overlays_gather(maker, s, parts[0], &lowers);
    if (r < 0)
        return r;
    layer_part(upper, s->upper, parts[0]);
    layer_part(work, s->upper, parts[1]);
    const struct upper_place place = {s->upper ? s->disks[0] : -1, upper, work, s->upper != 0};
    const struct lower_list list = {lowers.fds, lowers.count, lowers.loose, lowers.loose_count};
    return overlay_on(maker, s->owner, &list, &place, false);
}

static int image_missing(const struct rootfs_maker *maker, struct err *err) {
    const struct fs_space space = fs_space(maker->store);
    char free[AMOUNT_SIZE], total[AMOUNT_SIZE];
    amount_size(space.free_bytes, free);
    amount_size(space.total_bytes, total);
    err_set(err, ERR_LIMIT,
            "the disk that holds CARREL_HOME has no room for the host's image: of its %s "
            "only %s are free",
            total, free);
    return err_remedy(
        err, "free space on that disk, or set CARREL_HOME to a directory on a larger disk");
}

int stack_mount(struct rootfs_maker *maker, const struct stack *s, int *ret_root, int *ret_usr,
                struct err *err) {
    if (s->image->skeleton < 0)
        return image_missing(maker, err);
    int root DEFER_CLOSE = mount_part(maker, s, "uw");
    if (root < 0)
        return lower_failed(err, root, "cannot mount the root overlay of a machine",
                            "set CARREL_HOME to a directory on ext4, xfs or btrfs");
    bool has_usr = s->image->usr >= 0 && !s->keeps_usr;
    int usr DEFER_CLOSE = has_usr ? mount_part(maker, s, "UW") : -1;
    if (has_usr && usr < 0)
        return lower_failed(err, usr, "cannot mount the /usr overlay of a machine",
                            "put /usr on ext4, xfs or btrfs");
    *ret_root = TAKE_FD(root);
    *ret_usr = TAKE_FD(usr);
    return 0;
}

/* ---- uppers (writable layers) ---- */

int layer_make(int disk, uint32_t number, uint32_t owner) {
    static const char parts[] = "uwUW";
    char name[NAME_SIZE];
    snprintf(name, sizeof(name), "%" PRIu32, number);
    int r = tree_dir(disk, name, 0755, owner, owner);
    for (size_t i = 0; r == 0 && i < sizeof(parts) - 1; i++) {
        layer_part(name, number, parts[i]);
        r = tree_dir(disk, name, 0755, owner, owner);
    }
    return r;
}

static bool is_overlays_own(const char *name) {
    return strncmp(name, "trusted.", 8) == 0 || strncmp(name, "user.overlay.", 13) == 0;
}

static int copy_attributes(int from, int to) {
    char *names DEFER_FREE = malloc(ATTRIBUTES_MAX), *value DEFER_FREE = malloc(ATTRIBUTES_MAX);
    ssize_t n = names && value ? flistxattr(from, names, ATTRIBUTES_MAX) : -1;
    if (n < 0)
        return !names || !value ? -ENOMEM : errno == EOPNOTSUPP ? 0 : -errno;
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        ssize_t size = is_overlays_own(name) ? -1 : fgetxattr(from, name, value, ATTRIBUTES_MAX);
        if (size >= 0 && fsetxattr(to, name, value, (size_t)size, 0) < 0)
            return -errno;
    }
    return 0;
}

/*
 * Copies owner, mode and extended attributes of a layer's top directory to the upper: the root of
 * an overlay shows those of the topmost layer.
 */
static int dress(int from_disk, const char *from, int to_disk, const char *to) {
    int old DEFER_CLOSE = dir_open(from_disk, from);
    int new DEFER_CLOSE = dir_open(to_disk, to);
    struct stat st;
    if (old < 0 || new < 0 || fstat(old, &st) < 0 || fchown(new, st.st_uid, st.st_gid) < 0 ||
        fchmod(new, st.st_mode & 07777) < 0)
        return -errno;
    int r = copy_attributes(old, new);
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    return r < 0 ? r : futimens(new, times) < 0 ? -errno : 0;
}

int layer_twin(int disk, uint32_t from, uint32_t to, char part, uint32_t owner) {
    char old[NAME_SIZE], new[NAME_SIZE];
    layer_part(old, from, part);
    layer_part(new, to, part);
    int r = tree_dir(disk, new, 0755, owner, owner);
    return r < 0 ? r : dress(disk, old, disk, new);
}

static int new_upper(const struct stack *s) {
    char name[NAME_SIZE], from[NAME_SIZE];
    snprintf(name, sizeof(name), "%" PRIu32, s->upper);
    int r = tree_remove(s->disks[0], name);
    if (r == 0)
        r = layer_make(s->disks[0], s->upper, s->owner);
    for (int i = 0; r == 0 && s->count && i < 2; i++) {
        layer_part(name, s->upper, "uU"[i]);
        layer_part(from, s->layers[0].number, "uU"[i]);
        r = dress(s->disks[s->layers[0].disk], from, s->disks[0], name);
    }
    return r;
}

int stack_new_upper(const struct stack *s, struct err *err) {
    act_as(s->owner);
    int r = new_upper(s);
    act_as(0);
    return r < 0 ? err_num(err, r, "cannot create the writable layer %" PRIu32, s->upper) : 0;
}

static int has_entries(int disk, const char *name) {
    DIR *d DEFER(dir_close) = dir_list(disk, name);
    if (!d)
        return -errno;
    int entries = 0;
    while (entries < 3 && readdir(d))
        entries++;
    return entries > 2; /* more than "." and ".." */
}

static int part_is_empty(int disk, uint32_t number, char part) {
    char name[NAME_SIZE];
    layer_part(name, number, part);
    int found = has_entries(disk, name);
    return found < 0 ? found : !found;
}

int layer_usr_is_empty(int disk, uint32_t number) {
    return part_is_empty(disk, number, 'U');
}

int layer_is_empty(int disk, uint32_t number) {
    int empty = part_is_empty(disk, number, 'u');
    return empty == 1 ? layer_usr_is_empty(disk, number) : empty;
}
