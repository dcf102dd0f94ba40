#include "image/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"

uint32_t image_id_to_disk(const struct image_ids *ids, uint32_t id) {
    return !ids->shared ? id : id == 1000 ? 0 : ids->first + id;
}

int image_id_from_disk(const struct image_ids *ids, uint32_t on_disk, uint32_t *ret) {
    *ret = !ids->shared ? on_disk : on_disk == 0 ? 1000 : on_disk - ids->first;
    return *ret <= IMAGE_ID_MAX ? 0 : -1;
}

int image_dir(const char *name, struct err *err) {
    int fd = dir_open(AT_FDCWD, name);
    return fd >= 0 ? fd : err_sys(err, "cannot open the image's directory '%s'", name);
}

static int open_beneath(int root, const char *path) {
    const struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
}

static int tree_refuse(struct err *err, const char *path) {
    switch (errno) {
    case EXDEV:
    case ELOOP:
        return err_set(err, ERR_INVALID, "path '%.120s' would follow a link out of the image",
                       path);
    case ENOTDIR:
        return err_set(err, ERR_INVALID,
                       "path '%.120s' of the image is below a file, not a directory", path);
    default:
        return err_sys(err, "cannot open the image's directory of '%.120s'", path);
    }
}

static int tree_make_dir(int root, const char *path, const struct image_ids *ids, unsigned *made,
                         struct err *err) {
    int parent DEFER_CLOSE = tree_make_parent(root, path, ids, made, err);
    uid_t owner = image_id_to_disk(ids, 0);
    const char *name = image_path_last(path);
    if (parent < 0)
        return -1;
    if (mkdirat(parent, name, 0755) < 0)
        return errno == EEXIST
                   ? tree_refuse(err, path)
                   : err_sys(err, "cannot create directory '%.120s' of the image", path);
    (*made)++;
    return fchownat(parent, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0
               ? err_sys(err, "cannot set the owner of directory '%.120s' of the image", path)
               : 0;
}

int tree_parent(int root, const char *path, const struct image_ids *ids, struct err *err) {
    unsigned made = 0;
    return tree_make_parent(root, path, ids, &made, err);
}

int tree_make_parent(int root, const char *path, const struct image_ids *ids, unsigned *made,
                     struct err *err) {
    char dir[IMAGE_PATH_SIZE];
    const char *name = image_path_last(path);
    size_t n = name == path ? 0 : (size_t)(name - path) - 1;
    memcpy(dir, path, n);
    dir[n] = '\0';
    int fd = open_beneath(root, dir);
    if (fd >= 0)
        return fd;
    if (errno != ENOENT || !ids)
        return tree_refuse(err, path);
    /* The recursion ends at the root, which exists. A dangling link is an error. */
    if (tree_make_dir(root, dir, ids, made, err) < 0)
        return -1;
    fd = open_beneath(root, dir);
    return fd >= 0 ? fd : tree_refuse(err, path);
}

int tree_empty(int dir, unsigned depth) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        int r = is_dots(e->d_name) ? 0 : image_tree_remove(dir, e->d_name, depth + 1);
        if (r < 0)
            return r;
    }
    return 0;
}

int image_tree_remove(int dir, const char *name, unsigned depth) {
    if (depth > 2 * IMAGE_DEPTH_MAX)
        return -ELOOP;
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR)
        return -errno;
    int sub DEFER_CLOSE = dir_open(dir, name);
    int r = sub < 0 ? -errno : tree_empty(sub, depth);
    return r < 0 ? r : unlinkat(dir, name, AT_REMOVEDIR) < 0 ? -errno : 0;
}
