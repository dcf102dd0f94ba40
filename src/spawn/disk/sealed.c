#include "spawn/disk/sealed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/fs/erofs.h"
#include "spawn/disk/overlays.h"
#include "spawn/make/mounts.h"
#include "spawn/spawner.h"

/* ---- support of the kernel ---- */

static int mount_file(int file) {
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    const struct mount_option options[] = {{"source", path}};
    return mount_new("erofs", options, 1, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOSUID);
}

/*
 * Tries to mount a small erofs file in the store directory: some filesystems do not support mounts
 * of their files.
 */
static int try_mount(const struct spawner *s) {
    uint8_t empty[EROFS_EMPTY_BYTES];
    erofs_put_empty(empty, "");
    int file DEFER_CLOSE = openat(s->store, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    int r = file < 0 ? -errno : write_all(file, empty, sizeof(empty));
    int mount DEFER_CLOSE = r < 0 ? r : mount_file(file);
    if (mount < 0)
        return mount;
    const struct id_map map = id_map_plain(s->maker.slots.base);
    int userns DEFER_CLOSE = userns_new(s->proc, s->maker.slots.base, &map);
    return userns < 0 ? userns : mount_idmap(mount, userns);
}

int sealed_probe(struct spawner *s) {
    if (!s->sealed.tried)
        s->sealed.why = s->rootless ? -EPERM : try_mount(s);
    s->sealed.tried = true;
    return s->sealed.why;
}

int sealed_can(struct spawner *s, struct err *err) {
    int r = sealed_probe(s);
    if (r == 0)
        return 0;
    if (s->rootless)
        err_set(err, ERR_UNSUPPORTED, "mounting an image from its file requires root");
    else
        err_set(err, ERR_UNSUPPORTED,
                "this kernel cannot mount an erofs image from a file in CARREL_HOME: %s",
                strerror(-r));
    return err_remedy(err, "use Linux 6.12 or newer with CONFIG_EROFS_FS_BACKED_BY_FILE");
}

/* ---- files of images ---- */

/* Opens the file root.erofs of an image; -ENOENT: the image does not have one. */
static int open_file(const struct spawner *s, const char *id) {
    char path[IMAGE_ID_SIZE + 16];
    snprintf(path, sizeof(path), "%s/root.erofs", id);
    int file DEFER_CLOSE = openat(s->store, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0)
        return errno == ELOOP || errno == ENXIO ? -EBADMSG : -errno;
    return erofs_file_is_ours(file, id) ? TAKE_FD(file) : -EBADMSG;
}

/* ---- mounted images ---- */

static void unmount(struct spawner *s, struct sealed *x) {
    char path[48 + IMAGE_ID_SIZE];
    snprintf(path, sizeof(path), "/proc/self/fd/%d/%s", s->maker.workshop, x->id);
    umount2(path, MNT_DETACH);
    unlinkat(s->maker.workshop, x->id, AT_REMOVEDIR);
    left_add(&s->maker.left, x->mount);
    *x = (struct sealed){.mount = -1};
}

static struct sealed *sealed_find(struct spawner *s, const char *id) {
    for (size_t i = 0; i < SEALED_MAX; i++)
        if (strcmp(s->sealed.list[i].id, id) == 0)
            return &s->sealed.list[i];
    return NULL;
}

bool sealed_is_mounted(struct spawner *s, const char *id) {
    return sealed_find(s, id) != NULL;
}

void sealed_forget(struct spawner *s, const char *id) {
    struct sealed *x = image_id_valid(id) ? sealed_find(s, id) : NULL;
    if (x)
        unmount(s, x);
}

static struct sealed *make_room(struct spawner *s) {
    struct sealed *oldest = s->sealed.list;
    for (size_t i = 0; i < SEALED_MAX && oldest->id[0]; i++)
        if (!s->sealed.list[i].id[0] || s->sealed.list[i].used_ms < oldest->used_ms)
            oldest = &s->sealed.list[i];
    if (oldest->id[0])
        unmount(s, oldest);
    return oldest;
}

/* Attaches the mount in the workshop, because kernels before 6.15 clone only attached mounts. */
static int keep_mount(struct spawner *s, const char *id, int file, struct sealed **ret) {
    int r = sealed_probe(s);
    int mount DEFER_CLOSE = r < 0 ? r : mount_file(file);
    if (mount < 0)
        return mount;
    struct sealed *x = make_room(s);
    if (mkdirat(s->maker.workshop, id, 0700) < 0 && errno != EEXIST)
        return -errno;
    if ((r = mount_attach(mount, s->maker.workshop, id)) < 0)
        return r;
    snprintf(x->id, sizeof(x->id), "%s", id);
    x->mount = TAKE_FD(mount);
    *ret = x;
    return 0;
}

/* Opens the root directory of a sealed image; -ENOENT: the image is not sealed. */
static int open_sealed(struct spawner *s, const char *id) {
    struct sealed *x = sealed_find(s, id);
    if (!x) {
        int file DEFER_CLOSE = open_file(s, id);
        int r = file < 0 ? file : keep_mount(s, id, file, &x);
        if (r < 0)
            return r;
    }
    x->used_ms = boot_ms();
    return dir_open_path(x->mount, ".");
}

static int sealed_failed(struct spawner *s, int r, const char *id, struct err *err) {
    if (r == -EBADMSG) {
        err_set(err, ERR_INTERNAL, "the file root.erofs of image '%.14s' was changed", id);
        return err_remedy(err, "delete the image, then import or build it again");
    }
    if (sealed_can(s, err) < 0)
        return err_wrap(err, "cannot mount image '%.14s'", id);
    return err_num(err, r, "cannot mount image '%.14s'", id);
}

/* Opens the root directory of one layer. */
static int open_layer(struct spawner *s, const char *id) {
    char path[IMAGE_ID_SIZE + 8];
    int root = open_sealed(s, id);
    if (root >= 0)
        return root;
    /* If mounting the file failed, a layer that is also stored as a directory can be used. */
    snprintf(path, sizeof(path), "%s/root", id);
    int dir = dir_open_path(s->store, path);
    return dir >= 0 ? dir : root;
}

static int open_failed(struct spawner *s, int r, const char *id, const char *key, struct err *err) {
    if (r != -ENOENT)
        return sealed_failed(s, r, id, err);
    if (strcmp(id, key) == 0) {
        err_set(err, ERR_NOT_FOUND, "image '%s' does not exist", id);
        return err_remedy(err, "see `carrel image ls`");
    }
    return err_set(err, ERR_INTERNAL, "image '%.14s', which is below image '%.14s', does not exist",
                   id, key);
}

static int open_layers(struct spawner *s, const char *key, struct image *image, struct err *err) {
    struct image_below below;
    int r = image_below_read(s->store, key, &below);
    if (r < 0)
        return err_num(err, r, "cannot read the list of layers of image '%.14s'", key);
    for (size_t i = 0; i <= below.count; i++) {
        const char *id = i == 0 ? key : below.ids[i - 1];
        int root = open_layer(s, id);
        if (root < 0)
            return open_failed(s, root, id, key, err);
        if (i < below.count)
            image->over[image->over_count++] = root;
        else
            image->skeleton = root;
    }
    return 0;
}

/* The image is lent the host's /usr, below its own. */
static int lend_usr(const struct spawner *s, struct image *image, struct err *err) {
    image->usr_over = dir_open_path(image->skeleton, "usr");
    image->usr = s->image.usr < 0 ? -1 : fcntl(s->image.usr, F_DUPFD_CLOEXEC, 3);
    if (s->image.usr_dirs >= 0)
        image->usr_dirs = fcntl(s->image.usr_dirs, F_DUPFD_CLOEXEC, 3);
    return image->usr_over < 0 || image->usr < 0 || (s->image.usr_dirs >= 0 && image->usr_dirs < 0)
               ? err_set(err, ERR_INTERNAL,
                         "image '%.14s' is above the host's files, which cannot be opened",
                         image->key)
               : 0;
}

int sealed_image(struct spawner *s, const char *key, struct image *ret, struct err *err) {
    if (!image_id_valid(key))
        return image_open_key(s->store, s->host, key, s->image.base, ret, err);
    struct image image = IMAGE_NONE;
    image.base = s->image.base;
    snprintf(image.key, sizeof(image.key), "%s", key);
    if (open_layers(s, key, &image, err) < 0 ||
        (image_is_lent(s->store, key) && lend_usr(s, &image, err) < 0)) {
        image_close(&image);
        return -1;
    }
    *ret = image;
    return 0;
}

int sealed_view(struct spawner *s, const char *id, struct err *err) {
    struct image image;
    struct stack stack = STACK_NONE;
    if (sealed_image(s, id, &image, err) < 0)
        return -1;
    stack.image = &image;
    int root DEFER_CLOSE = -1, usr = -1;
    int r = image.over_count ? stack_mount(&s->maker, &stack, &root, &usr, err) : 0;
    if (r == 0 && !image.over_count && (root = mount_clone(image.skeleton, "")) < 0)
        r = err_num(err, root, "cannot open the files of image '%.14s'", id);
    image_close(&image);
    if (r == 0 && (r = mount_shelve(root)) < 0)
        err_num(err, r, "cannot open the files of image '%.14s'", id);
    return r < 0 ? -1 : TAKE_FD(root);
}

bool sealed_is_part(const struct spawner *s, const char *key, const char *id) {
    struct image_below below;
    if (!image_id_valid(key))
        return false;
    return strcmp(key, id) == 0 || image_below_read(s->store, key, &below) < 0 ||
           image_below_has(&below, id);
}
