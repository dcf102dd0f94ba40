#include "cli/image/build_copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/fs/dots.h"
#include "cli/image/build_watch.h"

enum { COPY_BLOCK = 256 << 10, COPY_NAMES_MAX = 100000 };

void build_copy_done(struct build_copy *c) {
    arena_done(&c->arena);
    *c = (struct build_copy){0};
}

/* ---- collecting ---- */

struct collect {
    struct build_copy *copy;
    int dir;
    const struct dockerignore *ignore;
    struct err *err;
    bool excluded; /* .dockerignore excludes a source */
};

static int collect_fail(const struct collect *x, int r, const char *path) {
    if (r == -EXDEV || beneath_leaves(r))
        return err_set(x->err, ERR_DENIED, "'%.150s' leads out of the build's directory", path);
    return err_num(x->err, r, "cannot read '%.150s' of the build's directory", path);
}

/* Opens a file or directory; a link is followed only inside the directory, and only a source. */
static int collect_open(int dir, const char *path, bool is_source, int flags) {
    return beneath_open(dir, *path ? path : ".",
                        flags | (is_source ? 0 : O_NOFOLLOW) |
                            (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY));
}

/* Reads `size` bytes and hashes them; `write` (may be NULL) gets them too. */
typedef int copy_write_fn(void *arg, const void *bytes, size_t n, struct err *err);
static int copy_read(int fd, const struct build_copy_entry *e, copy_write_fn *write, void *arg,
                     uint8_t ret[SHA256_BYTES], struct err *err) {
    char *block DEFER_FREE = xmalloc(COPY_BLOCK);
    struct sha256 hash;
    sha256_init(&hash);
    for (uint64_t left = e->size; left > 0;) {
        ssize_t n = read(fd, block, left < COPY_BLOCK ? (size_t)left : COPY_BLOCK);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(err, "cannot read file '%.150s'", e->source);
        if (n == 0)
            return err_set(err, ERR_BUSY, "file '%.150s' became shorter during the build",
                           e->source);
        sha256_add(&hash, block, (size_t)n);
        if (write && write(arg, block, (size_t)n, err) < 0)
            return -1;
        left -= (uint64_t)n;
    }
    sha256_end(&hash, ret);
    return 0;
}

static struct build_copy_entry *collect_add(struct collect *x, const char *source, const char *name,
                                            const struct stat *st) {
    struct build_copy *c = x->copy;
    if (c->count == BUILD_COPY_ENTRIES_MAX || strlen(name) > TAR_NAME_MAX) {
        err_set(x->err, ERR_LIMIT, "the copy has more than %d files, or a path is too long",
                BUILD_COPY_ENTRIES_MAX);
        return NULL;
    }
    c->entries = arena_grow(&c->arena, c->entries, c->count, sizeof(*c->entries));
    struct build_copy_entry *e = &c->entries[c->count++];
    *e = (struct build_copy_entry){.source = arena_copy(&c->arena, source, strlen(source)),
                                   .name = arena_copy(&c->arena, name, strlen(name)),
                                   .mode = st->st_mode & 01777,
                                   .mtime = st->st_mtime};
    return e;
}

static int collect_file(struct collect *x, int fd, const char *source, const char *name,
                        const struct stat *st, bool is_source) {
    struct build_copy_entry *e = collect_add(x, source, name, st);
    if (!e)
        return -1;
    e->kind = TAR_FILE;
    e->size = (uint64_t)st->st_size;
    e->is_source = is_source;
    return copy_read(fd, e, NULL, NULL, e->hash, x->err);
}

static int collect_link(struct collect *x, const char *source, const char *name,
                        const struct stat *st) {
    char target[TAR_NAME_MAX + 1];
    int fd DEFER_CLOSE = collect_open(x->dir, source, false, O_PATH);
    ssize_t n = fd < 0 ? -1 : readlinkat(fd, "", target, sizeof(target));
    if (n < 0 || n >= (ssize_t)sizeof(target))
        return err_sys(x->err, "cannot read link '%.150s'", source);
    struct build_copy_entry *e = collect_add(x, source, name, st);
    if (!e)
        return -1;
    e->kind = TAR_SYMLINK;
    e->target = arena_copy(&x->copy->arena, target, (size_t)n);
    return 0;
}

