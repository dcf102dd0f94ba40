#include "review/parcel.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/sha256.h"
#include "base/utf8.h"
#include "review/flags.h"

enum { DEPTH_MAX = 64, LINK_MAX = 4096, FOLLOWS_MAX = 64, STEPS_MAX = 512 };

#define STAGE_PREFIX ".carrel-ship-"
#define NOT_UTF8 "the name is not valid UTF-8, so the receipt cannot list the file"
#define OTHER_KIND "the entry is not a file, directory or symbolic link"
#define CHANGED_HERE "the file changed on your side since the machine was made"

/* ---- hashes ---- */

static bool hash_fd(int fd, char ret[SHA256_HEX]) {
    char bytes[64 << 10];
    struct sha256 s;
    sha256_init(&s);
    for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) != 0;) {
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return false;
        sha256_add(&s, bytes, (size_t)n);
    }
    sha256_end_hex(&s, ret);
    return true;
}

int parcel_parent(int dir, const char *path, const char **ret_name) {
    return beneath_parent(dir, path, O_PATH, ret_name);
}

bool parcel_hash(int dir, const char *path, char ret[SHA256_HEX]) {
    const char *name;
    char target[LINK_MAX];
    struct stat st;
    int parent DEFER_CLOSE = parcel_parent(dir, path, &name);
    if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(parent, name, target, sizeof(target));
        if (n > 0)
            sha256_hex(target, (size_t)n, ret);
        return n > 0;
    }
    if (!S_ISREG(st.st_mode))
        return false;
    int fd DEFER_CLOSE = openat(parent, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    return fd >= 0 && hash_fd(fd, ret);
}

/* ---- archive ---- */

static void item_done(struct parcel_item *i) {
    free(i->path);
    free(i->target);
    free(i->own);
}

static struct parcel_item *parcel_add(struct parcel *p, const char *path, struct err *err) {
    if (p->count == PARCEL_ITEMS_MAX) {
        err_set(err, ERR_LIMIT, "the change set has more than %d files", PARCEL_ITEMS_MAX);
        return NULL;
    }
    if ((p->count & (p->count - 1)) == 0) {
        size_t room = p->count ? 2 * p->count : 16;
        p->items = xrealloc(p->items, room, sizeof(*p->items));
    }
    struct parcel_item *i = &p->items[p->count++];
    *i = (struct parcel_item){.path = xstrdup(path)};
    return i;
}

static bool is_stage(const char *part) {
    return strncmp(part, STAGE_PREFIX, strlen(STAGE_PREFIX)) == 0;
}

/* Returns the path relative to the directory, "" for the directory itself; NULL: not allowed. */
static const char *plain_path(char *path) {
    size_t n = strlen(path);
    char *at = path;
    while (n > 1 && path[n - 1] == '/')
        path[--n] = '\0';
    while (at[0] == '.' && at[1] == '/')
        at += 2;
    if (!*at || strcmp(at, ".") == 0)
        return "";
    for (char *part = at; part; part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL) {
        size_t len = strcspn(part, "/");
        if (!len || len > NAME_MAX || is_dots_part(part, len) || is_stage(part))
            return NULL;
    }
    return at;
}

/* Returns the part of a path that is the name of a stage; NULL: none. */
static const char *stage_part(const char *path) {
    const char *part = path;
    while (part && !is_stage(part))
        part = strchr(part, '/') ? strchr(part, '/') + 1 : NULL;
    return part;
}

/* A machine sees the stages of earlier deliveries, so its archive contains them. */
static bool is_own_stage(const struct parcel *p, const char *path) {
    char top[TAR_NAME_MAX + 1];
    const char *part = stage_part(path), *name;
    struct stat st;
    if (!part)
        return false;
    snprintf(top, sizeof(top), "%.*s", (int)(part - path + strcspn(part, "/")), path);
    int parent DEFER_CLOSE = parcel_parent(p->dir, top, &name);
    return parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISDIR(st.st_mode);
}

