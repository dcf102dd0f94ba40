#include "image/unpack.h"

#include <archive_entry.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fs/dots.h"
#include "image/cost.h"
#include "image/merged.h"

enum {
    ATTRIBUTES_MAX = 64,
    ATTRIBUTE_BYTES_MAX = 64 << 10,
    PASSES = 4, /* an import reads at most 4 times its limit: layers are stored, then read twice */
};

struct unpack unpack_begin(int root, struct image_ids ids, struct report *report) {
    return (struct unpack){.root = root,
                           .ids = ids,
                           .limits = IMAGE_LIMITS,
                           .report = report,
                           .below = -1,
                           .parent = -1};
}

void unpack_done(struct unpack *u) {
    while (u->time_count)
        free(u->times[--u->time_count].path);
    free(u->times);
    close_fd(&u->parent);
}

/* ---- reading ---- */

struct archive *unpack_reader(void) {
    struct archive *a = archive_read_new();
    if (!a)
        return NULL;
    archive_read_support_format_tar(a);
    archive_read_support_filter_gzip(a);
    archive_read_support_filter_xz(a);
    archive_read_support_filter_zstd(a);
    archive_read_set_format_option(a, "tar", "mac-ext", NULL);
    return a;
}

void unpack_reader_free(struct archive **a) {
    if (*a)
        archive_read_free(*a);
}

static int broken(struct archive *a, struct err *err) {
    const char *why = archive_error_string(a);
    err_set(err, ERR_INVALID, "the image archive is broken: %.160s", why ? why : "unknown error");
    return err_remedy(err, "use a tar, plain or compressed with gzip, xz or zstd");
}

/* A name that is not valid in this locale is used as bytes. Any other warning means that libarchive
 * dropped something, so the entry does not match the archive. */
static bool is_harmless(struct archive *a) {
    const char *why = archive_error_string(a);
    return why && (strstr(why, "can't be converted") || strstr(why, "cannot be converted"));
}

const char *unpack_name(struct archive_entry *e) {
    const char *name = archive_entry_pathname(e);
    return name ? name : archive_entry_pathname_utf8(e);
}

/* ---- limits ---- */

int unpack_count_entries(struct unpack *u, unsigned count, struct err *err) {
    u->entries += count;
    if (u->entries > u->limits.entries)
        return err_set(err, ERR_LIMIT, "the image has more than %llu entries",
                       (unsigned long long)u->limits.entries);
    report_progress(u->report, u->entries, u->bytes);
    return 0;
}

static int too_large(const struct unpack *u, struct err *err) {
    return err_set(err, ERR_LIMIT, "the image is larger than %llu MiB unpacked",
                   (unsigned long long)(u->limits.bytes >> 20));
}

int unpack_count_bytes(struct unpack *u, uint64_t bytes, struct err *err) {
    if (bytes > u->limits.bytes || u->bytes > u->limits.bytes - bytes)
        return too_large(u, err);
    u->bytes += bytes;
    report_progress(u->report, u->entries, u->bytes);
    return 0;
}

static int over_quota(const struct unpack *u, struct err *err) {
    char left[AMOUNT_SIZE];
    amount_size(u->limits.disk, left);
    err_set(err, ERR_LIMIT, "the image is larger than the rest of the disk quota, %s", left);
    return err_remedy(err,
                      "delete machines or images of the same owner, or import a smaller image");
}

int unpack_charge(struct unpack *u, uint64_t disk, struct err *err) {
    u->disk += disk;
    return u->limits.disk && u->disk > u->limits.disk ? over_quota(u, err) : 0;
}

/* Skipped bytes count too: reading them takes time, but compressed they cost an attacker little. */
int unpack_count_read(struct unpack *u, uint64_t bytes, struct err *err) {
    uint64_t disk = u->limits.disk ? u->limits.disk : u->limits.bytes;
    if (bytes > PASSES * u->limits.bytes || (u->read += bytes) > PASSES * u->limits.bytes)
        return too_large(u, err);
    return u->read > PASSES * disk ? over_quota(u, err) : 0;
}

