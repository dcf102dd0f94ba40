#include "image/fit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"
#include "base/parse.h"
#include "base/text/accounts.h"

/* Directories that every box needs. A parent comes before its children. */
static const struct {
    const char *path;
    mode_t mode;
} places[] = {
    {"dev", 0755},        {"etc", 0755}, {"proc", 0555}, {"run", 0755},
    {"run/carrel", 0755}, {"sys", 0555}, {"tmp", 01777},
};

/* The gate is the DNS server of a box, so the resolver of the image is replaced. */
static const struct {
    const char *path, *text;
    bool replace;
} files[] = {
    {"etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n", true},
    {"etc/hosts", "127.0.0.1 localhost\n::1 localhost\n", false},
};

enum { TABLE_MAX = 1 << 20 };

static const struct timespec no_time[2];

struct held_time {
    int dir;
    struct timespec times[2];
};

static int hold_time(int dir, struct held_time *ret) {
    struct stat st;
    if (fstat(dir, &st) < 0)
        return -1;
    *ret = (struct held_time){dir, {st.st_mtim, st.st_mtim}};
    return 0;
}

static int fit_place(int dir, const char *name, mode_t mode, const struct image_ids *ids) {
    struct stat st;
    struct held_time held;
    uid_t owner = image_id_to_disk(ids, 0);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        errno = ENOTDIR;
        return S_ISDIR(st.st_mode) ? 0 : -1;
    }
    if (hold_time(dir, &held) < 0 || mkdirat(dir, name, 0700) < 0 ||
        fchownat(dir, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0 ||
        fchmodat(dir, name, mode, 0) < 0 || utimensat(dir, name, no_time, AT_SYMLINK_NOFOLLOW) < 0)
        return -1;
    return futimens(dir, held.times);
}

static int fit_file(int dir, const char *name, const char *text, bool replace,
                    const struct image_ids *ids) {
    struct stat st;
    struct held_time held;
    uid_t owner = image_id_to_disk(ids, 0);
    bool there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (there && !replace)
        return 0;
    if (hold_time(dir, &held) < 0 || (there && unlinkat(dir, name, 0) < 0))
        return -1;
    int fd DEFER_CLOSE =
        openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0 || write_all(fd, text, strlen(text)) < 0 || fchown(fd, owner, owner) < 0 ||
        fchmod(fd, 0644) < 0 || futimens(fd, no_time) < 0)
        return -1;
    return futimens(dir, held.times);
}

static int in_the_way(struct err *err, const char *path) {
    if (errno != ENOTDIR && errno != EISDIR)
        return err_sys(err, "cannot create '/%s' in the image", path);
    err_set(err, ERR_INVALID, "path '/%s' of the image is %s", path,
            errno == EISDIR ? "a directory" : "not a directory");
    return err_remedy(err, "delete this path from the image: every box creates its own");
}

int image_fit(int root, const struct image_ids *ids, struct err *err) {
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        int dir DEFER_CLOSE = tree_parent(root, places[i].path, NULL, err);
        if (dir < 0)
            return -1;
        if (fit_place(dir, image_path_last(places[i].path), places[i].mode, ids) < 0)
            return in_the_way(err, places[i].path);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        int dir DEFER_CLOSE = tree_parent(root, files[i].path, NULL, err);
        if (dir < 0)
            return -1;
        if (fit_file(dir, image_path_last(files[i].path), files[i].text, files[i].replace, ids) < 0)
            return in_the_way(err, files[i].path);
    }
    return 0;
}

/*
 * Removes a name from the layer, so that the entry of the image below shows. keep_file: only if it
 * is a whiteout. Restores the time of the directory.
 */
static int fit_uncover(int dir, const char *name, bool keep_file) {
    struct stat st;
    struct held_time held;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    if (!S_ISCHR(st.st_mode) && keep_file)
        return 0;
    return hold_time(dir, &held) < 0 || unlinkat(dir, name, 0) < 0 ? -1 : futimens(dir, held.times);
}

/* Opens the parent of a path in a layer. *ret is -1 if the layer does not have it. */
static int fit_parent(int root, const char *path, int *ret, struct err *err) {
    char parent[32];
    const char *name = image_path_last(path);
    snprintf(parent, sizeof(parent), "%.*s", name == path ? 0 : (int)(name - path) - 1, path);
    *ret = *parent ? openat(root, parent, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
                   : dir_open(root, ".");
    return *ret >= 0 || errno == ENOENT
               ? 0
               : err_sys(err, "cannot open the directory of '/%s' in the image", path);
}

static int fit_layer_place(int dir, const char *name) {
    struct stat st;
    if (fit_uncover(dir, name, true) < 0)
        return -1;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode) ? 0 : -1;
}