static int take_entry(struct parcel *p, struct tar_entry *e, const char *bytes, struct err *err) {
    const char *path = plain_path(e->path);
    if (!path && is_own_stage(p, e->path))
        return 0;
    if (path && !*path)
        return 0; /* the directory itself */
    struct parcel_item *i = parcel_add(p, path ? path : e->path, err);
    if (!i)
        return -1;
    memmove(e->path, i->path, strlen(i->path) + 1);
    i->kind = e->kind;
    i->mode = e->mode & 0777;
    i->mtime = e->mtime;
    i->bytes = bytes;
    i->n = e->kind == TAR_FILE ? (size_t)e->size : 0;
    i->flags = flags_of(e, bytes, i->n);
    if (e->kind == TAR_SYMLINK)
        i->target = xstrdup(e->target);
    if (i->target)
        sha256_hex(i->target, strlen(i->target), i->sha256);
    else if (e->kind == TAR_FILE)
        sha256_hex(bytes, i->n, i->sha256);
    if (!path)
        i->refused = "the path is absolute, too long or reserved, or contains '.' or '..'";
    else if (!utf8_valid(i->path, strlen(i->path)))
        i->refused = NOT_UTF8;
    else if (e->kind == TAR_OTHER || e->kind == TAR_HARDLINK || (i->target && !*i->target))
        i->refused = OTHER_KIND;
    return 0;
}

static int read_archive(struct parcel *p, struct tar_reader *r, struct tar_entry *e,
                        struct err *err) {
    for (size_t at = 0; at + TAR_BLOCK <= p->size;) {
        enum tar_step step = tar_next(r, (const uint8_t *)p->archive + at, e);
        at += TAR_BLOCK;
        if (step == TAR_END)
            return 0;
        if (step == TAR_BAD)
            return err_set(err, ERR_INVALID, "the archive of the change set is broken at byte %zu",
                           at);
        if (step != TAR_ENTRY)
            continue;
        uint64_t size = e->kind == TAR_FILE ? e->size : 0;
        if (size > p->size - at)
            return err_set(err, ERR_INVALID,
                           "the archive of the change set ends in the middle of a file");
        if (take_entry(p, e, p->archive + at, err) < 0)
            return -1;
        at += size + tar_padding(size);
    }
    return 0;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct parcel_item *)a)->path, ((const struct parcel_item *)b)->path);
}

static void sort(struct parcel *p) {
    if (p->count)
        qsort(p->items, p->count, sizeof(*p->items), by_path);
    for (size_t i = 1; i < p->count; i++)
        if (strcmp(p->items[i].path, p->items[i - 1].path) == 0)
            p->items[i].refused = "the archive has this path twice";
}

/* Returns the first item of that path: later ones are refused. Needs sorted items. */
static const struct parcel_item *parcel_find(const struct parcel *p, size_t count,
                                             const char *path) {
    const struct parcel_item key = {.path = (char *)path};
    const struct parcel_item *i =
        count ? bsearch(&key, p->items, count, sizeof(key), by_path) : NULL;
    while (i && i > p->items && by_path(i - 1, i) == 0)
        i--;
    return i;
}

/* Refuses everything below a path that is not a directory. Needs sorted items. */
static void refuse_below(struct parcel *p, const struct parcel_item *top) {
    char prefix[TAR_NAME_MAX + 2];
    size_t low = 0, high = p->count, n = (size_t)snprintf(prefix, sizeof(prefix), "%s/", top->path);
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(p->items[middle].path, prefix) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < p->count && strncmp(p->items[low].path, prefix, n) == 0; low++)
        if (!p->items[low].refused)
            p->items[low].refused = "the parent of this path is not a directory in the archive";
}

/* ---- targets of links ---- */

static bool read_link(int dir, const char *path, char ret[LINK_MAX]) {
    const char *name;
    int parent DEFER_CLOSE = parcel_parent(dir, path, &name);
    ssize_t n = parent < 0 ? -1 : readlinkat(parent, name, ret, LINK_MAX - 1);
    ret[n < 0 ? 0 : n] = '\0';
    return n >= 0;
}