int unpack_next(struct unpack *u, struct archive *a, struct archive_entry **ret, struct err *err) {
    int r = archive_read_next_header(a, ret);
    if (r == ARCHIVE_EOF)
        return 0;
    if (r != ARCHIVE_OK && !(r == ARCHIVE_WARN && is_harmless(a)))
        return broken(a, err);
    int64_t size = archive_entry_size(*ret);
    return unpack_count_read(u, size > 0 ? (uint64_t)size : 0, err) < 0 ? -1 : 1;
}

/* ---- parent directories ---- */

static int open_parent(struct unpack *u, const char *path, struct err *err) {
    const char *name = image_path_last(path);
    size_t n = (size_t)(name - path);
    if (u->parent >= 0 && strncmp(u->parent_path, path, n) == 0 && u->parent_path[n] == '\0')
        return u->parent;
    close_fd(&u->parent);
    unsigned made = 0;
    u->parent = u->merges ? merged_parent(u, path, u->parent_real, err)
                          : tree_make_parent(u->root, path, &u->ids, &made, err);
    memcpy(u->parent_path, path, n);
    u->parent_path[n] = '\0';
    /* Directories that the archive implies without an entry count as entries. */
    if (made && (unpack_count_entries(u, made, err) < 0 ||
                 unpack_charge(u, made * cost_entry(S_IFDIR, 0, 0), err) < 0))
        close_fd(&u->parent);
    return u->parent;
}

/* The path without links of an entry whose parent directory open_parent() has opened. */
static int real_path(const struct unpack *u, const char *path, char ret[IMAGE_PATH_SIZE],
                     struct err *err) {
    const char *above = u->merges ? u->parent_real : "", *name = image_path_last(path);
    int n = !u->merges || !*path
                ? snprintf(ret, IMAGE_PATH_SIZE, "%s", path)
                : snprintf(ret, IMAGE_PATH_SIZE, "%s%s%s", above, *above ? "/" : "", name);
    return n <= IMAGE_PATH_MAX
               ? 0
               : err_set(err, ERR_INVALID, "archive entry '%.120s' has a path that is too long",
                         path);
}

/* Removes the file or directory at `path`. Closes u->parent if it may be the removed directory. */
static int clear_place(struct unpack *u, int parent, const char *path, struct err *err) {
    const char *name = image_path_last(path);
    if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
        return 0;
    int r = errno == EISDIR ? image_tree_remove(parent, name, 0) : -errno;
    if (u->parent != parent)
        close_fd(&u->parent);
    return r < 0 ? err_num(err, r, "cannot replace '%.120s' in the image", path) : 0;
}

static bool is_below(const char *path, const char *dir) {
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && path[n] == '/';
}

/* Entries in dev, proc and sys are skipped: a box mounts its own. */
static bool is_left_out(const char *path) {
    return is_below(path, "dev") || is_below(path, "proc") || is_below(path, "sys");
}

/* ---- owner, mode and time ---- */

struct looks {
    uid_t uid;
    gid_t gid;
    mode_t mode;
    int64_t mtime;
};

static int read_looks(const struct unpack *u, struct archive_entry *e, const char *path,
                      struct looks *ret, struct err *err) {
    int64_t uid = archive_entry_uid(e), gid = archive_entry_gid(e);
    if (uid < 0 || uid > IMAGE_ID_MAX || gid < 0 || gid > IMAGE_ID_MAX)
        return err_set(err, ERR_INVALID,
                       "archive entry '%.120s' has owner %lld:%lld; ids must be at most %d", path,
                       (long long)uid, (long long)gid, IMAGE_ID_MAX);
    int64_t mtime = archive_entry_mtime_is_set(e) ? (int64_t)archive_entry_mtime(e) : 0;
    if (mtime < 0 || mtime > UINT32_MAX) /* range that every supported filesystem can store */
        mtime = 0;
    *ret = (struct looks){image_id_to_disk(&u->ids, (uint32_t)uid),
                          image_id_to_disk(&u->ids, (uint32_t)gid), archive_entry_perm(e) & 07777,
                          mtime};
    return 0;
}