static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Lists the names in a directory, in the order of their bytes. The descriptor is consumed. */
static int list_names(struct collect *x, int fd, const char *path, const char ***ret,
                      size_t *ret_count) {
    struct arena *a = &x->copy->arena;
    DIR *d DEFER(dir_close) = dir_take(fd);
    const char **names = NULL;
    size_t count = 0;
    if (!d)
        return err_sys(x->err, "cannot read directory '%.150s'", path);
    for (struct dirent *e; (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        if (count == COPY_NAMES_MAX)
            return err_set(x->err, ERR_LIMIT, "directory '%.100s' has more than %d entries", path,
                           COPY_NAMES_MAX);
        names = arena_grow(a, names, count, sizeof(*names));
        names[count++] = arena_copy(a, e->d_name, strlen(e->d_name));
    }
    if (count)
        qsort(names, count, sizeof(*names), compare_names);
    *ret = names;
    *ret_count = count;
    return 0;
}

static const char *join(struct collect *x, const char *dir, const char *name) {
    return arena_printf(&x->copy->arena, "%s%s%s", dir, *dir ? "/" : "", name);
}

static int collect_dir(struct collect *x, int fd, const char *source, const char *name,
                       unsigned depth);

/* Adds one path below a directory that is copied. Ignored directories may have files that are not.
 */
static int collect_child(struct collect *x, const char *source, const char *name, unsigned depth) {
    bool ignored = dockerignore_matches(x->ignore, source);
    struct stat st;
    if (ignored && !x->ignore->has_includes)
        return 0;
    int at DEFER_CLOSE = collect_open(x->dir, source, false, O_PATH);
    if (at < 0 || fstat(at, &st) < 0)
        return collect_fail(x, at < 0 ? at : -errno, source);
    if (ignored && !S_ISDIR(st.st_mode))
        return 0;
    if (S_ISLNK(st.st_mode))
        return collect_link(x, source, name, &st);
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return err_set(x->err, ERR_INVALID, "'%.150s' is not a file, a directory or a link",
                       source);
    int fd DEFER_CLOSE = collect_open(x->dir, source, false, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return collect_fail(x, fd < 0 ? fd : -errno, source);
    if (S_ISREG(st.st_mode))
        return collect_file(x, fd, source, name, &st, false);
    if (!ignored) {
        struct build_copy_entry *e = collect_add(x, source, name, &st);
        if (!e)
            return -1;
        e->kind = TAR_DIR;
    }
    return collect_dir(x, TAKE_FD(fd), source, name, depth + 1);
}

/* Adds what is in a directory. The descriptor is consumed. */
static int collect_dir(struct collect *x, int fd, const char *source, const char *name,
                       unsigned depth) {
    const char **names;
    size_t count;
    if (depth > BUILD_COPY_DEPTH_MAX) {
        close(fd);
        return err_set(x->err, ERR_LIMIT, "directories are nested more than %d deep",
                       BUILD_COPY_DEPTH_MAX);
    }
    if (list_names(x, fd, source, &names, &count) < 0)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (collect_child(x, join(x, source, names[i]), join(x, name, names[i]), depth) < 0)
            return -1;
    return 0;
}

/* Writes the path that a descriptor has in /proc. False: it has none that fits. */
static bool path_of(int fd, char ret[PATH_MAX]) {
    char link[64];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, ret, PATH_MAX - 1);
    ret[n > 0 ? n : 0] = '\0';
    return n > 0 && n < PATH_MAX - 1;
}

/*
 * Returns the path of an open source without links and "..", because patterns of .dockerignore are
 * compared with that. NULL with x->err: it is unknown.
 */
static const char *collect_real(struct collect *x, int fd, const char *source) {
    char top[PATH_MAX], path[PATH_MAX];
    size_t n = path_of(x->dir, top) ? strlen(top) : 0;
    n -= n == 1; /* the build's directory is the root */
    if (top[0] && path_of(fd, path) && strncmp(path, top, n) == 0 && (!path[n] || path[n] == '/'))
        return arena_printf(&x->copy->arena, "%s", path + n + (path[n] == '/'));
    err_set(x->err, ERR_DENIED, "cannot find the path of '%.150s' in the build's directory",
            source);
    return NULL;
}

/* Adds a directory that the instruction names. An excluded one may have files that are not. */
static int collect_named_dir(struct collect *x, int fd, const char *path, bool ignored) {
    size_t before = x->copy->count;
    if (collect_dir(x, fd, path, "", 0) < 0)
        return -1;
    if (ignored && x->copy->count == before) {
        x->excluded = true;
        return 0;
    }
    x->copy->sources++;
    x->copy->has_dir = true;
    return 0;
}

/* Adds a file or directory that the instruction names, unless .dockerignore excludes it. */
static int collect_source(struct collect *x, const char *source) {
    struct stat st;
    const char *slash = strrchr(source, '/');
    int fd DEFER_CLOSE = collect_open(x->dir, source, true, O_RDONLY);
    if (fd < 0 || fstat(fd, &st) < 0)
        return collect_fail(x, fd < 0 ? fd : -errno, source);
    const char *path = collect_real(x, fd, source);
    if (!path)
        return -1;
    bool ignored =
        *path && (dockerignore_matches(x->ignore, path) || dockerignore_matches(x->ignore, source));
    if (ignored && (!S_ISDIR(st.st_mode) || !x->ignore->has_includes)) {
        x->excluded = true;
        return 0;
    }
    if (S_ISDIR(st.st_mode))
        return collect_named_dir(x, TAKE_FD(fd), path, ignored);
    if (!S_ISREG(st.st_mode))
        return err_set(x->err, ERR_INVALID, "'%.150s' is not a regular file", source);
    x->copy->sources++;
    return collect_file(x, fd, path, slash ? slash + 1 : source, &st, true);
}

/* Replaces wildcards in the part of `pattern` after `dir`; adds every path that matches. */
static int collect_glob(struct collect *x, const char *dir, const char *pattern, unsigned depth) {
    const char **names;
    size_t count, n = strcspn(pattern, "/");
    const char *part = arena_copy(&x->copy->arena, pattern, n);
    const char *rest = pattern + n + (pattern[n] == '/');
    if (depth > BUILD_COPY_DEPTH_MAX)
        return err_set(x->err, ERR_LIMIT, "path '%.100s' is too deep", pattern);
    if (!strpbrk(part, "*?[\\")) {
        const char *path = join(x, dir, part);
        if (*rest)
            return collect_glob(x, path, rest, depth + 1);
        int at DEFER_CLOSE = collect_open(x->dir, path, true, O_PATH);
        return at == -ENOTDIR || at == -ENOENT ? 0 : collect_source(x, path);
    }
    int fd = collect_open(x->dir, dir, true, O_RDONLY | O_DIRECTORY);
    if (fd == -ENOTDIR || fd == -ENOENT)
        return 0;
    if (fd < 0)
        return collect_fail(x, fd, dir);
    if (list_names(x, fd, dir, &names, &count) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        const char *path = join(x, dir, names[i]);
        if (fnmatch(part, names[i], 0) != 0)
            continue;
        if ((*rest ? collect_glob(x, path, rest, depth + 1) : collect_source(x, path)) < 0)
            return -1;
    }
    return 0;
}

/* Removes "./" and slashes around and in the path; ".." stays, and is refused when it is opened. */
static const char *clean_source(struct build_copy *c, const char *path) {
    char *to = arena_alloc(&c->arena, strlen(path) + 1);
    size_t n = 0;
    for (const char *at = path; *(at += strspn(at, "/"));) {
        size_t part = strcspn(at, "/");
        if (part != 1 || *at != '.') {
            if (n)
                to[n++] = '/';
            memcpy(to + n, at, part);
            n += part;
        }
        at += part;
    }
    return to;
}

static int collect_word(struct collect *x, const char *word) {
    const char *source = clean_source(x->copy, word);
    size_t before = x->copy->sources;
    bool wild = strpbrk(source, "*?[") != NULL;
    x->excluded = false;
    if ((wild ? collect_glob(x, "", source, 0) : collect_source(x, source)) < 0)
        return -1;
    if (x->copy->sources > before)
        return 0;
    return x->excluded
               ? err_set(x->err, ERR_NOT_FOUND, "'%.150s' is excluded by .dockerignore", source)
               : err_set(x->err, ERR_NOT_FOUND, "no file matches '%.150s'", word);
}

static void add_entry_to_key(struct sha256 *key, const struct build_copy_entry *e) {
    char head[64];
    snprintf(head, sizeof(head), "%d %o %llu", (int)e->kind, e->mode, (unsigned long long)e->size);
    sha256_add(key, head, strlen(head) + 1);
    sha256_add(key, e->name, strlen(e->name) + 1);
    if (e->target)
        sha256_add(key, e->target, strlen(e->target) + 1);
    sha256_add(key, e->hash, sizeof(e->hash));
}

int build_copy_collect(struct build_copy *c, int dir, const struct dockerignore *ignore,
                       const struct recipe_line *l, struct sha256 *key, struct err *err) {
    struct collect x = {.copy = c, .dir = dir, .ignore = ignore, .err = err};
    build_copy_done(c);
    for (size_t i = 0; i + 1 < l->count; i++)
        if (collect_word(&x, l->words[i]) < 0)
            return -1;
    const char *to = l->words[l->count - 1];
    if (c->sources > 1 && to[strlen(to) - 1] != '/') {
        err_set(err, ERR_INVALID, "several files are copied to '%.100s', which is not a directory",
                to);
        return err_remedy(err, "end the destination with a slash: %.100s/", to);
    }
    for (size_t i = 0; i < c->count; i++)
        add_entry_to_key(key, &c->entries[i]);
    return 0;
}

/* ---- sending ---- */

static int send_bytes(void *arg, const void *bytes, size_t n, struct err *err) {
    struct client *client = arg;
    if (build_watch_is_over())
        return err_set(err, ERR_GONE, "the build was cancelled");
    return n ? http_client_write(client->http, bytes, n, err) : 0;
}

static int send_head(struct client *client, const struct tar_entry *e, struct err *err) {
    uint8_t head[TAR_HEAD_MAX];
    return send_bytes(client, head, tar_put(head, e), err);
}

static int send_padding(struct client *client, uint64_t size, struct err *err) {
    static const uint8_t zeros[TAR_BLOCK];
    return send_bytes(client, zeros, tar_padding(size), err);
}

static int send_entry(const struct build_copy_entry *e, int dir, struct client *client,
                      const char *chmod, struct err *err) {
    uint8_t hash[SHA256_BYTES];
    struct tar_entry *t DEFER_FREE = xnew(struct tar_entry);
    *t = (struct tar_entry){.kind = e->kind, .mode = e->mode, .size = e->size, .mtime = e->mtime};
    if (chmod && e->kind != TAR_SYMLINK)
        t->mode = (uint32_t)strtoul(chmod, NULL, 8) & 01777;
    snprintf(t->path, sizeof(t->path), "%s", e->name);
    snprintf(t->target, sizeof(t->target), "%s", e->target ? e->target : "");
    if (send_head(client, t, err) < 0)
        return -1;
    if (e->kind != TAR_FILE)
        return 0;
    int fd DEFER_CLOSE = collect_open(dir, e->source, e->is_source, O_RDONLY);
    if (fd < 0)
        return err_num(err, fd, "cannot read file '%.150s'", e->source);
    if (copy_read(fd, e, send_bytes, client, hash, err) < 0)
        return -1;
    if (memcmp(hash, e->hash, sizeof(hash)) != 0)
        return err_set(err, ERR_BUSY, "file '%.150s' was changed during the build", e->source);
    return send_padding(client, e->size, err);
}

static int send_begin(struct client *client, const char *target, struct err *err) {
    const struct client_request r = {.method = "PUT", .target = target, .streamed = true};
    return client_send(client, client->http, &r, err);
}

static int send_end(struct client *client, struct err *err) {
    static const uint8_t end[2 * TAR_BLOCK];
    struct buf answer DEFER(buf_done) = BUF(1 << 20);
    const struct http_head *head;
    if (send_bytes(client, end, sizeof(end), err) < 0 ||
        http_client_finish(client->http, err) < 0 || client_answer(client->http, &head, err) < 0)
        return -1;
    return http_client_collect(client->http, &answer, err);
}

int build_copy_send(const struct build_copy *c, int dir, struct client *client, const char *target,
                    const char *chmod, struct err *err) {
    if (send_begin(client, target, err) < 0)
        return -1;
    for (size_t i = 0; i < c->count; i++)
        if (send_entry(&c->entries[i], dir, client, chmod, err) < 0)
            return -1;
    return send_end(client, err);
}

int build_copy_send_bytes(struct client *client, const char *target, const struct buf *bytes,
                          mode_t mode, struct err *err) {
    struct tar_entry *t DEFER_FREE = xnew(struct tar_entry);
    *t = (struct tar_entry){
        .kind = TAR_FILE, .mode = mode, .size = bytes->len, .mtime = wall_ms() / 1000};
    snprintf(t->path, sizeof(t->path), "file");
    return send_begin(client, target, err) < 0 || send_head(client, t, err) < 0 ||
                   send_bytes(client, bytes->data, bytes->len, err) < 0 ||
                   send_padding(client, bytes->len, err) < 0
               ? -1
               : send_end(client, err);
}
