#include "grant/dirs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/fs/dots.h"

static bool contains(const char *dir, const char *path) {
    size_t n = strlen(dir);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    return strncmp(dir, path, n) == 0 && (path[n] == '/' || path[n] == '\0' || n == 1);
}

/* Control characters are refused: a path with a line break would look like two paths in a list. */
static bool has_control(const char *path) {
    for (; *path; path++)
        if ((unsigned char)*path < ' ' || *path == 0x7f)
            return true;
    return false;
}

static bool has_dots(const char *path) {
    for (const char *at = path; (at = strchr(at, '/')); at++) {
        size_t n = strcspn(at + 1, "/");
        if (is_dots_part(at + 1, n) || (n == 0 && at[1]))
            return true;
    }
    return false;
}

/*
 * True if the machine itself needs the path, or a path below it: a grant there would hide it. Also
 * true for a path that is not plain.
 */
static bool reserved(const char *path) {
    static const char *const places[] = {"/proc",  "/dev",    "/sys",   "/run/carrel", "/usr",
                                         "/etc",   "/bin",    "/sbin",  "/lib",        "/lib32",
                                         "/lib64", "/libx32", "/libo32"};
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (contains(places[i], path) || contains(path, places[i]))
            return true;
    return has_dots(path) || has_control(path);
}

static int check_place(const struct plan_grant *grants, size_t count, const char *path,
                       struct err *err) {
    if (path[0] != '/' || strlen(path) >= PLAN_PATH_SIZE || reserved(path)) {
        err_set(err, ERR_INVALID, "a grant cannot be placed at '%.100s' in the machine", path);
        return err_remedy(err, "choose another path, such as /home/user/dir");
    }
    for (size_t i = 0; i < count; i++)
        if (strcmp(grants[i].path, path) == 0)
            return err_set(err, ERR_INVALID,
                           "two granted directories have the same path '%s' in the machine", path);
    return 0;
}

/*
 * The store and the run directory of Carrel hold data of all machines, so they are never granted,
 * not even read-only.
 */
static int check_own(const char *real, const char *const *own, struct err *err) {
    for (; *own; own++) {
        char place[PATH_MAX];
        if (!realpath(*own, place))
            snprintf(place, sizeof(place), "%s", *own);
        if (contains(real, place) || contains(place, real))
            return err_set(
                err, ERR_DENIED,
                "path '%s' cannot be granted: it overlaps with Carrel's own directory '%s'", real,
                place);
    }
    return 0;
}

/* Checks that the descriptor is a directory, and that the caller may grant it. */
static int check_descriptor(int fd, const char *path, const struct dir_rules *rules,
                            struct err *err) {
    char link[40], real[PATH_MAX];
    struct stat st;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof(real) - 1);
    if (n < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the metadata of directory '%s'", path);
    real[n] = '\0';
    if (!S_ISDIR(st.st_mode))
        return err_set(err, ERR_INVALID, "path '%s' is not a directory", path);
    if (check_own(real, rules->own, err) < 0)
        return -1;
    /* In the machine, `user` has the rights of the directory's owner, so it must be the caller. */
    if (rules->uid != 0 && st.st_uid != rules->uid) {
        err_set(err, ERR_DENIED, "directory '%s' belongs to another user", path);
        return err_remedy(err, "use a directory that belongs to you");
    }
    return 0;
}

/* Removes slashes at the end, so that one place has one path. A path that is too long stays so. */
static void cut_slashes(const char *path, char ret[PLAN_PATH_SIZE + 1]) {
    size_t n = (size_t)snprintf(ret, PLAN_PATH_SIZE + 1, "%s", path);
    n = n < PLAN_PATH_SIZE + 1 ? n : PLAN_PATH_SIZE;
    while (n > 1 && ret[n - 1] == '/')
        ret[--n] = '\0';
}

int dirs_place(struct plan_grant *grants, size_t count, const char *at, struct err *err) {
    char place[PLAN_PATH_SIZE + 1];
    cut_slashes(at, place);
    if (check_place(grants, count, place, err) < 0)
        return -1;
    snprintf(grants[count].path, sizeof(grants[count].path), "%s", place);
    return 0;
}

