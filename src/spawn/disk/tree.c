#include "spawn/disk/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/amount.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"

static bool skipped(const struct tree_copy *how, const char *name) {
    for (const char *const *s = how->skip; s && *s; s++)
        if (strcmp(*s, name) == 0)
            return true;
    return false;
}

/*
 * Returns the owner of a copied file. Files of system accounts keep their owner; files of other
 * users become root's.
 */
static uid_t mapped(const struct tree_copy *how, uid_t id) {
    return how->owner_base + (id < 1000 ? id : 0);
}

/*
 * True if everybody may read the file. Checks only the mode bits for others, because root in a box
 * is neither the owner nor in the group.
 */
static bool is_public(const struct stat *st) {
    mode_t need = S_ISDIR(st->st_mode) ? S_IROTH | S_IXOTH : S_IROTH;
    return S_ISLNK(st->st_mode) || (st->st_mode & need) == need;
}

static bool left_out(const struct tree_copy *how, int fd) {
    return fd < 0 && errno == EACCES && how->readable_only;
}

static int copy_file(int from, const char *from_name, int to, const char *to_name,
                     const struct stat *st, struct tree_copy *how, struct err *err) {
    int in DEFER_CLOSE = openat(from, from_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (left_out(how, in) || (in < 0 && errno == ENOENT))
        return 0;
    int out DEFER_CLOSE = openat(to, to_name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (in < 0 || out < 0)
        return err_sys(err, "cannot copy file '%s'", from_name);
    static char block[1 << 16];
    for (ssize_t n; (n = read(in, block, sizeof(block))) != 0;) {
        if (n < 0)
            return err_sys(err, "cannot read file '%s'", from_name);
        how->bytes += (uint64_t)n;
        if (how->bytes > how->max_bytes) {
            char max[AMOUNT_SIZE];
            amount_size(how->max_bytes, max);
            return err_set(err, ERR_LIMIT,
                           "cannot copy file '%s': all files of the copy together exceed %s",
                           from_name, max);
        }
        int r = write_all(out, block, (size_t)n);
        if (r < 0) {
            return err_num(err, r, "cannot write file '%s'", to_name);
        }
    }
    struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (fchown(out, mapped(how, st->st_uid), mapped(how, st->st_gid)) < 0 ||
        fchmod(out, st->st_mode & 0777) < 0 || futimens(out, times) < 0)
        return err_sys(err, "cannot set owner, mode and times of file '%s'", to_name);
    return 0;
}

static int copy_link(int from, const char *from_name, int to, const char *to_name,
                     struct err *err) {
    char target[PATH_MAX];
    ssize_t n = readlinkat(from, from_name, target, sizeof(target) - 1);
    if (n < 0)
        return errno == ENOENT ? 0 : err_sys(err, "cannot read link '%s'", from_name);
    target[n] = '\0';
    if (symlinkat(target, to, to_name) < 0)
        return err_sys(err, "cannot create link '%s'", to_name);
    return 0;
}

static int copy_dir(int from, const char *from_name, int to, const char *to_name,
                    const struct stat *st, struct tree_copy *how, struct err *err) {
    int in = dir_open(from, from_name);
    if (left_out(how, in) || (in < 0 && errno == ENOENT))
        return 0;
    DIR *d DEFER(dir_close) = dir_take(in);
    if (!d)
        return err_sys(err, "cannot open directory '%s'", from_name);
    int r = tree_dir(to, to_name, st->st_mode & 01777, mapped(how, st->st_uid),
                     mapped(how, st->st_gid));
    int out DEFER_CLOSE = r < 0 ? -1 : dir_open(to, to_name);
    if (out < 0)
        return err_sys(err, "cannot create directory '%s'", to_name);
    for (struct dirent *e; !how->shallow && (e = readdir(d));)
        if (!is_dots(e->d_name) && tree_copy(dirfd(d), e->d_name, out, e->d_name, how, err) < 0)
            return err_wrap(err, "directory '%s'", from_name);
    return 0;
}

int tree_copy(int from, const char *from_name, int to, const char *to_name, struct tree_copy *how,
              struct err *err) {
    struct stat st;
    const char *base = strrchr(from_name, '/');
    if (skipped(how, base ? base + 1 : from_name))
        return 0;
    if (fstatat(from, from_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_sys(err, "cannot stat '%s'", from_name);
    if ((how->dirs_only && !S_ISDIR(st.st_mode)) || (how->public_only && !is_public(&st)))
        return 0;
    switch (st.st_mode & S_IFMT) {
    case S_IFREG:
        return copy_file(from, from_name, to, to_name, &st, how, err);
    case S_IFLNK:
        return copy_link(from, from_name, to, to_name, err);
    case S_IFDIR:
        return copy_dir(from, from_name, to, to_name, &st, how, err);
    default: /* sockets, pipes and devices are not copied */
        return 0;
    }
}

bool tree_is_reachable(int dir, const char *path) {
    char above[PATH_MAX];
    struct stat st;
    for (const char *slash = path; (slash = strchr(slash, '/')); slash++) {
        snprintf(above, sizeof(above), "%.*s", (int)(slash - path), path);
        if (fstatat(dir, above, &st, 0) == 0 && !(st.st_mode & S_IXOTH))
            return false;
    }
    return true;
}

static int remove_below(int dir) {
    DIR *d DEFER(dir_close) = dir_take(dir);
    if (!d)
        return -errno;
    int first = 0;
    for (struct dirent *e; (e = readdir(d));) {
        int r = is_dots(e->d_name) ? 0 : tree_remove(dirfd(d), e->d_name);
        if (r < 0 && first == 0)
            first = r;
    }
    return first;
}

int tree_remove(int dir, const char *name) {
    if (unlinkat(dir, name, 0) == 0 || errno == ENOENT)
        return 0;
    if (errno != EISDIR && errno != EPERM)
        return -errno;
    int fd = dir_open(dir, name);
    if (fd < 0)
        return -errno;
    int r = remove_below(fd);
    if (r < 0)
        return r;
    return unlinkat(dir, name, AT_REMOVEDIR) < 0 && errno != ENOENT ? -errno : 0;
}

int tree_dir(int dir, const char *name, mode_t mode, uid_t uid, gid_t gid) {
    if (mkdirat(dir, name, 0700) < 0 && errno != EEXIST)
        return -errno;
    if (fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(dir, name, mode, 0) < 0)
        return -errno;
    return 0;
}

int tree_file_bytes(int dir, const char *name, const void *bytes, size_t n, mode_t mode, uid_t uid,
                    gid_t gid) {
    unlinkat(dir, name, 0);
    int fd DEFER_CLOSE = openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return -errno;
    int r = write_all(fd, bytes, n);
    if (r < 0)
        return r;
    return fchown(fd, uid, gid) < 0 || fchmod(fd, mode) < 0 ? -errno : 0;
}

int tree_file(int dir, const char *name, const char *text, mode_t mode, uid_t uid, gid_t gid) {
    return tree_file_bytes(dir, name, text, strlen(text), mode, uid, gid);
}
