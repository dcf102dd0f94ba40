#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/text/textdiff.h"
#include "base/utf8.h"
#include "base/wire/plan.h"
#include "compare/compare.h"
#include "compare/look.h"

enum { DEPTH_MAX = 200, CHUNK = 1 << 16 };

struct walk {
    const struct compare_order *order;
    struct buf *out;
    struct patience patience;
    struct changes_end end;
    char path[CHANGES_PATH_MAX];
    size_t path_len;
    const char *under; /* rest of order->under below this directory; "": everything */
    uint64_t listed, path_bytes, text_bytes;
    unsigned depth;
};

/* A directory, open in both states (-1: it does not exist there) and in the layers. The names in
 * the layers tell which paths may differ. */
struct place {
    int before, after;
    int *layers;
    size_t layer_count;
    bool whole; /* compare all names: renamed, replaced or in one state only */
};

static void place_done(struct place *p) {
    close_fd(&p->before);
    close_fd(&p->after);
    while (p->layer_count)
        close(p->layers[--p->layer_count]);
    free(p->layers);
}

/* One name in both states; st_mode 0: it does not exist. */
struct pair {
    struct stat before, after;
};

static void trees_look_at(int dir, const char *name, struct stat *ret) {
    if (dir < 0 || fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0)
        *ret = (struct stat){0};
}

/* ---- contents ---- */

/* Opens a regular file, never a pipe or a device, even if the file was just replaced by one. */
static int open_file(int dir, const char *name) {
    struct stat st;
    int fd DEFER_CLOSE =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) ? TAKE_FD(fd) : -1;
}

static ssize_t read_full(int fd, char *bytes, size_t size) {
    size_t n = 0;
    ssize_t got = 1;
    while (n < size && (got = read(fd, bytes + n, size - n)) > 0)
        n += (size_t)got;
    return got < 0 ? -1 : (ssize_t)n;
}

/* Compares the bytes of two files. Returns 1: equal; 0: different; -1: unknown, because of an error
 * or a limit. */
static int same_bytes(struct walk *w, int a, int b) {
    static char one[CHUNK], two[CHUNK];
    for (;;) {
        ssize_t n = read_full(a, one, CHUNK), m = read_full(b, two, CHUNK);
        if (n < 0 || m < 0)
            return -1;
        w->end.read_bytes += (uint64_t)n + (uint64_t)m;
        if (n != m || memcmp(one, two, (size_t)n) != 0)
            return 0;
        if (n == 0)
            return 1;
        if (w->end.read_bytes > COMPARE_READ_MAX || !patience_look(&w->patience))
            return -1;
    }
}