int dirs_check(const struct dir_grant *dirs, size_t count, const int *fds,
               const struct dir_rules *rules, struct plan_grant *ret, struct err *err) {
    for (size_t i = 0; i < count; i++) {
        const struct dir_grant *d = &dirs[i];
        const char *at = d->at ? d->at : d->path;
        if (!plan_mode_by_name(d->mode ? d->mode : "cow", &ret[i].mode))
            return err_set(err, ERR_INVALID, "directory mode '%s' must be ro, cow or rw", d->mode);
        if (ret[i].mode == PLAN_GRANT_RW && !rules->unreviewed) {
            err_set(err, ERR_DENIED,
                    "directory '%s' as rw would let the machine change it without review", d->path);
            return err_remedy(
                err, "add --unreviewed to allow that, or use mode cow and review the changes "
                     "(carrel ship, or carrel run --apply)");
        }
        if (dirs_place(ret, i, at, err) < 0 || check_descriptor(fds[i], d->path, rules, err) < 0)
            return -1;
        ret[i].private = rules->uid != 0;
    }
    return 0;
}

static int open_beneath(const char *root, const char *rest, int flags, struct err *err) {
    int top DEFER_CLOSE = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (top < 0)
        return err_sys(err, "cannot open '%s', a directory of setting `roots` in carrel.conf",
                       root);
    int fd = beneath_open(top, rest, O_RDONLY | O_NOCTTY | flags);
    if (beneath_leaves(fd))
        return err_set(err, ERR_DENIED,
                       "path '%.100s' leads out of directory '%s' through a symbolic link", rest,
                       root);
    return fd < 0 ? err_num(err, fd, "cannot open '%s' in directory '%s'", rest, root) : fd;
}

int dirs_path_check(const char *path, struct err *err) {
    if (path[0] == '/' && !has_dots(path))
        return 0;
    return err_set(err, ERR_INVALID, "path '%.100s' must be absolute, without '.', '..' or '//'",
                   path);
}

const char *dirs_root_of(const char *path, const char *const *roots, size_t root_count) {
    for (size_t i = 0; i < root_count; i++)
        if (contains(roots[i], path))
            return roots[i];
    return NULL;
}

static int open_under(const char *path, const char *const *roots, size_t root_count, int flags,
                      struct err *err) {
    const char *root = dirs_root_of(path, roots, root_count);
    if (dirs_path_check(path, err) < 0)
        return -1;
    if (!root)
        return err_set(err, ERR_DENIED, "path '%.100s' is below none of the roots", path);
    const char *rest = path + strlen(root);
    while (*rest == '/')
        rest++;
    return open_beneath(root, rest, flags, err);
}

int dirs_open_under(const char *path, const char *const *roots, size_t root_count,
                    struct err *err) {
    return open_under(path, roots, root_count, O_DIRECTORY, err);
}

int files_open_under(const char *path, const char *const *roots, size_t root_count,
                     struct err *err) {
    return open_under(path, roots, root_count, O_NONBLOCK, err);
}

int file_check(int fd, const char *path, const char *const *own, struct err *err) {
    char link[40], real[PATH_MAX];
    struct stat st;
    int flags = fcntl(fd, F_GETFL);
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, real, sizeof(real) - 1);
    if (n < 0 || flags < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "cannot read the metadata of file '%s'", path);
    real[n] = '\0';
    if (!S_ISREG(st.st_mode) || (flags & O_PATH) || (flags & O_ACCMODE) == O_WRONLY)
        return err_set(err, ERR_INVALID, "file '%.200s' is not a regular file open for reading",
                       path);
    if (st.st_size > GRANT_FILE_MAX)
        return err_set(err, ERR_LIMIT, "file '%.200s' is larger than 4 GiB", path);
    return check_own(real, own, err);
}

int place_check(const char *path, struct err *err) {
    return check_place(NULL, 0, path, err);
}
