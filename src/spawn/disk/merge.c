#include "spawn/disk/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "spawn/disk/duplicate.h"
#include "spawn/disk/name_set.h"
#include "spawn/disk/room.h"
#include "spawn/disk/tree.h"

enum {
    PATH_SIZE = 4096,
    DEPTH_MAX = 200,
    VALUE_MAX = 65536,
    FROM_SIZE = LAYERS_MAX * 12 + 8,
    NAMES_MAX = 65536 /* names of all open directories that are kept in memory */
};

struct merge {
    bool home;             /* of the top directory, only those of users */
    int roots[LAYERS_MAX]; /* top directories of the layers to merge, topmost first */
    size_t count;
    const char *prefix; /* prefix of the overlay's extended attributes */
    int out;
    /* the result has a file .wht, to which its whiteouts (deletion marks) are hard-linked */
    bool has_whiteout;
    struct copying *copying; /* state for copying files that cannot be linked; NULL: not used yet */
    unsigned depth;
    size_t name_room;
};

/* The source directories of one directory of the result, and its path in the layers below. */
struct found {
    int fds[LAYERS_MAX]; /* O_PATH descriptors of these directories, topmost layer first */
    size_t count;
    char below[PATH_SIZE]; /* path of this directory in the layers below the merged ones */
    bool opaque;           /* the directory hides its content in those layers */
};

static void found_done(struct found *f) {
    while (f->count)
        close(f->fds[--f->count]);
}

/* ---- overlay attributes and whiteouts ---- */

