#include "image/merged.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "image/cost.h"
#include "image/fit.h"
#include "image/walk.h"

enum {
    LINKS_MAX = 40,      /* on the way to one directory */
    STEPS_MAX = 64 << 20 /* parts of paths that one import resolves */
};

/* ---- looking up names ---- */

static int open_plain(int root, const char *path, uint64_t flags) {
    const struct open_how how = {.flags = flags | O_CLOEXEC,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, root, *path ? path : ".", &how, sizeof(how));
}

static void path_above(const char *path, char ret[IMAGE_PATH_SIZE]) {
    const char *name = image_path_last(path);
    size_t n = name == path ? 0 : (size_t)(name - path) - 1;
    memcpy(ret, path, n);
    ret[n] = '\0';
}

/* Follows no link. False: there is no such name. */
static bool stat_plain(int root, const char *path, struct stat *ret) {
    char above[IMAGE_PATH_SIZE];
    path_above(path, above);
    int dir DEFER_CLOSE = open_plain(root, above, O_PATH | O_DIRECTORY);
    return dir >= 0 && fstatat(dir, image_path_last(path), ret, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- creating entries ---- */

static int merged_failed(struct err *err, const char *path) {
    return err_sys(err, "cannot write '%.120s' to the image", path);
}

static int put_whiteout(struct unpack *u, int dir, const char *path, struct err *err) {
    const struct timespec times[2] = {{0}};
    const char *name = image_path_last(path);
    uid_t owner = image_id_to_disk(&u->ids, 0);
    if (unpack_charge(u, cost_entry(S_IFCHR, 0, 0), err) < 0)
        return -1;
    return mknodat(dir, name, S_IFCHR, 0) < 0 ||
                   fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ||
                   utimensat(dir, name, times, AT_SYMLINK_NOFOLLOW) < 0
               ? merged_failed(err, path)
               : 0;
}

/* st: the directory of the image below whose attributes the new one gets; NULL: a new directory. */
static int put_dir(struct unpack *u, int dir, const char *path, const struct stat *st,
                   struct err *err) {
    const char *name = image_path_last(path);
    uid_t root = image_id_to_disk(&u->ids, 0);
    if (unpack_count_entries(u, 1, err) < 0 || unpack_charge(u, cost_entry(S_IFDIR, 0, 0), err) < 0)
        return -1;
    if (mkdirat(dir, name, 0700) < 0 ||
        fchownat(dir, name, st ? st->st_uid : root, st ? st->st_gid : root, AT_SYMLINK_NOFOLLOW) <
            0 ||
        fchmodat(dir, name, st ? st->st_mode & 07777 : 0755, 0) < 0)
        return merged_failed(err, path);
    return unpack_keep_time(u, path, st ? st->st_mtim.tv_sec : 0, err);
}

int merged_begin(struct unpack *u, struct err *err) {
    struct stat st;
    if (fstat(u->below, &st) < 0 || fchown(u->root, st.st_uid, st.st_gid) < 0 ||
        fchmod(u->root, st.st_mode & 07777) < 0)
        return err_sys(err, "cannot read the image below the layer");
    return unpack_keep_time(u, "", st.st_mtim.tv_sec, err);
}

/* ---- hiding ---- */

static int hide_all(struct unpack *u, int layer, int below, const char *path, struct err *err);

static int hide_subdir(struct unpack *u, int layer, int below, const char *path, struct err *err) {
    const char *name = image_path_last(path);
    int to DEFER_CLOSE = openat(layer, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int from DEFER_CLOSE = openat(below, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return to < 0 || from < 0 ? merged_failed(err, path) : hide_all(u, to, from, path, err);
}

/*
 * Hides one name of the image below, unless the layer has it. Every box needs some directories
 * (image/fit.h): the layer gets these, with everything in them hidden.
 */
static int hide_name(struct unpack *u, int layer, int below, const char *path, struct err *err) {
    struct stat there, st;
    const char *name = image_path_last(path);
    if (fstatat(below, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : merged_failed(err, path);
    bool has = fstatat(layer, name, &there, AT_SYMLINK_NOFOLLOW) == 0;
    if (has && (!S_ISDIR(there.st_mode) || !S_ISDIR(st.st_mode)))
        return 0;
    if (!has && !(S_ISDIR(st.st_mode) && image_fit_is_place(path)))
        return put_whiteout(u, layer, path, err);
    if (!has && put_dir(u, layer, path, &st, err) < 0)
        return -1;
    return hide_subdir(u, layer, below, path, err);
}

/* Listed names count as entries, so that an archive cannot make an import list without end. */
static int hide_all(struct unpack *u, int layer, int below, const char *path, struct err *err) {
    DIR *d DEFER(dir_close) = dir_list(below, ".");
    char *sub DEFER_FREE = malloc(IMAGE_PATH_SIZE);
    if (!d || !sub)
        return err_sys(err, "cannot list directory '%.120s' of the image", path);
    for (struct dirent *e; (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        int n = snprintf(sub, IMAGE_PATH_SIZE, "%s%s%s", path, *path ? "/" : "", e->d_name);
        if (n > IMAGE_PATH_MAX)
            return err_set(err, ERR_INVALID, "path '%.120s' of the image is too long", sub);
        if (unpack_count_entries(u, 1, err) < 0 || hide_name(u, layer, dirfd(d), sub, err) < 0)
            return -1;
    }
    return 0;
}

int merged_hide(struct unpack *u, const char *real, struct err *err) {
    int below DEFER_CLOSE = open_plain(u->below, real, O_RDONLY | O_DIRECTORY);
    if (below < 0) /* the image below does not have it, or as something else than a directory */
        return 0;
    int layer DEFER_CLOSE = open_plain(u->root, real, O_RDONLY | O_DIRECTORY);
    return layer < 0 ? merged_failed(err, real) : hide_all(u, layer, below, real, err);
}

/* ---- directories ---- */

/* A path that is being resolved. */
struct resolving {
    struct unpack *u;
    const char *path; /* as the archive has it, for errors */
    char *real;       /* the part without links */
    char *rest;       /* what is left, with links put in */
    unsigned links;
};

static int resolve_refuse(const struct resolving *r, const char *why, struct err *err) {
    return err_set(err, ERR_INVALID, "path '%.120s' %s", r->path, why);
}

/* Puts the target of a link before the rest of the path. */
static int resolve_link(struct resolving *r, int root, const char *path, struct err *err) {
    char above[IMAGE_PATH_SIZE], target[IMAGE_PATH_SIZE], rest[IMAGE_PATH_SIZE];
    path_above(path, above);
    int dir DEFER_CLOSE = open_plain(root, above, O_PATH | O_DIRECTORY);
    ssize_t n = dir < 0 ? -1 : readlinkat(dir, image_path_last(path), target, sizeof(target) - 1);
    if (n < 0)
        return err_sys(err, "cannot read link '%.120s' of the image", path);
    target[n] = '\0';
    if (target[0] == '/' || ++r->links > LINKS_MAX)
        return resolve_refuse(r, "would follow a link out of the image", err);
    snprintf(rest, sizeof(rest), "%s", r->rest);
    if (snprintf(r->rest, IMAGE_PATH_SIZE, "%s/%s", target, rest) >= IMAGE_PATH_SIZE)
        return resolve_refuse(r, "has links that are too long", err);
    return 0;
}

/* Creates a directory of the merged tree in the layer. hidden: the layer has a whiteout there. */
static int resolve_make(struct resolving *r, const char *path, const struct stat *st, bool hidden,
                        struct err *err) {
    int dir DEFER_CLOSE = open_plain(r->u->root, r->real, O_RDONLY | O_DIRECTORY);
    if (dir < 0 || (hidden && unlinkat(dir, image_path_last(path), 0) < 0))
        return merged_failed(err, path);
    if (put_dir(r->u, dir, path, hidden ? NULL : st, err) < 0)
        return -1;
    return hidden ? merged_hide(r->u, path, err) : 0;
}

/* Goes to one part of the path, whose parents are r->real. */
static int resolve_part(struct resolving *r, const char *part, size_t n, struct err *err) {
    char path[IMAGE_PATH_SIZE];
    struct stat in_layer, in_below;
    if (snprintf(path, sizeof(path), "%s%s%.*s", r->real, *r->real ? "/" : "", (int)n, part) >
        IMAGE_PATH_MAX)
        return resolve_refuse(r, "has links that are too long", err);
    bool has = stat_plain(r->u->root, path, &in_layer);
    bool hidden = has && S_ISCHR(in_layer.st_mode);
    bool below = !has && stat_plain(r->u->below, path, &in_below);
    mode_t mode = has ? in_layer.st_mode : below ? in_below.st_mode : S_IFDIR;
    if (S_ISLNK(mode))
        return resolve_link(r, has ? r->u->root : r->u->below, path, err);
    if (!hidden && !S_ISDIR(mode))
        return resolve_refuse(r, "of the image is below a file, not a directory", err);
    if ((!has || hidden) && resolve_make(r, path, below ? &in_below : NULL, hidden, err) < 0)
        return -1;
    snprintf(r->real, IMAGE_PATH_SIZE, "%s", path);
    return 0;
}

static int resolve_up(struct resolving *r, struct err *err) {
    char above[IMAGE_PATH_SIZE];
    if (!*r->real)
        return resolve_refuse(r, "would follow a link out of the image", err);
    path_above(r->real, above);
    snprintf(r->real, IMAGE_PATH_SIZE, "%s", above);
    return 0;
}

static int resolve_next(struct resolving *r, struct err *err) {
    char part[IMAGE_PATH_SIZE];
    size_t skip = strspn(r->rest, "/"), n = strcspn(r->rest + skip, "/");
    memcpy(part, r->rest + skip, n);
    part[n] = '\0';
    memmove(r->rest, r->rest + skip + n, strlen(r->rest + skip + n) + 1);
    if (++r->u->steps > STEPS_MAX)
        return err_set(err, ERR_LIMIT, "the paths of the image archive have too many parts");
    if (n == 0 || strcmp(part, ".") == 0)
        return 0;
    return strcmp(part, "..") == 0 ? resolve_up(r, err) : resolve_part(r, part, n, err);
}

int merged_parent(struct unpack *u, const char *path, char real[IMAGE_PATH_SIZE], struct err *err) {
    char rest[IMAGE_PATH_SIZE];
    struct resolving r = {.u = u, .path = path, .real = real, .rest = rest};
    path_above(path, rest);
    real[0] = '\0';
    while (rest[strspn(rest, "/")])
        if (resolve_next(&r, err) < 0)
            return -1;
    int dir = open_plain(u->root, real, O_RDONLY | O_DIRECTORY);
    return dir >= 0 ? dir : merged_failed(err, path);
}

/* ---- whiteouts ---- */

int merged_whiteout(struct unpack *u, const char *path, struct err *err) {
    char real[IMAGE_PATH_SIZE], place[IMAGE_PATH_SIZE];
    const char *name = image_path_last(path), *hidden = name + strlen(IMAGE_WHITEOUT);
    bool opaque = strcmp(name, WHITEOUT_OPAQUE) == 0;
    if (!opaque && strncmp(name, WHITEOUT_META, strlen(WHITEOUT_META)) == 0)
        return 0; /* metadata of aufs, another union filesystem */
    if (!opaque && (!*hidden || is_dots(hidden)))
        return err_set(err, ERR_INVALID,
                       "archive entry '%.120s' is a whiteout (deletion marker) that names no file",
                       path);
    int dir DEFER_CLOSE = merged_parent(u, path, real, err);
    if (dir < 0)
        return -1;
    if (opaque)
        return merged_hide(u, real, err);
    int below DEFER_CLOSE = open_plain(u->below, real, O_RDONLY | O_DIRECTORY);
    if (snprintf(place, sizeof(place), "%s%s%s", real, *real ? "/" : "", hidden) > IMAGE_PATH_MAX)
        return err_set(err, ERR_INVALID, "archive entry '%.120s' has a path that is too long",
                       path);
    return below < 0 ? 0 : hide_name(u, dir, below, place, err);
}

/* ---- files that hard links need ---- */

static int copy_attribute(void *arg, const char *name, const void *value, size_t size,
                          struct err *err) {
    const int *to = arg;
    return fsetxattr(*to, name, value, size, 0) < 0 && errno != EOPNOTSUPP
               ? err_sys(err, "cannot set attribute '%.60s' of a file in the image", name)
               : 0;
}

static int copy_bytes(int from, int to, const char *path, struct err *err) {
    char *piece DEFER_FREE = malloc(64 << 10);
    off_t at = 0;
    for (ssize_t n; piece && (n = pread(from, piece, 64 << 10, at)) != 0; at += n) {
        if (n < 0)
            return err_sys(err, "cannot read file '%.120s' of the image", path);
        if (!cost_is_hole(piece, (size_t)n) && pwrite(to, piece, (size_t)n, at) != n)
            return merged_failed(err, path);
    }
    return !piece || ftruncate(to, at) < 0 ? merged_failed(err, path) : 0;
}

static int copy_file(struct unpack *u, int dir, int from, const struct stat *st, const char *path,
                     struct err *err) {
    const struct timespec times[2] = {{.tv_sec = st->st_mtim.tv_sec},
                                      {.tv_sec = st->st_mtim.tv_sec}};
    const struct walk_entry e = {.path = path, .fd = from};
    uint64_t size = (uint64_t)st->st_size;
    if (unpack_count_bytes(u, size, err) < 0 ||
        unpack_charge(u, cost_entry(S_IFREG, size, 0), err) < 0)
        return -1;
    int to DEFER_CLOSE = openat(dir, image_path_last(path),
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (to < 0)
        return merged_failed(err, path);
    if (copy_bytes(from, to, path, err) < 0)
        return -1;
    if (fchown(to, st->st_uid, st->st_gid) < 0 || fchmod(to, st->st_mode & 07777) < 0)
        return merged_failed(err, path);
    if (image_attributes(&e, copy_attribute, &to, err) < 0)
        return -1;
    return futimens(to, times) < 0 ? merged_failed(err, path) : 0;
}

int merged_copy_up(struct unpack *u, int dir, const char *real, struct err *err) {
    struct stat st;
    int from DEFER_CLOSE = open_plain(u->below, real, O_RDONLY | O_NONBLOCK);
    if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID,
                       "a hard link of the image archive points to '%.80s' of a layer below, which "
                       "is not a file",
                       real);
    return unpack_count_entries(u, 1, err) < 0 ? -1 : copy_file(u, dir, from, &st, real, err);
}