int image_fit_layer(int root, struct err *err) {
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        int dir DEFER_CLOSE = -1;
        if (fit_parent(root, places[i].path, &dir, err) < 0)
            return -1;
        if (dir >= 0 && fit_layer_place(dir, image_path_last(places[i].path)) < 0)
            return in_the_way(err, places[i].path);
    }
    for (size_t i = 0; i < sizeof(files) / sizeof(*files); i++) {
        int dir DEFER_CLOSE = -1;
        if (fit_parent(root, files[i].path, &dir, err) < 0)
            return -1;
        if (dir >= 0 && fit_uncover(dir, image_path_last(files[i].path), !files[i].replace) < 0)
            return in_the_way(err, files[i].path);
    }
    return 0;
}

bool image_fit_is_place(const char *path) {
    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++)
        if (strcmp(places[i].path, path) == 0)
            return true;
    return false;
}

/* ---- users ---- */

bool image_passwd_find(const char *text, const char *name, struct image_user *ret) {
    struct account a;
    if (!account_find(text, strlen(text), name, &a))
        return false;
    ret->uid = a.uid;
    ret->gid = a.gid;
    snprintf(ret->name, sizeof(ret->name), "%.*s", (int)a.name.n, a.name.s);
    if (a.home.n > 0 && a.home.n < sizeof(ret->home))
        snprintf(ret->home, sizeof(ret->home), "%.*s", (int)a.home.n, a.home.s);
    return true;
}

bool image_group_find(const char *text, const char *name, uint32_t *ret) {
    return account_group_find(text, strlen(text), name, ret);
}

static bool is_number(const char *text) {
    return *text && text[strspn(text, "0123456789")] == '\0';
}

static int read_table(int root, int below, const char *path, char **ret, struct err *err) {
    struct stat st;
    const struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    char *text DEFER_FREE = malloc(TABLE_MAX + 1);
    if (!text)
        return err_set(err, ERR_LIMIT, "out of memory");
    bool hidden = fstatat(root, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode);
    int fd DEFER_CLOSE = hidden ? -1 : (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd < 0 && !hidden && below >= 0)
        fd = (int)syscall(SYS_openat2, below, path, &how, sizeof(how));
    ssize_t n = fd < 0 ? 0 : pread(fd, text, TABLE_MAX, 0);
    text[n > 0 ? n : 0] = '\0';
    *ret = TAKE(text);
    return 0;
}

static int no_such(struct err *err, const char *what, const char *name) {
    return err_set(err, ERR_INVALID, "the image has no %s '%.60s', which its configuration names",
                   what, name);
}

int image_user_find(int root, int below, const char *user, struct image_user *ret,
                    struct err *err) {
    char name[64], *passwd DEFER_FREE = NULL, *group DEFER_FREE = NULL;
    size_t n = strcspn(user, ":");
    const char *wanted_group = user[n] ? user + n + 1 : "";
    *ret = (struct image_user){.home = "/"};
    if (n >= sizeof(name))
        return no_such(err, "user", user);
    snprintf(name, sizeof(name), "%.*s", (int)n, user);
    if (read_table(root, below, "etc/passwd", &passwd, err) < 0 ||
        read_table(root, below, "etc/group", &group, err) < 0)
        return -1;
    if (!*name)
        snprintf(name, sizeof(name), "0");
    if (!image_passwd_find(passwd, name, ret)) {
        uint64_t uid;
        if (!is_number(name) || parse_u64(name, 0, IMAGE_ID_MAX, &uid, NULL) < 0)
            return no_such(err, "user", name);
        *ret = (struct image_user){.uid = (uint32_t)uid, .home = "/"};
        snprintf(ret->name, sizeof(ret->name), "%s", uid ? name : "root");
    }
    uint64_t gid;
    if (!*wanted_group || image_group_find(group, wanted_group, &ret->gid))
        return 0;
    if (!is_number(wanted_group) || parse_u64(wanted_group, 0, IMAGE_ID_MAX, &gid, NULL) < 0)
        return no_such(err, "group", wanted_group);
    ret->gid = (uint32_t)gid;
    return 0;
}