/* The remaining budget for following links. A link that exceeds it counts as leading out. */
struct walk {
    const struct parcel *p;
    int follows, steps;
};

static bool leads_out(struct walk *w, const char *from, const char *way);

static bool parcel_follow(struct walk *w, const char *from, const char *target, const char *rest) {
    if (target[0] == '/' || --w->follows < 0)
        return true;
    char *way DEFER_FREE = xformat("%s/%s", target, rest);
    return leads_out(w, from, way);
}

/* The path may be one link in the archive and another in the directory. The reviewer may take only
 * a part of the archive, so neither may lead out. -1: not a link. */
static int follow_name(struct walk *w, const char *from, const char *path, const char *rest) {
    char here[LINK_MAX];
    const struct parcel_item *i = parcel_find(w->p, w->p->count, path);
    const char *coming = i && i->kind == TAR_SYMLINK ? i->target : NULL;
    bool is_here = read_link(w->p->dir, path, here);
    if (!coming && !is_here)
        return -1;
    return (coming && parcel_follow(w, from, coming, rest)) ||
           (is_here && (!coming || strcmp(here, coming) != 0) &&
            parcel_follow(w, from, here, rest));
}

/* True if a path leads out of the tree. Follows it from a directory of the tree ("": the top), link
 * by link. */
static bool leads_out(struct walk *w, const char *from, const char *way) {
    char at[TAR_NAME_MAX + 1], next[TAR_NAME_MAX + 1];
    snprintf(at, sizeof(at), "%s", from);
    for (size_t n; *way; way += n + (way[n] == '/')) {
        n = strcspn(way, "/");
        if (!n || (n == 1 && way[0] == '.'))
            continue;
        bool up = n == 2 && memcmp(way, "..", 2) == 0;
        if (--w->steps < 0 || (up && !*at) || strlen(at) + n + 2 > sizeof(next))
            return true;
        if (up) {
            char *slash = strrchr(at, '/');
            *(slash ? slash : at) = '\0';
            continue;
        }
        snprintf(next, sizeof(next), "%s%s%.*s", at, *at ? "/" : "", (int)n, way);
        int out = follow_name(w, at, next, way + n);
        if (out >= 0)
            return out;
        memcpy(at, next, sizeof(at));
    }
    return false;
}

/* Refuses a link that leads out of the tree. */
static void check_target(const struct parcel *p, struct parcel_item *item) {
    char above[TAR_NAME_MAX + 1];
    const char *slash = strrchr(item->path, '/');
    struct walk w = {p, FOLLOWS_MAX, STEPS_MAX};
    if (item->refused || item->change == '=' || item->kind != TAR_SYMLINK)
        return;
    snprintf(above, sizeof(above), "%.*s", slash ? (int)(slash - item->path) : 0, item->path);
    if (leads_out(&w, above, item->target))
        item->flags |= FLAG_LEAVES;
    if (item->flags & FLAG_LEAVES)
        item->refused = "the link leads out of the tree";
}

/* ---- comparison with the directory ---- */

static int64_t changed_ms(const struct stat *st) {
    return (int64_t)st->st_ctim.tv_sec * 1000 + st->st_ctim.tv_nsec / 1000000;
}

/* True if the owner changed the file since the machine got it. st: of the file in the directory. */
static bool is_owners_work(const struct parcel_side *side, const char *path,
                           const struct stat *st) {
    const struct baseline_file *was = side->base ? baseline_find(side->base, path) : NULL;
    if (was || (side->base && !side->base->cut))
        return !was || !baseline_same(was, st);
    return changed_ms(st) > side->since_ms;
}

/* True if the directory had this file when the machine got it. */
static bool has_removed(const struct parcel_side *side, const char *path) {
    const struct baseline_file *was = side->base ? baseline_find(side->base, path) : NULL;
    return was && was->inode;
}