static ssize_t get_mark(const struct merge *m, int fd, const char *name, char *value) {
    char path[32], mark[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    snprintf(mark, sizeof(mark), "%s%s", m->prefix, name);
    ssize_t n = getxattr(path, mark, value, PATH_SIZE - 1);
    value[n > 0 ? n : 0] = '\0';
    return n;
}

static int set_mark(const struct merge *m, int fd, const char *name, const char *value) {
    char path[32], mark[64];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    snprintf(mark, sizeof(mark), "%s%s", m->prefix, name);
    return setxattr(path, mark, value, strlen(value), 0) < 0 ? -errno : 0;
}

static bool is_whiteout(const struct stat *st) {
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

/* ---- lookup of directories ---- */

static int join(char path[PATH_SIZE], const char *name) {
    size_t n = strlen(path);
    return (size_t)snprintf(path + n, PATH_SIZE - n, "/%s", name) < PATH_SIZE - n ? 0
                                                                                  : -ENAMETOOLONG;
}

/*
 * Enters the directory `name` in a layer. `low` becomes its path in the layers below, which a
 * redirect may change.
 */
static int descend(const struct merge *m, int *dir, const char *name, char low[PATH_SIZE],
                   bool *stop) {
    char mark[PATH_SIZE];
    struct stat st;
    int fd = openat(*dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    close(*dir);
    *dir = fd;
    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISDIR(st.st_mode)) { /* a whiteout or file hides everything below */
        *stop = true;
        return -ENOTDIR;
    }
    bool redirected = false;
    if (get_mark(m, fd, "opaque", mark) > 0 && mark[0] == 'y')
        *stop = true;
    else
        redirected = get_mark(m, fd, "redirect", mark) > 0;
    /*
     * an absolute redirect leads to the layers below even if a parent directory is opaque (hides
     * them)
     */
    if (redirected && mark[0] == '/') {
        snprintf(low, PATH_SIZE, "%s", mark);
        *stop = false;
        return 0;
    }
    return join(low, redirected ? mark : name);
}

/*
 * Finds a directory in one layer. 1: *ret is the directory; 0: the layer does not have it. `path`
 * becomes the path in the layers below.
 */
static int resolve(const struct merge *m, size_t layer, char path[PATH_SIZE], bool *stop,
                   int *ret) {
    char low[PATH_SIZE] = "", rest[PATH_SIZE], *at = rest;
    int dir DEFER_CLOSE = fcntl(m->roots[layer], F_DUPFD_CLOEXEC, 3), r = dir < 0 ? -errno : 0;
    bool here = true;
    *stop = false;
    snprintf(rest, sizeof(rest), "%s", path);
    for (char *name; r == 0 && (name = strsep(&at, "/"));) {
        if (!*name)
            continue;
        if (here)
            r = descend(m, &dir, name, low, stop);
        if (r == -ENOENT)
            here = false;
        if (!here)
            r = join(low, name);
    }
    if (r == -ENOTDIR)
        return 0;
    if (r < 0)
        return r;
    snprintf(path, PATH_SIZE, "%s", low);
    if (here)
        *ret = TAKE_FD(dir);
    return here;
}

static int merge_look_up(const struct merge *m, const char *path, struct found *ret) {
    bool stop = false;
    ret->count = 0;
    snprintf(ret->below, sizeof(ret->below), "%s", path);
    for (size_t i = 0; i < m->count && !stop; i++) {
        int r = resolve(m, i, ret->below, &stop, &ret->fds[ret->count]);
        if (r < 0)
            return r;
        ret->count += (size_t)r;
    }
    ret->opaque = stop;
    return ret->count ? 0 : -ENOENT;
}

/* ---- writing the result ---- */

/*
 * Copies owner, mode and extended attributes of a directory, except the marks of overlayfs, which
 * are computed anew.
 */
static int dress(const struct merge *m, int from, int to) {
    char a[32], b[32], *names DEFER_FREE = malloc(VALUE_MAX), *value DEFER_FREE = malloc(VALUE_MAX);
    struct stat st;
    snprintf(a, sizeof(a), "/proc/self/fd/%d", from);
    snprintf(b, sizeof(b), "/proc/self/fd/%d", to);
    if (!names || !value)
        return -ENOMEM;
    if (fstat(from, &st) < 0 || chown(b, st.st_uid, st.st_gid) < 0 ||
        chmod(b, st.st_mode & 07777) < 0)
        return -errno;
    ssize_t n = listxattr(a, names, VALUE_MAX);
    for (const char *x = names; n > 0 && x < names + n; x += strlen(x) + 1) {
        size_t skip = strlen(m->prefix);
        bool mark = strncmp(x, m->prefix, skip) == 0;
        if (mark && strcmp(x + skip, "origin") != 0 && strcmp(x + skip, "impure") != 0)
            continue;
        ssize_t size = getxattr(a, x, value, VALUE_MAX);
        if (size >= 0 && setxattr(b, x, value, (size_t)size, 0) < 0)
            return -errno;
    }
    return 0;
}

static int put_times(int from, int to) {
    struct stat st;
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", to);
    if (fstat(from, &st) < 0)
        return -errno;
    const struct timespec times[2] = {st.st_atim, st.st_mtim};
    return utimensat(AT_FDCWD, path, times, 0) < 0 ? -errno : 0;
}

static int put_whiteout(struct merge *m, int dir, const char *name) {
    if (!m->has_whiteout) {
        if (mknodat(m->out, ".wht", S_IFCHR, 0) < 0)
            return -errno;
        m->has_whiteout = true;
    }
    if (linkat(m->out, ".wht", dir, name, 0) == 0)
        return 0;
    /* .wht has the largest possible number of links: create a new whiteout */
    return mknodat(dir, name, S_IFCHR, 0) < 0 ? -errno : 0;
}

static int merge_dir(struct merge *m, int out, const char *path, const struct found *f);

static int merge_subdir(struct merge *m, int out, const char *name, const char *path,
                        const struct found *above) {
    char sub[PATH_SIZE], implied[PATH_SIZE];
    struct found *f DEFER_FREE = calloc(1, sizeof(*f));
    if (!f || m->depth >= DEPTH_MAX)
        return f ? -ELOOP : -ENOMEM;
    snprintf(sub, sizeof(sub), "%s", path);
    snprintf(implied, sizeof(implied), "%s", above->below);
    int r = join(sub, name);
    if (r == 0 && !above->opaque)
        r = join(implied, name);
    if (r == 0)
        r = merge_look_up(m, sub, f);
    if (r == 0 && mkdirat(out, name, 0700) < 0)
        r = -errno;
    int dir DEFER_CLOSE = r < 0 ? -1 : dir_open(out, name);
    if (r == 0)
        r = dir < 0 ? -errno : dress(m, f->fds[0], dir);
    if (r == 0 && f->opaque)
        r = set_mark(m, dir, "opaque", "y");
    else if (r == 0 && (above->opaque || strcmp(implied, f->below) != 0))
        r = set_mark(m, dir, "redirect", f->below);
    m->depth++;
    if (r == 0)
        r = merge_dir(m, dir, sub, f);
    m->depth--;
    if (r == 0)
        r = put_times(f->fds[0], dir);
    found_done(f);
    return r;
}

/*
 * Links a file into the result. A link cannot cross subvolumes, so such a file is copied instead.
 */
static int merge_put_file(struct merge *m, int out, int from, const char *name, const char *path) {
    char below[PATH_SIZE] = "";
    if (linkat(from, name, out, name, 0) == 0)
        return 0;
    if (errno != EXDEV)
        return -errno;
    if (!m->copying && !(m->copying = copying_new(m->out)))
        return -ENOMEM;
    if (*path)
        snprintf(below, sizeof(below), "%s", path + 1); /* path without its leading slash */
    int r = *path ? join(below, name) : 0;
    return r < 0 ? r : copying_file(m->copying, from, out, name, *path ? below : name);
}

/*
 * Returns the type of an entry as a mode, without the rest of its stat, if the directory has it. A
 * device may be a whiteout, so it needs the whole stat.
 */
static int entry_stat(int from, const struct dirent *e, struct stat *ret) {
    static const mode_t types[] = {[DT_DIR] = S_IFDIR, [DT_REG] = S_IFREG, [DT_LNK] = S_IFLNK};
    *ret =
        (struct stat){.st_mode = e->d_type < sizeof(types) / sizeof(*types) ? types[e->d_type] : 0};
    if (ret->st_mode)
        return 0;
    return fstatat(from, e->d_name, ret, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

static int merge_entry(struct merge *m, int out, int from, const struct dirent *e, const char *path,
                       const struct found *f) {
    struct stat st;
    int r = entry_stat(from, e, &st);
    if (r < 0)
        return r;
    /* the directory hides the layers below already, so the whiteout is not needed */
    if (is_whiteout(&st))
        return f->opaque ? 0 : put_whiteout(m, out, e->d_name);
    if (S_ISDIR(st.st_mode))
        return merge_subdir(m, out, e->d_name, path, f);
    return merge_put_file(m, out, from, e->d_name, path);
}

/*
 * Returns 1 if a layer above `layer` has an entry of this name. Most names are in no other layer,
 * which `above` knows without a look at the disk.
 */
static int is_hidden(const struct found *f, size_t layer, const struct name_set *above,
                     const char *name) {
    struct stat st;
    if (!name_set_may_have(above, name))
        return 0;
    for (size_t i = 0; i < layer; i++) {
        if (fstatat(f->fds[i], name, &st, AT_SYMLINK_NOFOLLOW) == 0)
            return 1;
        if (errno != ENOENT)
            return -errno;
    }
    return 0;
}

/* Users have their files in these directories. */
static bool is_left_out(const struct merge *m, const char *path, const char *name) {
    return m->home && !*path && strcmp(name, "home") != 0 && strcmp(name, "root") != 0;
}

/* Writes the entries of one layer into a directory of the result, if no layer above has them. */
static int merge_level(struct merge *m, int out, const char *path, const struct found *f,
                       size_t layer, struct name_set *above) {
    DIR *d DEFER(dir_close) = dir_list(f->fds[layer], ".");
    if (!d)
        return -errno;
    for (struct dirent *e; (e = readdir(d));) {
        bool skip = is_dots(e->d_name) || is_left_out(m, path, e->d_name);
        int r = skip ? 1 : is_hidden(f, layer, above, e->d_name);
        if (r == 0)
            r = merge_entry(m, out, dirfd(d), e, path, f);
        if (r < 0)
            return r;
        if (layer + 1 < f->count)
            name_set_add(above, e->d_name);
    }
    return 0;
}

/* Writes one directory of the result. Of each name it takes the entry of the topmost layer. */
static int merge_dir(struct merge *m, int out, const char *path, const struct found *f) {
    struct name_set above DEFER(name_set_done);
    name_set_init(&above, &m->name_room);
    for (size_t i = 0; i < f->count; i++) {
        int r = merge_level(m, out, path, f, i, &above);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- whole layers ---- */

static int merge_part(const struct merge_plan *plan, const char *aside, char part) {
    struct merge m = {.prefix = plan->userxattr ? "user.overlay." : "trusted.overlay.",
                      .out = -1,
                      .home = plan->home,
                      .name_room = NAMES_MAX};
    struct found *f DEFER_FREE = calloc(1, sizeof(*f));
    char name[48];
    int r = f ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < plan->count; i++) {
        snprintf(name, sizeof(name), "%" PRIu32 "/%c", plan->from[i], part);
        m.roots[i] = dir_open_path(plan->disk, name);
        r = m.roots[i] < 0 ? -errno : 0;
        m.count += r == 0;
    }
    snprintf(name, sizeof(name), "%s/%c", aside, part);
    if (r == 0 && mkdirat(plan->disk, name, 0700) < 0)
        r = -errno;
    if (r == 0) {
        m.out = dir_open(plan->disk, name);
        r = m.out < 0 ? -errno : merge_look_up(&m, "", f);
    }
    if (r == 0)
        r = dress(&m, m.roots[0], m.out);
    if (r == 0)
        r = merge_dir(&m, m.out, "", f);
    if (m.has_whiteout)
        unlinkat(m.out, ".wht", 0);
    if (r == 0)
        r = put_times(m.roots[0], m.out);
    if (f)
        found_done(f);
    for (size_t i = 0; i < m.count; i++)
        close(m.roots[i]);
    copying_free(m.copying);
    close_fd(&m.out);
    return r;
}

/*
 * Lists the source layers. The list is stored beside the result, so that merge_done() can check it.
 */
static void list_from(const struct merge_plan *plan, char text[FROM_SIZE]) {
    size_t n = (size_t)snprintf(text, FROM_SIZE, "%s", plan->home ? "home\n" : "");
    for (size_t i = 0; i < plan->count; i++)
        n += (size_t)snprintf(text + n, FROM_SIZE - n, "%" PRIu32 "\n", plan->from[i]);
}

int merge_done(const struct merge_plan *plan) {
    char name[48], text[FROM_SIZE], wanted[FROM_SIZE];
    list_from(plan, wanted);
    snprintf(name, sizeof(name), "%" PRIu32 "/from", plan->into);
    ssize_t n = read_file_at(plan->disk, name, text, sizeof(text));
    if (n == -ENOENT)
        return 0;
    return n < 0 ? (int)n : strcmp(text, wanted) == 0 ? 1 : -EEXIST;
}

/*
 * Merges root and /usr. A rewind of the machine may delete a source layer meanwhile; then the merge
 * fails, because its result may be incomplete.
 */
static int merge_parts(const struct merge_plan *plan, const char *aside) {
    int held[LAYERS_MAX], r = mkdirat(plan->disk, aside, 0755) < 0 ? -errno : 0;
    size_t count = 0;
    for (; r == 0 && count < plan->count; count += r == 0)
        r = (held[count] = layer_hold(plan->disk, plan->from[count])) < 0 ? held[count] : 0;
    if (r == 0)
        r = merge_part(plan, aside, 'u');
    if (r == 0)
        r = merge_part(plan, aside, 'U');
    for (size_t i = 0; r == 0 && i < count; i++)
        r = layer_still(plan->disk, plan->from[i], held[i]);
    while (count > 0)
        close(held[--count]);
    return r;
}

static int put_cost(const struct merge_plan *plan, const char *aside) {
    struct room cost;
    cost_sum(plan->disk, plan->from, plan->count, &cost);
    return cost_write(plan->disk, aside, &cost);
}

int merge_layers(const struct merge_plan *plan) {
    char aside[24], name[24], from[32], text[FROM_SIZE];
    int r = merge_done(plan);
    if (r != 0)
        return r < 0 ? r : 0;
    list_from(plan, text);
    snprintf(name, sizeof(name), "%" PRIu32, plan->into);
    snprintf(aside, sizeof(aside), "%" PRIu32 ".new", plan->into);
    snprintf(from, sizeof(from), "%s/from", aside);
    r = tree_remove(plan->disk, aside);
    if (r == 0)
        r = merge_parts(plan, aside);
    if (r == 0)
        r = tree_file(plan->disk, from, text, 0600, 0, 0);
    if (r == 0 && plan->saved)
        r = put_cost(plan, aside);
    if (r == 0 && plan->saved && syncfs(plan->disk) < 0)
        r = -errno;
    if (r == 0 && renameat(plan->disk, aside, plan->disk, name) < 0)
        r = -errno;
    if (r == 0 && plan->saved && fsync(plan->disk) < 0)
        r = -errno;
    if (r == 0 && plan->saved)
        cost_drop(plan->disk, plan->from, plan->count);
    if (r < 0)
        tree_remove(plan->disk, aside);
    return r;
}