int unpack_keep_time(struct unpack *u, const char *path, int64_t mtime, struct err *err) {
    if (u->time_count == u->time_size) {
        size_t size = u->time_size ? 2 * u->time_size : 256;
        struct dir_time *more = reallocarray(u->times, size, sizeof(*more));
        if (!more)
            return err_set(err, ERR_LIMIT, "out of memory");
        u->times = more;
        u->time_size = size;
    }
    char *copy = strdup(path);
    if (!copy)
        return err_set(err, ERR_LIMIT, "out of memory");
    u->times[u->time_count++] = (struct dir_time){copy, mtime};
    return 0;
}

/* ---- create entries ---- */

static int unpack_failed(struct err *err, const char *path) {
    if (errno == ENOSPC || errno == EDQUOT) {
        err_set(err, ERR_LIMIT, "no disk space left for file '%.120s' of the image", path);
        return err_remedy(err, "free space in CARREL_HOME, for example with: carrel image prune");
    }
    return err_sys(err, "cannot write '%.120s' to the image", path);
}

static int unpack_make_dir(struct unpack *u, const char *path, const struct looks *l,
                           struct err *err) {
    struct stat st;
    char real[IMAGE_PATH_SIZE];
    int parent = *path ? open_parent(u, path, err) : u->root;
    const char *name = *path ? image_path_last(path) : ".";
    if (parent < 0 || real_path(u, path, real, err) < 0)
        return -1;
    bool there = fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    bool replaces = there && !S_ISDIR(st.st_mode);
    if (replaces && clear_place(u, parent, path, err) < 0)
        return -1;
    if ((!there || replaces) && mkdirat(parent, name, 0700) < 0)
        return unpack_failed(err, path);
    /* What it replaces has hidden a directory of the image below, whose files stay hidden. */
    if (replaces && u->merges && merged_hide(u, real, err) < 0)
        return -1;
    if (fchownat(parent, name, l->uid, l->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(parent, name, l->mode, 0) < 0)
        return unpack_failed(err, path);
    return unpack_keep_time(u, real, l->mtime, err);
}

/* An archive must not bring attributes that overlayfs or a security module of the host acts on. */
static int attribute_wanted(const char *name, const char *path, bool *ret, struct err *err) {
    *ret = strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0;
    if (strncmp(name, "trusted.", 8) == 0 || strncmp(name, "user.overlay.", 13) == 0)
        return err_set(err, ERR_INVALID,
                       "archive entry '%.120s' has the unsupported attribute '%.60s'", path, name);
    return 0;
}

static int put_attributes(struct unpack *u, int fd, struct archive_entry *e, const char *path,
                          struct err *err) {
    const char *name;
    const void *value;
    size_t size, total = 0, names = 0;
    if (archive_entry_xattr_reset(e) > ATTRIBUTES_MAX)
        return err_set(err, ERR_LIMIT, "archive entry '%.120s' has more than %d attributes", path,
                       ATTRIBUTES_MAX);
    while (archive_entry_xattr_next(e, &name, &value, &size) == ARCHIVE_OK) {
        bool wanted;
        if (attribute_wanted(name, path, &wanted, err) < 0)
            return -1;
        if ((total += size) > ATTRIBUTE_BYTES_MAX)
            return err_set(err, ERR_LIMIT, "the attributes of archive entry '%.120s' are too large",
                           path);
        names += strlen(name);
        if (wanted && fd >= 0 && fsetxattr(fd, name, value, size, 0) < 0 && errno != EOPNOTSUPP)
            return err_sys(err, "cannot set attribute '%.60s' of '%.120s' in the image", name,
                           path);
    }
    return unpack_charge(u, cost_attributes(total + names), err);
}

static int write_contents(struct unpack *u, struct archive *a, int fd, const char *path,
                          int64_t size, struct err *err) {
    const void *bytes;
    size_t n;
    la_int64_t at;
    int r;
    while ((r = archive_read_data_block(a, &bytes, &n, &at)) == ARCHIVE_OK) {
        if (at < 0 || at > size || (int64_t)n > size - at)
            return err_set(err, ERR_INVALID,
                           "archive entry '%.120s' is larger than its header says", path);
        for (size_t done = cost_is_hole(bytes, n) ? n : 0; done < n;) {
            ssize_t w = pwrite(fd, (const char *)bytes + done, n - done, at + (off_t)done);
            if (w < 0 && errno == EINTR)
                continue;
            if (w < 0)
                return unpack_failed(err, path);
            done += (size_t)w;
        }
        report_progress(u->report, u->entries, u->bytes);
    }
    if (r != ARCHIVE_EOF)
        return broken(a, err);
    return ftruncate(fd, size) < 0 ? unpack_failed(err, path) : 0;
}

static int unpack_make_file(struct unpack *u, struct archive *a, struct archive_entry *e,
                            const char *path, const struct looks *l, struct err *err) {
    int64_t size = archive_entry_size(e);
    int parent = open_parent(u, path, err);
    if (parent < 0)
        return -1;
    if (size < 0)
        return err_set(err, ERR_INVALID, "archive entry '%.120s' has a negative size", path);
    if (unpack_count_bytes(u, (uint64_t)size, err) < 0 || clear_place(u, parent, path, err) < 0)
        return -1;
    int fd DEFER_CLOSE = openat(parent, image_path_last(path),
                                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return unpack_failed(err, path);
    const struct timespec times[2] = {{.tv_sec = l->mtime}, {.tv_sec = l->mtime}};
    if (write_contents(u, a, fd, path, size, err) < 0)
        return -1;
    /* Set the owner first: chown clears capabilities and set-id bits. */
    if (fchown(fd, l->uid, l->gid) < 0 || fchmod(fd, l->mode) < 0)
        return unpack_failed(err, path);
    if (put_attributes(u, fd, e, path, err) < 0)
        return -1;
    return futimens(fd, times) < 0 ? unpack_failed(err, path) : 0;
}

/* Opens the directory of a hard link's target. A file of the image below is copied there first. */
static int open_target(struct unpack *u, const char *target, struct err *err) {
    char real[IMAGE_PATH_SIZE];
    struct stat st;
    if (!u->merges || !*target)
        return tree_parent(u->root, target, NULL, err);
    int dir DEFER_CLOSE = merged_parent(u, target, real, err);
    const char *name = image_path_last(target);
    size_t n = strlen(real);
    if (dir < 0)
        return -1;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return TAKE_FD(dir);
    if (n + strlen(name) + 1 > IMAGE_PATH_MAX)
        return err_set(err, ERR_INVALID, "path '%.120s' is too long", target);
    snprintf(real + n, sizeof(real) - n, "%s%s", n ? "/" : "", name);
    return merged_copy_up(u, dir, real, err) < 0 ? -1 : TAKE_FD(dir);
}

static int make_hard_link(struct unpack *u, const char *path, const char *raw, struct err *err) {
    char target[IMAGE_PATH_SIZE];
    struct stat st;
    if (image_path(raw, target, err) < 0)
        return err_wrap(err, "hard link '%.80s'", path);
    if (strcmp(target, path) == 0 || is_below(path, target))
        return err_set(err, ERR_INVALID, "hard link '%.120s' of the image archive points to itself",
                       path);
    int from DEFER_CLOSE = open_target(u, target, err);
    if (from < 0)
        return err_wrap(err, "hard link '%.80s'", path);
    if (!*target || fstatat(from, image_path_last(target), &st, AT_SYMLINK_NOFOLLOW) < 0 ||
        S_ISCHR(st.st_mode))
        return err_set(
            err, ERR_INVALID,
            "hard link '%.80s' of the image archive points to '%.80s', which does not exist", path,
            target);
    if (S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID,
                       "hard link '%.80s' of the image archive points to a directory", path);
    int parent = open_parent(u, path, err);
    if (parent < 0 || clear_place(u, parent, path, err) < 0)
        return -1;
    return linkat(from, image_path_last(target), parent, image_path_last(path), 0) < 0
               ? unpack_failed(err, path)
               : 0;
}

static int make_link(struct unpack *u, struct archive_entry *e, const char *path,
                     const struct looks *l, struct err *err) {
    const char *target = archive_entry_symlink(e);
    if (!target)
        target = archive_entry_symlink_utf8(e);
    if (!target || !*target || strlen(target) > IMAGE_PATH_MAX)
        return err_set(
            err, ERR_INVALID,
            "symbolic link '%.120s' of the image archive has an empty or too long target", path);
    int parent = open_parent(u, path, err);
    const char *name = image_path_last(path);
    const struct timespec times[2] = {{.tv_sec = l->mtime}, {.tv_sec = l->mtime}};
    if (parent < 0 || clear_place(u, parent, path, err) < 0)
        return -1;
    if (symlinkat(target, parent, name) < 0 ||
        fchownat(parent, name, l->uid, l->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return unpack_failed(err, path);
    return 0;
}

static int make_pipe(struct unpack *u, const char *path, const struct looks *l, struct err *err) {
    int parent = open_parent(u, path, err);
    const char *name = image_path_last(path);
    const struct timespec times[2] = {{.tv_sec = l->mtime}, {.tv_sec = l->mtime}};
    if (parent < 0 || clear_place(u, parent, path, err) < 0)
        return -1;
    if (mknodat(parent, name, S_IFIFO | 0600, 0) < 0 ||
        fchownat(parent, name, l->uid, l->gid, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(parent, name, l->mode, 0) < 0 ||
        utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
        return unpack_failed(err, path);
    return 0;
}

static int refuse_kind(struct err *err, const char *path, mode_t type) {
    bool device = type == AE_IFCHR || type == AE_IFBLK;
    return err_set(err, ERR_INVALID, "archive entry '%.120s' is a %s, which an image cannot have",
                   path,
                   device              ? "device"
                   : type == AE_IFSOCK ? "socket"
                                       : "file of unknown type");
}

/* Checks the limits before anything is written. unpack_make_file() refuses negative sizes. */
static int charge_entry(struct unpack *u, struct archive_entry *e, mode_t type, struct err *err) {
    int64_t size = type == AE_IFREG ? archive_entry_size(e) : 0;
    const char *target = type == AE_IFLNK ? archive_entry_symlink(e) : NULL;
    return unpack_charge(
        u, cost_entry(type, size > 0 ? (uint64_t)size : 0, target ? strlen(target) : 0), err);
}

static int make_entry(struct unpack *u, struct archive *a, struct archive_entry *e,
                      const char *path, struct err *err) {
    struct looks looks = {0};
    const char *hard = archive_entry_hardlink(e);
    mode_t type = archive_entry_filetype(e);
    if (!hard)
        hard = archive_entry_hardlink_utf8(e);
    if (read_looks(u, e, path, &looks, err) < 0)
        return -1;
    if (!*path && (hard || type != AE_IFDIR))
        return err_set(err, ERR_INVALID, "the root of the image is not a directory");
    if (hard)
        return make_hard_link(u, path, hard, err);
    if (charge_entry(u, e, type, err) < 0)
        return -1;
    switch (type) {
    case AE_IFDIR:
        return put_attributes(u, -1, e, path, err) < 0 ? -1 : unpack_make_dir(u, path, &looks, err);
    case AE_IFREG:
        return unpack_make_file(u, a, e, path, &looks, err);
    case AE_IFLNK:
        return make_link(u, e, path, &looks, err);
    case AE_IFIFO:
        return make_pipe(u, path, &looks, err);
    default:
        return refuse_kind(err, path, type);
    }
}

/* ---- whiteouts ---- */

static bool is_whiteout(const char *path) {
    return strncmp(image_path_last(path), IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) == 0;
}

static int take_away(struct unpack *u, const char *path, struct err *err) {
    const char *name = image_path_last(path), *hidden = name + strlen(IMAGE_WHITEOUT);
    bool opaque = strcmp(name, WHITEOUT_OPAQUE) == 0;
    if (!opaque && strncmp(name, WHITEOUT_META, strlen(WHITEOUT_META)) == 0)
        return 0; /* metadata of aufs, another union filesystem */
    if (!opaque && (!*hidden || is_dots(hidden)))
        return err_set(err, ERR_INVALID,
                       "archive entry '%.120s' is a whiteout (deletion marker) that names no file",
                       path);
    int parent = open_parent(u, path, err);
    if (parent < 0)
        return -1;
    int r = opaque ? tree_empty(parent, 0) : image_tree_remove(parent, hidden, 0);
    close_fd(&u->parent);
    if (r < 0)
        return err_num(err, r, "cannot delete '%.120s' from the image", path);
    return u->merges ? merged_whiteout(u, path, err) : 0;
}

/*
 * Keeps a whiteout as overlayfs knows it. An image has no name that starts with ".wh.", so no
 * whiteout hides one.
 */
static int make_whiteout(struct unpack *u, const char *path, struct err *err) {
    char place[IMAGE_PATH_SIZE];
    const char *name = image_path_last(path), *hidden = name + strlen(IMAGE_WHITEOUT);
    const struct timespec times[2] = {{0}};
    uid_t owner = image_id_to_disk(&u->ids, 0);
    if (!*hidden || is_dots(hidden) || strncmp(hidden, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) == 0)
        return err_set(err, ERR_INVALID,
                       "archive entry '%.120s' is a whiteout (deletion marker) that names no file",
                       path);
    snprintf(place, sizeof(place), "%.*s%s", (int)(name - path), path, hidden);
    int parent = open_parent(u, place, err);
    if (parent < 0 || unpack_charge(u, cost_entry(S_IFCHR, 0, 0), err) < 0 ||
        clear_place(u, parent, place, err) < 0)
        return -1;
    return mknodat(parent, hidden, S_IFCHR, 0) < 0 ||
                   fchownat(parent, hidden, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ||
                   utimensat(parent, hidden, times, AT_SYMLINK_NOFOLLOW) < 0
               ? unpack_failed(err, place)
               : 0;
}

int unpack_whiteouts(struct unpack *u, struct archive *a, struct err *err) {
    char path[IMAGE_PATH_SIZE];
    struct archive_entry *e;
    int r;
    while ((r = unpack_next(u, a, &e, err)) > 0) {
        if (image_path(unpack_name(e), path, err) < 0)
            return -1;
        if (*path && is_whiteout(path) && !is_left_out(path) && take_away(u, path, err) < 0)
            return -1;
    }
    return r;
}

int unpack_entry(struct unpack *u, struct archive *a, struct archive_entry *e, bool layered,
                 struct err *err) {
    char path[IMAGE_PATH_SIZE];
    if (image_path(unpack_name(e), path, err) < 0 || unpack_count_entries(u, 1, err) < 0)
        return -1;
    if (is_left_out(path))
        return 0;
    if (strcmp(path, IMAGE_CONFIG_NAME) == 0)
        return err_set(err, ERR_INVALID,
                       "archive entry '%s' is allowed only as the first entry of a tar", path);
    if (*path && is_whiteout(path)) {
        if (u->merges)
            return merged_whiteout(u, path, err);
        if (u->is_layer)
            return make_whiteout(u, path, err);
        if (layered)
            return 0;
        err_set(err, ERR_INVALID,
                "archive entry '%.120s' is a whiteout of a layer (a deletion marker), not a file",
                path);
        return err_remedy(err, "import the whole image: an OCI layout, or a docker archive");
    }
    return make_entry(u, a, e, path, err);
}

int unpack_rest(struct unpack *u, struct archive *a, bool layered, struct err *err) {
    struct archive_entry *e;
    int r;
    while ((r = unpack_next(u, a, &e, err)) > 0)
        if (unpack_entry(u, a, e, layered, err) < 0)
            return -1;
    return r;
}

/* Sets the times of directories last, because writing into a directory changes its time. A later
 * layer may have removed a directory, so a missing one is skipped. */
int unpack_finish(struct unpack *u, struct err *err) {
    close_fd(&u->parent);
    for (size_t i = 0; i < u->time_count; i++) {
        const struct dir_time *t = &u->times[i];
        struct stat st;
        struct err ignored;
        const struct timespec times[2] = {{.tv_sec = t->mtime}, {.tv_sec = t->mtime}};
        int parent DEFER_CLOSE = tree_parent(u->root, t->path, NULL, &ignored);
        const char *name = *t->path ? image_path_last(t->path) : ".";
        if (parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISDIR(st.st_mode) && utimensat(parent, name, times, AT_SYMLINK_NOFOLLOW) < 0)
            return err_sys(err, "cannot set the time of directory '%.120s' of the image", t->path);
    }
    return 0;
}