static void compare(const struct parcel *p, struct parcel_item *i, const struct parcel_side *side) {
    const char *name;
    struct stat st;
    int parent DEFER_CLOSE = parcel_parent(p->dir, i->path, &name);
    /* A pipe or socket that the owner has, too, is not the machine's work. */
    if (i->kind == TAR_OTHER && i->refused && parent >= 0 &&
        fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode) &&
        !S_ISDIR(st.st_mode) && !S_ISLNK(st.st_mode))
        i->change = '=';
    if (i->refused)
        return;
    if (parent == -ELOOP || parent == -EXDEV || parent == -ENOTDIR) {
        i->refused = "in your directory, a parent of this path is a symbolic link or a file";
        return;
    }
    if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        i->change = 'A';
        i->differs = has_removed(side, i->path);
        if (i->differs)
            i->refused = "you deleted the file since the machine got it";
        return;
    }
    mode_t type = i->kind == TAR_DIR ? S_IFDIR : i->kind == TAR_SYMLINK ? S_IFLNK : S_IFREG;
    if ((st.st_mode & S_IFMT) != type) {
        i->refused = "your directory has another type of file at this path";
        return;
    }
    bool same = i->kind == TAR_DIR ||
                (parcel_hash(p->dir, i->path, i->before) && strcmp(i->before, i->sha256) == 0 &&
                 (i->kind != TAR_FILE || !(st.st_mode & 0100) == !(i->mode & 0100)));
    i->change = same ? '=' : 'M';
    i->differs = !same && is_owners_work(side, i->path, &st);
    if (i->differs)
        i->refused = CHANGED_HERE;
}

/* True if a file that the archive lacks counts as deleted. */
static bool is_removal(const struct parcel_side *side, const char *path) {
    return side->mirror || has_removed(side, path);
}

/* Adds a deleted file or link. st: of the file in the directory. */
static int add_removed(struct parcel *p, const char *path, const struct stat *st,
                       const struct parcel_side *side, struct err *err) {
    struct parcel_item *i = parcel_add(p, path, err);
    if (!i)
        return -1;
    i->change = 'D';
    i->kind = S_ISLNK(st->st_mode) ? TAR_SYMLINK : TAR_FILE;
    if (!utf8_valid(path, strlen(path)))
        i->refused = NOT_UTF8;
    else if (is_owners_work(side, path, st))
        i->refused = CHANGED_HERE;
    else if (!parcel_hash(p->dir, path, i->sha256))
        i->refused = "the file in your directory cannot be read";
    return 0;
}

static bool is_deletable(const struct stat *st) {
    return S_ISREG(st->st_mode) || S_ISLNK(st->st_mode);
}

/* Adds the deleted files and links: those of the directory that are not among the first `sorted`
 * items. */
static int find_removed(struct parcel *p, int at, const char *prefix, size_t sorted, int depth,
                        const struct parcel_side *side, struct err *err) {
    DIR *d DEFER(dir_close) = dir_take(at);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[TAR_NAME_MAX + 1];
        struct stat st;
        if (is_dots(e->d_name) || strncmp(e->d_name, STAGE_PREFIX, strlen(STAGE_PREFIX)) == 0)
            continue;
        int n = snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", e->d_name);
        if (n >= (int)sizeof(path) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (S_ISDIR(st.st_mode)) {
            int below = depth < DEPTH_MAX ? dir_open(dirfd(d), e->d_name) : -1;
            if (below >= 0 && find_removed(p, below, path, sorted, depth + 1, side, err) < 0)
                return -1;
            continue;
        }
        if (parcel_find(p, sorted, path) || !is_removal(side, path) || !is_deletable(&st))
            continue;
        if (add_removed(p, path, &st, side, err) < 0)
            return -1;
    }
    return 0;
}

