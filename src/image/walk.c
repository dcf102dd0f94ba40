#include "image/walk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fs/dir.h"
#include "base/map.h"
#include "base/sort.h"

enum { ATTRIBUTE_NAMES_MAX = 64 << 10, ATTRIBUTES_MAX = 256 };

/* The first name of a file with several names (hard links). */
struct twin {
    char key[40];
    char path[];
};

struct state {
    const struct walk *w;
    struct map twins;
    char path[IMAGE_PATH_MAX + 1];
};

struct names {
    char **v;
    size_t count, size;
};

static void names_done(struct names *n) {
    while (n->count)
        free(n->v[--n->count]);
    free(n->v);
}

static int names_add(struct names *n, const char *name) {
    if (n->count == n->size) {
        size_t size = n->size ? 2 * n->size : 64;
        char **more = reallocarray(n->v, size, sizeof(*more));
        if (!more)
            return -ENOMEM;
        n->v = more;
        n->size = size;
    }
    if (!(n->v[n->count] = strdup(name)))
        return -ENOMEM;
    n->count++;
    return 0;
}

static int walk_add_name(void *arg, const char *name) {
    return names_add(arg, name);
}

static int walk_list(int dir, const struct over *o, struct names *ret) {
    const struct over all = {.base = -1, .whole = true};
    int r = over_list(o ? o : &all, dir, walk_add_name, ret);
    if (r == 0)
        ret->count = sort_texts_once(ret->v, ret->count);
    return r;
}

static int twin_of(struct state *s, const struct stat *st, const char **ret) {
    char key[40];
    *ret = NULL;
    if (st->st_nlink < 2)
        return 0;
    snprintf(key, sizeof(key), "%" PRIx64 ":%" PRIx64, (uint64_t)st->st_dev, (uint64_t)st->st_ino);
    struct twin *t = map_get(&s->twins, key);
    if (t) {
        *ret = t->path;
        return 0;
    }
    t = calloc(1, sizeof(*t) + strlen(s->path) + 1);
    if (!t)
        return -ENOMEM;
    memcpy(t->key, key, sizeof(t->key));
    memcpy(t->path, s->path, strlen(s->path) + 1);
    map_put(&s->twins, t->key, t);
    return 0;
}

static void free_twins(struct map *m) {
    struct twin *t;
    for (size_t at = 0; (t = map_next(m, &at));)
        free(t);
    map_done(m);
}

static int walk_describe(struct state *s, const struct stat *st, struct walk_entry *ret,
                         struct err *err) {
    *ret = (struct walk_entry){
        .path = s->path, .mode = st->st_mode, .mtime = st->st_mtim.tv_sec, .fd = -1};
    if (image_id_from_disk(&s->w->ids, st->st_uid, &ret->uid) < 0 ||
        image_id_from_disk(&s->w->ids, st->st_gid, &ret->gid) < 0)
        return err_set(err, ERR_INVALID, "path '/%.120s' has an owner that an image cannot store",
                       s->path);
    if (S_ISREG(st->st_mode))
        ret->size = (uint64_t)st->st_size;
    return 0;
}

static bool is_kept(const char *name) {
    return (strncmp(name, "user.", 5) == 0 && strncmp(name, "user.overlay.", 13) != 0) ||
           strcmp(name, "security.capability") == 0;
}

/* True for attributes that an image cannot have; a directory of an image has no user.* attributes.
 * Attributes that the kernel of the host sets by itself (security.selinux) are ignored. */
static bool is_foreign(const char *name, bool is_dir) {
    return strncmp(name, "trusted.", 8) == 0 || strncmp(name, "system.posix_acl_", 17) == 0 ||
           (strncmp(name, "user.", 5) == 0 && (is_dir || !is_kept(name)));
}