static bool same_time(const struct timespec *a, const struct timespec *b) {
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/*
 * A box cannot choose the change time (ctime), but ctime is coarse. The inode number alone may be
 * that of another file on another filesystem. If all of them are equal, the file is the same.
 */
static bool is_untouched(const struct pair *p) {
    return p->before.st_ino == p->after.st_ino && p->before.st_size == p->after.st_size &&
           same_time(&p->before.st_mtim, &p->after.st_mtim) &&
           same_time(&p->before.st_ctim, &p->after.st_ctim);
}

static bool is_text(const struct buf *b) {
    return b->len == 0 || (utf8_valid(b->data, b->len) && !memchr(b->data, 0, b->len));
}

/* Reads a whole file of at most COMPARE_FILE_MAX bytes. False: it cannot be read, or has grown. */
static bool read_text(int dir, const char *name, const struct stat *st, struct buf *ret) {
    if (!S_ISREG(st->st_mode))
        return true;
    int fd DEFER_CLOSE = open_file(dir, name);
    char *s DEFER_FREE = fd < 0 ? NULL : malloc(COMPARE_FILE_MAX + 1);
    ssize_t n = s ? read_full(fd, s, COMPARE_FILE_MAX + 1) : -1;
    return n >= 0 && buf_add(ret, s, (size_t)n);
}

static void diff_texts(struct walk *w, const struct buf *a, const struct buf *b, struct change *c,
                       struct buf *hunks) {
    struct textdiff_count n = {0};
    size_t left = COMPARE_TEXT_MAX - w->text_bytes;
    w->end.read_bytes += a->len + b->len;
    *hunks = BUF(left < CHANGES_DIFF_MAX ? left : CHANGES_DIFF_MAX);
    bool fits = textdiff(hunks, a->data, a->len, b->data, b->len, w->order->context, &n);
    c->content = fits ? CONTENT_TEXT : CONTENT_CUT;
    c->lines_added = n.added;
    c->lines_removed = n.removed;
    c->diff = (struct bytes){hunks->data, hunks->len};
    w->text_bytes += hunks->len;
}

/* Fills the fields of *c about the content of a file that differs. */
static void tell_content(struct walk *w, const struct place *p, const char *name,
                         const struct pair *q, struct change *c, struct buf *hunks) {
    struct buf a DEFER(buf_done) = BUF(COMPARE_FILE_MAX), b DEFER(buf_done) = BUF(COMPARE_FILE_MAX);
    if (!S_ISREG(q->before.st_mode) && !S_ISREG(q->after.st_mode))
        return;
    if (q->before.st_size > COMPARE_FILE_MAX || q->after.st_size > COMPARE_FILE_MAX)
        c->content = CONTENT_LARGE;
    else if (!read_text(p->before, name, &q->before, &a) ||
             !read_text(p->after, name, &q->after, &b))
        c->content = CONTENT_UNREADABLE;
    else if (!is_text(&a) || !is_text(&b))
        c->content = CONTENT_BINARY;
    else if (w->order->text)
        diff_texts(w, &a, &b, c, hunks);
    else
        c->content = CONTENT_CUT;
}

/* ---- records ---- */

/* Maps an id on disk to the id in the machine. If rootless, ID_NEST_USER is the machine's user, and
 * the other ids follow the id of its root. */
static uint32_t inside_id(uint32_t root, uint32_t id) {
    enum { USER = 1000, NOBODY = 65534 };
    if (!root)
        return id;
    return id == ID_NEST_USER ? USER : id >= root && id - root < NOBODY ? id - root : NOBODY;
}

static struct change_side side_of(const struct walk *w, const struct stat *st) {
    return (struct change_side){
        .mode = st->st_mode,
        .uid = inside_id(w->order->root_id, st->st_uid),
        .gid = inside_id(w->order->root_id, st->st_gid),
        .size = S_ISDIR(st->st_mode) ? 0 : (uint64_t)st->st_size,
    };
}

static struct bytes read_target(int dir, const char *name, const struct stat *st, char *into) {
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(dir, name, into, CHANGES_PATH_MAX) : 0;
    return (struct bytes){into, n > 0 ? (size_t)n : 0};
}

static void count_change(struct walk *w, enum change_kind kind) {
    w->end.added += kind == CHANGE_ADDED;
    w->end.modified += kind == CHANGE_MODIFIED;
    w->end.deleted += kind == CHANGE_DELETED;
}

/* True if a file has this content and is small. */
static bool has_hash(int dir, const char *name, const char *sha256) {
    struct sha256 hash;
    char hex[SHA256_HEX];
    int fd DEFER_CLOSE = open_file(dir, name);
    char *bytes DEFER_FREE = fd < 0 ? NULL : malloc(COMPARE_OWN_BYTES_MAX + 1);
    ssize_t n = bytes ? read_full(fd, bytes, COMPARE_OWN_BYTES_MAX + 1) : -1;
    if (n < 0 || n > COMPARE_OWN_BYTES_MAX)
        return false;
    sha256_init(&hash);
    sha256_add(&hash, bytes, (size_t)n);
    sha256_end_hex(&hash, hex);
    return strcmp(hex, sha256) == 0;
}

/* True if the path is a file of Carrel's own that nobody changed: content, mode and owner. */
static bool is_own(const struct walk *w, const struct place *p, const char *name,
                   const struct change_side *after) {
    for (uint32_t i = 0; i < w->order->own_count; i++) {
        const struct compare_own *own = &w->order->own[i];
        if (strlen(own->path) == w->path_len && memcmp(own->path, w->path, w->path_len) == 0)
            return after->mode == (S_IFREG | 0644) && after->uid == own->id &&
                   after->gid == own->id && has_hash(p->after, name, own->sha256);
    }
    return false;
}

/* Writes the record of a change. Beyond the limits the change is only counted. */
static void put_change(struct walk *w, const struct place *p, const char *name,
                       const struct pair *q, bool content) {
    static char targets[2][CHANGES_PATH_MAX];
    struct buf hunks DEFER(buf_done) = BUF(0);
    struct changes_record r = {.type = CHANGES_CHANGE};
    struct change *c = &r.change;
    c->kind = !q->before.st_mode  ? CHANGE_ADDED
              : !q->after.st_mode ? CHANGE_DELETED
                                  : CHANGE_MODIFIED;
    count_change(w, c->kind);
    if (w->listed >= COMPARE_ENTRIES_MAX || w->path_bytes >= COMPARE_PATHS_MAX) {
        w->end.cut = CUT_ENTRIES;
        return;
    }
    c->before = side_of(w, &q->before);
    c->after = side_of(w, &q->after);
    c->own = is_own(w, p, name, &c->after);
    c->path = (struct bytes){w->path, w->path_len};
    c->target_before = read_target(p->before, name, &q->before, targets[0]);
    c->target_after = read_target(p->after, name, &q->after, targets[1]);
    if (content)
        tell_content(w, p, name, q, c, &hunks);
    w->listed++;
    w->path_bytes += c->path.n + c->target_before.n + c->target_after.n;
    if (!changes_write(w->out, &r))
        w->end.cut = CUT_ENTRIES;
}

/* ---- walk ---- */

static bool same_target(const struct place *p, const char *name, const struct pair *q) {
    static char one[CHANGES_PATH_MAX], two[CHANGES_PATH_MAX];
    struct bytes a = read_target(p->before, name, &q->before, one);
    struct bytes b = read_target(p->after, name, &q->after, two);
    return a.n == b.n && memcmp(a.s, b.s, a.n) == 0;
}

/* Compares a file or link in both states, where it must have the same file type. */
static bool same_content(struct walk *w, const struct place *p, const char *name,
                         const struct pair *q) {
    if (S_ISLNK(q->after.st_mode))
        return same_target(p, name, q);
    if (S_ISCHR(q->after.st_mode) || S_ISBLK(q->after.st_mode))
        return q->before.st_rdev == q->after.st_rdev;
    if (!S_ISREG(q->after.st_mode) || is_untouched(q))
        return true;
    if (q->before.st_size != q->after.st_size)
        return false;
    int a DEFER_CLOSE = open_file(p->before, name), b DEFER_CLOSE = open_file(p->after, name);
    return a >= 0 && b >= 0 && same_bytes(w, a, b) == 1;
}

static bool same_owner_and_mode(const struct pair *q) {
    return q->before.st_mode == q->after.st_mode && q->before.st_uid == q->after.st_uid &&
           q->before.st_gid == q->after.st_gid;
}

static bool has_mark(int dir, const char *name) {
    static const char *const prefixes[] = {"trusted.overlay.", "user.overlay."};
    for (int i = 0; i < 2; i++) {
        char mark[64];
        snprintf(mark, sizeof(mark), "%s%s", prefixes[i], name);
        if (fgetxattr(dir, mark, NULL, 0) > 0)
            return true;
    }
    return false;
}

/*
 * Opens directory `name` in the layers. If it hides the layers below (opaque), shows another
 * directory (redirect) or cannot be opened, all its names must be compared.
 */
static void enter_layers(const struct place *from, const char *name, struct place *to) {
    to->layers = from->layer_count ? xcalloc(from->layer_count, sizeof(int)) : NULL;
    for (size_t i = 0; i < from->layer_count && !to->whole; i++) {
        int dir = look_into(from->layers[i], name);
        if (dir < 0 && errno == ENOENT)
            continue;
        if (dir >= 0)
            to->layers[to->layer_count++] = dir;
        to->whole = dir < 0 || has_mark(dir, "opaque") || has_mark(dir, "redirect");
    }
}

static void compare_dir(struct walk *w, const struct place *p);

/* True if the order says that this directory is not entered. */
static bool is_skipped(const struct walk *w) {
    for (const char *at = w->order->skip; *at; at += strcspn(at, "\n") + 1)
        if (strcspn(at, "\n") == w->path_len && memcmp(at, w->path, w->path_len) == 0)
            return true;
    return false;
}

static void descend(struct walk *w, const struct place *p, const char *name, const struct pair *q) {
    struct place sub DEFER(place_done) = {.before = -1, .after = -1, .whole = p->whole};
    bool was = S_ISDIR(q->before.st_mode), is = S_ISDIR(q->after.st_mode);
    if ((!was && !is) || is_skipped(w))
        return;
    if (w->depth >= DEPTH_MAX) {
        w->patience.cut = w->patience.cut ? w->patience.cut : CUT_DEPTH;
        return;
    }
    sub.before = was ? look_into(p->before, name) : -1;
    sub.after = is ? look_into(p->after, name) : -1;
    if ((was && sub.before < 0) || (is && sub.after < 0))
        w->patience.cut = w->patience.cut ? w->patience.cut : CUT_DEPTH;
    sub.whole |= !was || !is;
    if (!sub.whole)
        enter_layers(p, name, &sub);
    w->depth++;
    compare_dir(w, &sub);
    w->depth--;
}

/* True if `name` is the first part of the wanted path `under`, or all names are wanted. *ret is the
 * rest of `under`. */
static bool is_wanted(const char *under, const char *name, const char **ret) {
    size_t n = strcspn(under, "/");
    *ret = under[n] ? under + n + 1 : "";
    return n == 0 || (strlen(name) == n && strncmp(under, name, n) == 0);
}

static void compare_name(struct walk *w, const struct place *p, const char *name) {
    struct pair q;
    const char *under = w->under, *below;
    size_t len = w->path_len, n = strlen(name);
    if (!is_wanted(under, name, &below) || len + 1 + n > CHANGES_PATH_MAX)
        return;
    trees_look_at(p->before, name, &q.before);
    trees_look_at(p->after, name, &q.after);
    if (len)
        w->path[w->path_len++] = '/';
    memcpy(w->path + w->path_len, name, n);
    w->path_len += n;
    w->under = below;
    bool content =
        (q.before.st_mode & S_IFMT) != (q.after.st_mode & S_IFMT) || !same_content(w, p, name, &q);
    bool there = q.before.st_mode || q.after.st_mode;
    if (there && !*below && (content || !same_owner_and_mode(&q)))
        put_change(w, p, name, &q, content);
    descend(w, p, name, &q);
    w->under = under;
    w->path_len = len;
}

static void compare_dir(struct walk *w, const struct place *p) {
    struct names names DEFER(look_names_done) = {0};
    bool go = true;
    if (p->whole)
        go = names_read(&names, p->before, &w->patience) &&
             names_read(&names, p->after, &w->patience);
    for (size_t i = 0; i < p->layer_count && !p->whole && go; i++)
        go = names_read(&names, p->layers[i], &w->patience);
    names_sort(&names);
    for (size_t i = 0; i < names.count && patience_look(&w->patience); i++) {
        bool usr =
            w->order->usr && w->depth == 0 && w->path_len == 0 && strcmp(names.v[i], "usr") == 0;
        if (!usr) /* /usr is a separate overlay */
            compare_name(w, p, names.v[i]);
    }
}

/*
 * Opens the layers of one overlay: their directories "u" for the root, "U" for /usr. If one cannot
 * be opened, all names must be compared.
 */
static void open_layers(const struct compare_order *o, const int *disks, char part,
                        struct place *p) {
    p->layers = o->layer_count ? xcalloc(o->layer_count, sizeof(int)) : NULL;
    for (uint32_t i = 0; i < o->layer_count; i++) {
        char name[32];
        if (o->grant)
            snprintf(name, sizeof(name), "g%" PRIu32, o->layers[i]);
        else
            snprintf(name, sizeof(name), "%" PRIu32 "/%c", o->layers[i], part);
        int dir = look_into(disks[o->disks[i]], name);
        if (dir >= 0)
            p->layers[p->layer_count++] = dir;
        p->whole |= dir < 0;
    }
}

static void compare_part(struct walk *w, const int *fds, bool usr) {
    struct place p DEFER(place_done) = {
        .before = usr ? look_into(fds[FD_USR_BEFORE], ".") : look_into(fds[FD_ROOT_BEFORE], "."),
        .after = usr ? look_into(fds[FD_USR_AFTER], ".") : look_into(fds[FD_ROOT_AFTER], "."),
        .whole = w->order->whole,
    };
    open_layers(w->order, fds + FD_DISKS, usr ? 'U' : 'u', &p);
    w->under = w->order->under;
    w->path_len = 0;
    if (usr && !is_wanted(w->under, "usr", &w->under))
        return;
    if (usr) {
        memcpy(w->path, "usr", 3);
        w->path_len = 3;
    }
    compare_dir(w, &p);
}

void compare_trees(const struct compare_order *o, const int *fds, struct buf *out) {
    struct walk *w DEFER_FREE = xnew(struct walk);
    struct changes_record end = {.type = CHANGES_END};
    w->order = o;
    w->out = out;
    patience_begin(&w->patience);
    compare_part(w, fds, false);
    if (o->usr)
        compare_part(w, fds, true);
    end.end = w->end;
    end.end.looked = w->patience.looked;
    if (w->patience.cut)
        end.end.cut = w->patience.cut;
    if (!changes_write(out, &end))
        out->len = 0; /* without a CHANGES_END, the reader knows that the answer failed */
}