/* Like find_removed(), if the archive has only changes: then the baseline has all deleted paths. */
static int find_removed_paths(struct parcel *p, size_t sorted, const struct parcel_side *side,
                              struct err *err) {
    for (size_t n = 0; n < side->base->count; n++) {
        const struct baseline_file *was = &side->base->files[n];
        const char *name;
        struct stat st;
        if (!was->inode || stage_part(was->path) || parcel_find(p, sorted, was->path))
            continue;
        int parent DEFER_CLOSE = parcel_parent(p->dir, was->path, &name);
        if (parent < 0 || fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !is_deletable(&st))
            continue;
        if (add_removed(p, was->path, &st, side, err) < 0)
            return -1;
    }
    return 0;
}

static int find_all_removed(struct parcel *p, const struct parcel_side *side, struct err *err) {
    if (side->changes_only)
        return side->base ? find_removed_paths(p, p->count, side, err) : 0;
    int top = dir_open(p->dir, ".");
    return top < 0 ? err_sys(err, "cannot read the directory to compare the change set with")
                   : find_removed(p, top, "", p->count, 0, side, err);
}

/* ---- renamed files ---- */

static int by_content(const void *a, const void *b) {
    const struct parcel_item *const *x = a, *const *y = b;
    return strcmp((*x)->sha256, (*y)->sha256);
}

/* A deleted and an added file with the same content are one renamed file: the reviewer takes both
 * or none. */
static void find_renamed(struct parcel *p) {
    struct parcel_item **added DEFER_FREE = xcalloc(p->count + 1, sizeof(*added)), **found;
    size_t count = 0;
    for (size_t i = 0; i < p->count; i++) {
        struct parcel_item *item = &p->items[i];
        if (item->change == 'A' && item->kind == TAR_FILE && item->n && !item->refused)
            added[count++] = item;
    }
    qsort(added, count, sizeof(*added), by_content);
    for (size_t i = 0; i < p->count; i++) {
        struct parcel_item *gone = &p->items[i];
        if (!count || gone->change != 'D' || gone->kind != TAR_FILE || gone->refused)
            continue;
        found = bsearch(&gone, added, count, sizeof(*added), by_content);
        if (!found || (*found)->partner)
            continue;
        gone->partner = (*found)->path;
        (*found)->partner = gone->path;
    }
}

static bool is_images(const struct parcel_item *i, const struct parcel_side *side) {
    return !i->refused && (i->kind == TAR_FILE || i->kind == TAR_SYMLINK) && side->is_image &&
           side->is_image(side->arg, i->path);
}

/* True if the baseline was taken of this directory. */
static bool is_of(const struct baseline *base, int dir) {
    const struct baseline_file *top = base ? baseline_find(base, ".") : NULL;
    struct stat st;
    return top && fstat(dir, &st) == 0 && top->inode == (uint64_t)st.st_ino;
}

int parcel_open(struct parcel *p, char *archive, size_t size, int dir,
                const struct parcel_side *told, struct err *err) {
    struct parcel_side side = *told;
    struct tar_reader *reader DEFER_FREE = xnew(struct tar_reader);
    struct tar_entry *entry DEFER_FREE = xnew(struct tar_entry);
    *p = (struct parcel){.archive = archive, .size = size, .dir = dir};
    if (read_archive(p, reader, entry, err) < 0)
        return -1;
    sort(p);
    p->is_elsewhere = !is_of(side.base, dir);
    if (p->is_elsewhere)
        side.base = NULL;
    for (size_t i = 0; i < p->count; i++)
        if (p->items[i].kind != TAR_DIR && !p->items[i].refused)
            refuse_below(p, &p->items[i]);
    for (size_t i = 0; i < p->count; i++) {
        if (is_images(&p->items[i], &side))
            p->items[i].change = '=';
        else
            compare(p, &p->items[i], &side);
        check_target(p, &p->items[i]);
    }
    if (!side.mirror && !side.base)
        return 0;
    if (find_all_removed(p, &side, err) < 0)
        return -1;
    sort(p);
    find_renamed(p);
    return 0;
}

void parcel_close(struct parcel *p) {
    for (size_t i = 0; i < p->count; i++)
        item_done(&p->items[i]);
    free(p->items);
    if (p->archive)
        munmap(p->archive, p->size ? p->size : 1);
    *p = (struct parcel){.dir = -1};
}