static int check_attributes(const struct state *s, int fd, bool is_dir, struct err *err) {
    ssize_t n = s->w->strict && fd >= 0 ? flistxattr(fd, NULL, 0) : 0;
    if (n <= 0)
        return n < 0 && errno != EOPNOTSUPP
                   ? err_sys(err, "cannot read the attributes of '/%.80s'", s->path)
                   : 0;
    char *names DEFER_FREE = malloc(ATTRIBUTE_NAMES_MAX);
    if (!names)
        return err_set(err, ERR_LIMIT, "out of memory");
    if ((n = flistxattr(fd, names, ATTRIBUTE_NAMES_MAX)) < 0)
        return err_sys(err, "cannot read the attributes of '/%.80s'", s->path);
    for (const char *name = names; name < names + n; name += strlen(name) + 1) {
        if (!is_foreign(name, is_dir))
            continue;
        err_set(err, ERR_INVALID,
                "path '/%.120s' has the attribute '%.60s', which an image cannot have", s->path,
                name);
        return err_remedy(
            err, "if the archive does not set the attribute, CARREL_HOME does: remove it there, "
                 "see getfacl and setfacl");
    }
    return 0;
}

static int walk_tell(struct state *s, const struct walk_entry *e, struct err *err) {
    return s->w->fn(s->w->arg, e, err);
}

static int walk_file(struct state *s, int dir, const char *name, const struct stat *st,
                     struct err *err) {
    struct walk_entry e;
    if (walk_describe(s, st, &e, err) < 0)
        return -1;
    e.linked = st->st_nlink > 1;
    int r = twin_of(s, st, &e.twin);
    if (r < 0)
        return err_num(err, r, "cannot read file '/%.120s'", s->path);
    int fd DEFER_CLOSE =
        e.twin ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (!e.twin && fd < 0)
        return err_sys(err, "cannot open file '/%.120s'", s->path);
    e.fd = fd;
    return check_attributes(s, fd, false, err) < 0 ? -1 : walk_tell(s, &e, err);
}

static int walk_link(struct state *s, int dir, const char *name, const struct stat *st,
                     struct err *err) {
    char target[IMAGE_PATH_SIZE];
    struct walk_entry e;
    ssize_t n = readlinkat(dir, name, target, sizeof(target) - 1);
    if (n < 0)
        return err_sys(err, "cannot read symbolic link '/%.120s'", s->path);
    target[n] = '\0';
    if (walk_describe(s, st, &e, err) < 0)
        return -1;
    e.target = target;
    return walk_tell(s, &e, err);
}

static int walk_dir(struct state *s, int dir, const struct over *o, unsigned depth,
                    struct err *err);

static int walk_subdir(struct state *s, int dir, const char *name, const struct over *o,
                       unsigned depth, struct err *err) {
    bool lent = s->w->usr >= 0 && strcmp(s->path, "usr") == 0;
    int sub DEFER_CLOSE = lent ? dir_open(s->w->usr, ".") : dir_open(dir, name);
    struct over inner DEFER(over_done) = {.base = -1};
    if (sub < 0)
        return err_sys(err, "cannot open directory '/%.120s'", s->path);
    int r = o ? over_enter(o, name, &inner) : 0;
    if (r < 0)
        return err_num(err, r, "cannot open directory '/%.120s' in a layer", s->path);
    return walk_dir(s, sub, lent ? s->w->usr_over : o ? &inner : NULL, depth, err);
}

/* A name that the merged files do not have, or that an image cannot have. */
static int walk_missing(struct state *s, const char *name, const struct over *o, struct err *err) {
    int hides = o ? over_hides(o, name) : 0;
    if (hides <= 0)
        return hides < 0 ? err_num(err, hides, "cannot read '/%.120s' of the image below", s->path)
                         : 0;
    return walk_tell(s, &(struct walk_entry){.path = s->path, .mode = S_IFCHR, .fd = -1}, err);
}

/* The image id does not cover a device or socket, so nothing may have created one. */
static int walk_refuse_kind(const struct state *s, struct err *err) {
    return err_set(err, ERR_INVALID,
                   "path '/%.120s' is a device or socket, which an image cannot have", s->path);
}

/* In an archive, such a name marks a deleted file. */
static int walk_refuse_mark(const struct state *s, struct err *err) {
    err_set(err, ERR_INVALID,
            "the name of '/%.120s' starts with '" IMAGE_WHITEOUT
            "', which marks deleted files in the layers of images",
            s->path);
    return err_remedy(err, "rename or delete the file");
}

