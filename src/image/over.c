#include "image/over.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/dir.h"

void over_done(struct over *o) {
    close_fd(&o->base);
    while (o->count)
        close_fd(&o->uppers[--o->count]);
}

/* Opens a subdirectory. -ENOENT: there is no such name; -ENOTDIR: it is something else. */
static int over_open(int dir, const char *name) {
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd >= 0 ? fd : errno == ELOOP ? -ENOTDIR : -errno;
}

/* 1 if the directory does not simply add to the directory of the same path below it. */
static int over_is_marked(const struct over *o, int dir) {
    static const char *const names[] = {"opaque", "redirect"};
    for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
        char name[64], value[8];
        snprintf(name, sizeof(name), "%s%s", o->marks, names[i]);
        ssize_t n = fgetxattr(dir, name, value, sizeof(value));
        if (n > 0 || (n < 0 && errno == ERANGE))
            return 1;
        if (n < 0 && errno != ENODATA && errno != EOPNOTSUPP)
            return -errno;
    }
    return 0;
}

static int over_enter_uppers(const struct over *o, const char *name, struct over *ret) {
    for (size_t i = 0; i < o->count && !ret->whole; i++) {
        int fd = over_open(o->uppers[i], name);
        if (fd == -ENOENT)
            continue;
        ret->whole = fd == -ENOTDIR; /* a whiteout or file hides the directories below */
        if (fd < 0 && !ret->whole)
            return fd;
        int marked = fd < 0 ? 0 : over_is_marked(o, fd);
        if (fd >= 0)
            ret->uppers[ret->count++] = fd;
        if (marked < 0)
            return marked;
        ret->whole |= marked == 1;
    }
    return 0;
}

int over_enter(const struct over *o, const char *name, struct over *ret) {
    *ret = (struct over){.base = -1, .whole = o->whole, .marks = o->marks};
    int base = o->base < 0 ? -ENOENT : over_open(o->base, name);
    if (base < 0 && base != -ENOENT && base != -ENOTDIR)
        return base;
    ret->base = base < 0 ? -1 : base;
    ret->whole |= base < 0;
    int r = over_enter_uppers(o, name, ret);
    if (r < 0)
        over_done(ret);
    return r;
}

static int list_one(int dir, int (*add)(void *arg, const char *name), void *arg) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    if (!d)
        return -errno;
    for (;;) {
        errno = 0;
        struct dirent *e = readdir(d);
        if (!e)
            return -errno;
        int r = is_dots(e->d_name) ? 0 : add(arg, e->d_name);
        if (r < 0)
            return r;
    }
}

int over_list(const struct over *o, int merged, int (*add)(void *arg, const char *name),
              void *arg) {
    int r = o->whole ? list_one(merged, add, arg) : 0;
    if (r == 0 && o->whole && o->base >= 0)
        r = list_one(o->base, add, arg);
    for (size_t i = 0; r == 0 && !o->whole && i < o->count; i++)
        r = list_one(o->uppers[i], add, arg);
    return r;
}

int over_hides(const struct over *o, const char *name) {
    struct stat st;
    if (o->base < 0)
        return 0;
    return fstatat(o->base, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? 1 : errno == ENOENT ? 0 : -errno;
}
