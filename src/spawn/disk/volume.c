#include "spawn/disk/volume.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/id.h"
#include "base/limits.h"
#include "spawn/disk/disk.h"
#include "spawn/disk/overlays.h"
#include "spawn/disk/rootfs.h"
#include "spawn/disk/tree.h"
#include "spawn/make/mounts.h"
#include "spawn/make/userns.h"
#include "spawn/spawner.h"

/* Directory of the files in the filesystem, beside its lost+found, which no machine needs. */
static const char files_name[] = "files", files_beside[] = "files.new";

static int volume_unsupported(struct err *err) {
    err_set(err, ERR_UNSUPPORTED, "volumes require a daemon that runs as root");
    return err_remedy(err, "use carrel new --dir, or run the daemon as root");
}

/* ---- VOLUME ---- */

/* Formats and syncs the file; its name is durable when the daemon has synced the directories. */
static int fill_volume(int dir, uint64_t bytes, struct err *err) {
    int image DEFER_CLOSE =
        openat(dir, "disk", O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (image < 0)
        return err_sys(err, "cannot create the file of a volume");
    if (disk_format(image, bytes, LIMIT_INODES(bytes), err) < 0)
        return -1;
    return fsync(image) < 0 || fsync(dir) < 0 ? err_sys(err, "cannot sync the file of a volume")
                                              : 0;
}

static int volume_make(const struct spawner *s, const char *id, uint64_t bytes, struct err *err) {
    char name[ID_SIZE + 8];
    if (bytes < LIMIT_VOLUME_MIN || bytes > LIMIT_VOLUME_MAX)
        return err_set(err, ERR_INVALID, "the size of volume '%s' is out of range", id);
    if (mkdirat(s->maker.store, "volumes", 0700) < 0 && errno != EEXIST)
        return err_sys(err, "cannot create the directory of volumes");
    int all DEFER_CLOSE = dir_open(s->maker.store, "volumes");
    if (all < 0)
        return err_num(err, all, "cannot open the directory of volumes");
    snprintf(name, sizeof(name), "new-%s", id);
    /* The daemon repeats a request that a spawner did not answer before it died. */
    int r = tree_remove(all, name);
    if (r < 0)
        return err_num(err, r, "cannot delete an unfinished volume");
    if (mkdirat(all, name, 0700) < 0)
        return err_sys(err, "cannot create the directory of a volume");
    int dir DEFER_CLOSE = dir_open(all, name);
    if (dir < 0)
        return err_num(err, dir, "cannot open the directory of a volume");
    if (fill_volume(dir, bytes, err) == 0)
        return 0;
    tree_remove(all, name);
    return -1;
}

static int open_image_of(const struct rootfs_maker *maker, const char *id, struct err *err) {
    char path[ID_SIZE + 16];
    snprintf(path, sizeof(path), "volumes/%s", id);
    int dir DEFER_CLOSE = dir_open_path(maker->store, path);
    int image = dir < 0 ? dir : openat(dir, "disk", O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (image < 0)
        return err_num(err, dir < 0 ? dir : -errno, "cannot open the file of volume '%s'", id);
    return image;
}

static int volume_free(const struct spawner *s, const char *id, struct err *err) {
    int image DEFER_CLOSE = open_image_of(&s->maker, id, err);
    int mounted = image < 0 ? -1 : disk_is_mounted(image, err);
    return mounted > 0 ? err_set(err, ERR_BUSY, "volume '%s' is still mounted", id) : mounted;
}

int volume_request(struct spawner *s, const struct plan_message *m, struct err *err) {
    char verb[8], id[ID_SIZE + 8] = "";
    uint64_t bytes = 0;
    int n = sscanf(m->text, "%7s %22s %" SCNu64, verb, id, &bytes);
    if (n < 2 || !id_valid(id, strlen(id), 'v'))
        return err_set(err, ERR_INVALID, "the daemon's request about a volume is malformed");
    if (s->rootless)
        return volume_unsupported(err);
    if (n == 3 && strcmp(verb, "make") == 0)
        return volume_make(s, id, bytes, err);
    if (n == 2 && strcmp(verb, "free") == 0)
        return volume_free(s, id, err);
    return err_set(err, ERR_INVALID, "the daemon's request about a volume is malformed");
}

/* ---- mounts for boxes ---- */

/*
 * Finds the id of the volume whose directory the daemon passed, and checks that it is that of this
 * store: no other file is ever mounted.
 */
static int volume_id(const struct rootfs_maker *maker, int dir, char ret[ID_SIZE]) {
    char link[40], path[PATH_MAX];
    struct stat there, here;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", dir);
    ssize_t n = readlink(link, path, sizeof(path) - 1);
    if (n < 0 || fstat(dir, &there) < 0)
        return -errno;
    path[n] = '\0';
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (!id_valid(name, strlen(name), 'v'))
        return -EINVAL;
    snprintf(ret, ID_SIZE, "%s", name);
    snprintf(path, sizeof(path), "volumes/%s", ret);
    int own DEFER_CLOSE = dir_open_path(maker->store, path);
    if (own < 0 || fstat(own, &here) < 0)
        return own < 0 ? own : -errno;
    return here.st_dev == there.st_dev && here.st_ino == there.st_ino ? 0 : -ESTALE;
}

/*
 * Creates the directory of the files at the first mount. It belongs to `user` of each machine that
 * has the volume; root of a machine may change that.
 */
static int make_files(int fs) {
    if (faccessat(fs, files_name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    int r = tree_dir(fs, files_beside, 0755, ID_BOX_USER, ID_BOX_USER);
    return r < 0 ? r : renameat(fs, files_beside, fs, files_name) < 0 ? -errno : 0;
}

static int clone_files(const struct rootfs_maker *maker, int fs, int userns, struct stat *ret) {
    int dir DEFER_CLOSE = dir_open_path(fs, files_name);
    if (dir < 0 || fstat(dir, ret) < 0)
        return dir < 0 ? dir : -errno;
    return lower_new(maker, dir, userns);
}

int volume_lower(struct rootfs_maker *maker, int dir, int userns, struct stat *ret,
                 struct err *err) {
    char id[ID_SIZE];
    if (maker->rootless)
        return volume_unsupported(err);
    int r = volume_id(maker, dir, id);
    if (r < 0)
        return err_num(err, r, "cannot find a volume in the store of the spawner");
    int image DEFER_CLOSE = open_image_of(maker, id, err);
    int fs DEFER_CLOSE = image < 0 ? -1 : disk_mount(image, err);
    if (fs < 0)
        return -1;
    r = make_files(fs);
    if (r == 0)
        r = bench_put(maker, fs, "volume");
    int lower = r < 0 ? r : clone_files(maker, fs, userns, ret);
    bench_clear(maker, "volume");
    return lower < 0 ? lower_failed(err, lower, "cannot mount a volume",
                                    "use a kernel that can map user ids on ext4")
                     : lower;
}