static int walk_name(struct state *s, int dir, const char *name, const struct over *o,
                     unsigned depth, struct err *err) {
    struct stat st;
    struct walk_entry e;
    if (o && strncmp(name, IMAGE_WHITEOUT, strlen(IMAGE_WHITEOUT)) == 0)
        return walk_refuse_mark(s, err);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return o && errno == ENOENT
                   ? walk_missing(s, name, o, err)
                   : err_sys(err, "cannot read the metadata of '/%.120s'", s->path);
    if (S_ISDIR(st.st_mode))
        return walk_subdir(s, dir, name, o, depth, err);
    if (S_ISREG(st.st_mode))
        return walk_file(s, dir, name, &st, err);
    if (S_ISLNK(st.st_mode))
        return walk_link(s, dir, name, &st, err);
    bool whiteout = s->w->whiteouts && S_ISCHR(st.st_mode) && st.st_rdev == 0;
    if (!S_ISFIFO(st.st_mode) && !whiteout)
        return s->w->strict ? walk_refuse_kind(s, err) : walk_missing(s, name, o, err);
    return walk_describe(s, &st, &e, err) < 0 ? -1 : walk_tell(s, &e, err);
}

static int walk_dir(struct state *s, int dir, const struct over *o, unsigned depth,
                    struct err *err) {
    struct names names DEFER(names_done) = {0};
    struct stat st;
    struct walk_entry e;
    size_t len = strlen(s->path);
    if (depth > IMAGE_DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "path '/%.120s' is more than %d directories deep", s->path,
                       IMAGE_DEPTH_MAX);
    if (fstat(dir, &st) < 0)
        return err_sys(err, "cannot read the metadata of '/%.120s'", s->path);
    if (walk_describe(s, &st, &e, err) < 0 || check_attributes(s, dir, true, err) < 0 ||
        walk_tell(s, &e, err) < 0)
        return -1;
    int r = walk_list(dir, o, &names);
    if (r < 0)
        return err_num(err, r, "cannot list directory '/%.120s'", s->path);
    for (size_t i = 0; i < names.count; i++) {
        int n = snprintf(s->path + len, sizeof(s->path) - len, "%s%s", len ? "/" : "", names.v[i]);
        if (n < 0 || (size_t)n >= sizeof(s->path) - len)
            return err_set(err, ERR_LIMIT, "a path below directory '/%.80s' is too long", s->path);
        r = walk_name(s, dir, names.v[i], o, depth + 1, err);
        s->path[len] = '\0';
        if (r < 0)
            return -1;
    }
    return 0;
}

int image_walk(const struct walk *w, struct err *err) {
    struct state *s DEFER_FREE = calloc(1, sizeof(*s));
    if (!s)
        return err_set(err, ERR_LIMIT, "out of memory");
    s->w = w;
    int r = walk_dir(s, w->root, w->over, 0, err);
    free_twins(&s->twins);
    return r;
}

int image_attributes(const struct walk_entry *e, walk_attribute_fn *fn, void *arg,
                     struct err *err) {
    char *names DEFER_FREE = NULL, *value DEFER_FREE = NULL;
    char *sorted[ATTRIBUTES_MAX];
    size_t count = 0;
    /* Most files have no attributes: one call is enough for them. */
    ssize_t n = e->fd < 0 ? 0 : flistxattr(e->fd, NULL, 0);
    if (n <= 0)
        return n < 0 && errno != EOPNOTSUPP
                   ? err_sys(err, "cannot read the attributes of '/%.80s'", e->path)
                   : 0;
    names = malloc(ATTRIBUTE_NAMES_MAX);
    value = malloc(ATTRIBUTE_NAMES_MAX);
    if (!names || !value)
        return err_set(err, ERR_LIMIT, "out of memory");
    if ((n = flistxattr(e->fd, names, ATTRIBUTE_NAMES_MAX)) < 0)
        return err_sys(err, "cannot read the attributes of '/%.80s'", e->path);
    for (char *name = names; name < names + n && count < ATTRIBUTES_MAX; name += strlen(name) + 1)
        if (is_kept(name))
            sorted[count++] = name;
    qsort(sorted, count, sizeof(*sorted), by_bytes_of_text);
    for (size_t i = 0; i < count; i++) {
        ssize_t size = fgetxattr(e->fd, sorted[i], value, ATTRIBUTE_NAMES_MAX);
        if (size < 0)
            return err_sys(err, "cannot read the attributes of '/%.80s'", e->path);
        if (fn(arg, sorted[i], value, (size_t)size, err) < 0)
            return -1;
    }
    return 0;
}
