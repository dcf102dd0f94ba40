#include "service/images/share.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"

enum { DEPTH_MAX = 200, PIECE = 1 << 16 };

static const char aside[] = ".carrel-shared"; /* temporary name of a file in the unfinished tree */

struct sharing {
    uint64_t bytes;
    unsigned depth;
    char *a, *b; /* buffers for comparing two files */
};

static bool same_look(const struct stat *a, const struct stat *b) {
    return S_ISREG(a->st_mode) && a->st_mode == b->st_mode && a->st_uid == b->st_uid &&
           a->st_gid == b->st_gid && a->st_size == b->st_size &&
           a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
           a->st_dev == b->st_dev && a->st_ino != b->st_ino;
}

/* Files with extended attributes are not shared: the attributes would have to be compared too. */
static bool same_bytes(struct sharing *s, int a, int b) {
    if (flistxattr(a, NULL, 0) > 0 || flistxattr(b, NULL, 0) > 0)
        return false;
    for (;;) {
        ssize_t n = read(a, s->a, PIECE), m = read(b, s->b, PIECE);
        if (n != m || n < 0 || memcmp(s->a, s->b, (size_t)n) != 0)
            return false;
        if (n == 0)
            return true;
    }
}

static void share_file(struct sharing *s, int parent, int child, const char *name,
                       const struct stat *mine) {
    const int how = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
    struct stat theirs, now;
    if (fstatat(parent, name, &theirs, AT_SYMLINK_NOFOLLOW) < 0 || !same_look(&theirs, mine))
        return;
    int a DEFER_CLOSE = openat(parent, name, how), b DEFER_CLOSE = openat(child, name, how);
    if (a < 0 || b < 0 || fstat(a, &now) < 0 || !same_look(&now, mine) || !same_bytes(s, a, b))
        return;
    if (linkat(parent, name, child, aside, 0) < 0)
        return;
    if (renameat(child, aside, child, name) < 0)
        unlinkat(child, aside, 0);
    else
        s->bytes += (uint64_t)mine->st_blocks * 512;
}

static void share_dir(struct sharing *s, int parent, int child);

static void share_subdir(struct sharing *s, int parent, int child, const char *name) {
    int a DEFER_CLOSE = dir_open(parent, name), b DEFER_CLOSE = dir_open(child, name);
    if (a < 0 || b < 0 || s->depth >= DEPTH_MAX)
        return;
    s->depth++;
    share_dir(s, a, b);
    s->depth--;
}

/* Shares the files in a directory. Restores its times, which are part of the image. */
static void share_dir(struct sharing *s, int parent, int child) {
    struct stat before;
    DIR *d DEFER(dir_close) = dir_list(child, ".");
    if (!d || fstat(child, &before) < 0)
        return;
    for (struct dirent *e; (e = readdir(d));) {
        struct stat mine;
        if (is_dots(e->d_name) || strcmp(e->d_name, aside) == 0 ||
            fstatat(child, e->d_name, &mine, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(mine.st_mode))
            share_subdir(s, parent, child, e->d_name);
        else if (S_ISREG(mine.st_mode) && mine.st_size > 0 && mine.st_nlink == 1)
            share_file(s, parent, child, e->d_name, &mine);
    }
    futimens(child, (const struct timespec[]){before.st_atim, before.st_mtim});
}

uint64_t image_share(int parent, int child) {
    char *a DEFER_FREE = malloc(PIECE), *b DEFER_FREE = malloc(PIECE);
    struct sharing s = {.a = a, .b = b};
    if (a && b)
        share_dir(&s, parent, child);
    return s.bytes;
}
