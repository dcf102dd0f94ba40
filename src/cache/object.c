#include "cache/object.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/sha256.h"

#define MAGIC "carrel-package 1"

enum { FILES_MAX = 20000 }; /* of one cache, so that its directory is listed in little time */

void object_name(const struct cache_subject *s, char ret[OBJECT_NAME_SIZE]) {
    char text[CACHE_ORIGIN_SIZE + CACHE_PATH_SIZE + 8], hex[SHA256_HEX];
    int n = snprintf(text, sizeof(text), "%s\n%d\n%s", s->origin, s->local, s->path);
    sha256_hex(text, (size_t)n, hex);
    snprintf(ret, OBJECT_NAME_SIZE, "o-%.40s", hex);
}

/* ---- one package ---- */

static void put_head(const struct cache_subject *s, const char *digest, char ret[OBJECT_HEAD]) {
    memset(ret, 0, OBJECT_HEAD);
    snprintf(ret, OBJECT_HEAD, MAGIC "\n%s\n%d\n%s%s\n", digest, s->local, s->origin, s->path);
}

int object_keep(int dir, const char *temporary, int fd, const struct cache_subject *s,
                const char *digest) {
    char head[OBJECT_HEAD], name[OBJECT_NAME_SIZE];
    put_head(s, digest, head);
    object_name(s, name);
    if (pwrite(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head))
        return -EIO;
    if (fsync(fd) < 0 || renameat(dir, temporary, dir, name) < 0 || fsync(dir) < 0)
        return -errno;
    return 0;
}

int object_open(int dir, const struct cache_subject *s, const char *digest) {
    char head[OBJECT_HEAD], wanted[OBJECT_HEAD], name[OBJECT_NAME_SIZE];
    put_head(s, digest, wanted);
    object_name(s, name);
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || pread(fd, head, sizeof(head), 0) != (ssize_t)sizeof(head) ||
        memcmp(head, wanted, sizeof(head)) != 0)
        return -1;
    return TAKE_FD(fd);
}

bool object_is_whole(int fd, const char *digest, const atomic_bool *stop) {
    char found[DIGEST_SIZE];
    return digest_of_file_until(fd, OBJECT_HEAD, digest, stop, found) == 0 &&
           strcmp(found, digest) == 0;
}

void object_touch(int fd) {
    (void)futimens(fd, NULL);
}

/* ---- all packages ---- */

struct kept {
    char name[96];
    uint64_t bytes;
    int64_t used_ms;
};

struct kept_list {
    struct kept *v;
    size_t count, size;
    uint64_t bytes;
};

static void kept_done(struct kept_list *l) {
    free(l->v);
}

static bool is_kept(const char *name) {
    return strlen(name) < sizeof(((struct kept *)0)->name) && strchr("orl", name[0]) &&
           name[1] == '-';
}

static void kept_load(int dir, struct kept_list *ret) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));) {
        struct stat st;
        if (!is_kept(e->d_name) || fstatat(dir, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (ret->count == ret->size) {
            ret->size = ret->size ? 2 * ret->size : 64;
            ret->v = xrealloc(ret->v, ret->size, sizeof(*ret->v));
        }
        struct kept *k = &ret->v[ret->count++];
        snprintf(k->name, sizeof(k->name), "%s", e->d_name);
        k->bytes = (uint64_t)st.st_size;
        k->used_ms = (int64_t)st.st_mtim.tv_sec * 1000 + st.st_mtim.tv_nsec / 1000000;
        ret->bytes += k->bytes;
    }
}

static int compare_use(const void *a, const void *b) {
    int64_t x = ((const struct kept *)a)->used_ms, y = ((const struct kept *)b)->used_ms;
    return (x > y) - (x < y);
}

void object_trim(int dir, uint64_t max) {
    struct kept_list all DEFER(kept_done) = {.v = NULL};
    kept_load(dir, &all);
    if (all.bytes <= max && all.count <= FILES_MAX)
        return;
    if (all.count)
        qsort(all.v, all.count, sizeof(*all.v), compare_use);
    for (size_t i = 0; i < all.count && (all.bytes > max || all.count - i > FILES_MAX); i++)
        if (unlinkat(dir, all.v[i].name, 0) == 0)
            all.bytes -= all.v[i].bytes;
}

void object_sweep(int dir) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, "t-", 2) == 0)
            unlinkat(dir, e->d_name, 0);
}

/* Reads digest and URL from the head of a package, which are lines 2 and 4. */
static bool read_head(int dir, const char *name, struct cache_entry *ret) {
    char head[OBJECT_HEAD + 1], *rest = head;
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0 || pread(fd, head, OBJECT_HEAD, 0) != OBJECT_HEAD)
        return false;
    head[OBJECT_HEAD] = '\0';
    const char *magic = strsep(&rest, "\n"), *digest = rest ? strsep(&rest, "\n") : NULL;
    const char *local = rest ? strsep(&rest, "\n") : NULL, *url = rest ? strsep(&rest, "\n") : NULL;
    if (!local || !url || !rest || strcmp(magic, MAGIC) != 0 || !digest_is_valid(digest))
        return false;
    ret->url = xstrdup(url);
    snprintf(ret->digest, sizeof(ret->digest), "%s", digest);
    return true;
}

void object_list(int dir, struct cache_listing *ret) {
    struct kept_list all DEFER(kept_done) = {.v = NULL};
    kept_load(dir, &all);
    ret->bytes = all.bytes;
    if (all.count)
        qsort(all.v, all.count, sizeof(*all.v), compare_use);
    ret->v = xcalloc(all.count, sizeof(*ret->v));
    for (size_t i = all.count; i-- > 0;) {
        struct cache_entry *e = &ret->v[ret->count];
        if (all.v[i].name[0] != 'o' || !read_head(dir, all.v[i].name, e))
            continue;
        e->bytes = all.v[i].bytes > OBJECT_HEAD ? all.v[i].bytes - OBJECT_HEAD : 0;
        e->used_ms = all.v[i].used_ms;
        ret->count++;
    }
}

void object_clear(int dir, uint64_t *ret_count, uint64_t *ret_bytes) {
    struct kept_list all DEFER(kept_done) = {.v = NULL};
    kept_load(dir, &all);
    for (size_t i = 0; i < all.count; i++)
        if (unlinkat(dir, all.v[i].name, 0) == 0) {
            *ret_count += all.v[i].name[0] == 'o';
            *ret_bytes += all.v[i].bytes;
        }
}
