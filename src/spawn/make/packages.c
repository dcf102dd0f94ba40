#include "spawn/make/packages.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/defer.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/map.h"
#include "base/md5.h"

#define DPKG "var/lib/dpkg"
enum { DATABASE_MAX = 128 << 20, PATH_SIZE = 4096 };

struct packages {
    int host, root;
    int info; /* directory with the lists of files in the image's database */
    struct tree_copy *how;
    struct arena memory;
    struct map sums; /* MD5 of files outside /usr, by path without the first "/" */
};

/* ---- text ---- */

struct line {
    const char *s;
    size_t n;
};

static bool line_next(const char **at, const char *end, struct line *ret) {
    if (*at >= end)
        return false;
    const char *stop = memchr(*at, '\n', (size_t)(end - *at));
    ret->s = *at;
    ret->n = (size_t)((stop ? stop : end) - *at);
    *at = stop ? stop + 1 : end;
    return true;
}

static bool line_begins(const struct line *l, const char *word) {
    size_t n = strlen(word);
    return l->n >= n && memcmp(l->s, word, n) == 0;
}

static bool line_keep(struct buf *to, const struct line *l) {
    return buf_add(to, l->s, l->n) && buf_add(to, "\n", 1);
}

/* Copies the path of a line, up to `stop`, without its first "/". False: the line has none. */
static bool line_path(const struct line *l, size_t from, char stop, char ret[PATH_SIZE]) {
    const char *s = l->s + from, *end = l->s + l->n;
    if (from >= l->n)
        return false;
    s += *s == '/';
    const char *last = stop ? memchr(s, stop, (size_t)(end - s)) : NULL;
    size_t n = (size_t)((last ? last : end) - s);
    if (n == 0 || n >= PATH_SIZE)
        return false;
    memcpy(ret, s, n);
    ret[n] = '\0';
    return true;
}

static int text_read(int dir, const char *name, struct buf *ret, struct err *err) {
    static char block[1 << 16];
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;
    ret->len = 0;
    while (n > 0 && (n = read(fd, block, sizeof(block))) > 0)
        if (!buf_add(ret, block, (size_t)n))
            return err_set(err, ERR_LIMIT, "file '%s' of the package database is too large", name);
    return n < 0 ? err_sys(err, "cannot read file '%s' of the package database", name) : 0;
}

static int text_write(const struct packages *p, int dir, const char *name, const struct buf *text,
                      struct err *err) {
    uid_t owner = p->how->owner_base;
    int r = tree_file(dir, name, text->data ? text->data : "", 0644, owner, owner);
    return r < 0 ? err_num(err, r, "cannot write file '%s' of the package database", name) : 0;
}

/* ---- files ---- */

/* True for a path in the host's /usr, which the box has as a whole: also below merged links such as
 * /lib. */
static bool is_in_usr(const struct packages *p, const char *path) {
    char first[64], target[8];
    size_t n = strcspn(path, "/");
    if (strncmp(path, "usr", n) == 0 && n == 3)
        return true;
    snprintf(first, sizeof(first), "%.*s", (int)n, path);
    return readlinkat(p->root, first, target, sizeof(target)) >= 0;
}

static bool is_in_image(const struct packages *p, const char *path) {
    const char *name;
    struct stat st;
    if (strcmp(path, ".") == 0 || is_in_usr(p, path))
        return true;
    int parent DEFER_CLOSE = beneath_parent(p->root, path, O_PATH, &name);
    return parent >= 0 && fstatat(parent, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* True if a file of the image has this MD5. */
static bool has_sum(int dir, const char *name, const char *sum) {
    static char block[1 << 16];
    char hex[MD5_HEX];
    struct md5 m;
    int fd DEFER_CLOSE = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : 1;
    md5_init(&m);
    while (n > 0 && (n = read(fd, block, sizeof(block))) > 0)
        md5_add(&m, block, (size_t)n);
    md5_end_hex(&m, hex);
    return n == 0 && strcmp(hex, sum) == 0;
}

/*
 * Copies a file of a package. The copy is compared, not the file of the host: nobody changes it
 * between the comparison and its use.
 */
static int copy_unchanged(const struct packages *p, int from, int to, const char *name,
                          const char *path, struct err *err) {
    const char *sum = map_get(&p->sums, path);
    if (!sum)
        return 0;
    if (tree_copy(from, name, to, name, p->how, err) < 0)
        return -1;
    if (!has_sum(to, name, sum))
        unlinkat(to, name, 0);
    return 0;
}

/* Copies a directory without its contents. An empty directory shows nothing of the host, so it may
 * be one that only root may read. */
static int copy_empty(const struct packages *p, int from, int to, const char *name,
                      struct err *err) {
    struct tree_copy how = {
        .owner_base = p->how->owner_base, .readable_only = true, .shallow = true};
    return tree_copy(from, name, to, name, &how, err);
}

/* Copies a path of a package from the host, if it is missing in the image. */
static int path_complete(const struct packages *p, const char *path, struct err *err) {
    const char *name;
    struct stat st;
    bool ours = strncmp(path, "etc/", 4) == 0 || strncmp(path, "var/", 4) == 0;
    if (!ours || is_in_image(p, path) || !tree_is_reachable(p->host, path))
        return 0;
    int to DEFER_CLOSE = beneath_parent(p->root, path, O_RDONLY, &name);
    int from DEFER_CLOSE = to < 0 ? -1 : beneath_parent(p->host, path, O_PATH, &name);
    if (from < 0 || fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    if (S_ISDIR(st.st_mode))
        return copy_empty(p, from, to, name, err);
    if (S_ISLNK(st.st_mode))
        return tree_copy(from, name, to, name, p->how, err);
    return S_ISREG(st.st_mode) ? copy_unchanged(p, from, to, name, path, err) : 0;
}

/* ---- lists of a package ---- */

/* The files of a package's lists: their names end so, and a line has its path there. */
static const struct list_kind {
    const char *end;
    size_t path_at; /* bytes before the path */
} list_kinds[] = {
    {".list", 0}, {".conffiles", 0}, {".md5sums", MD5_HEX + 1}, /* the sum and two blanks */
};

typedef int list_fn(struct packages *p, const char *name, const struct list_kind *kind,
                    struct buf *text, struct err *err);

static bool name_ends(const char *name, const char *end) {
    size_t n = strlen(name), m = strlen(end);
    return n > m && strcmp(name + n - m, end) == 0;
}

/* Calls fn for each list of this kind with its text. */
static int lists_each(struct packages *p, const struct list_kind *kind, list_fn *fn,
                      struct err *err) {
    struct buf text DEFER(buf_done) = BUF(DATABASE_MAX);
    DIR *d DEFER(dir_close) = dir_take(dir_open(p->info, "."));
    for (struct dirent *e; d && (e = readdir(d));)
        if (name_ends(e->d_name, kind->end) && (text_read(p->info, e->d_name, &text, err) < 0 ||
                                                fn(p, e->d_name, kind, &text, err) < 0))
            return -1;
    return 0;
}

static void sum_note(struct packages *p, const char *path, const char *sum) {
    if (!is_in_usr(p, path))
        map_put(&p->sums, arena_copy(&p->memory, path, strlen(path)),
                arena_copy(&p->memory, sum, MD5_HEX - 1));
}

static int list_sums(struct packages *p, const char *name, const struct list_kind *kind,
                     struct buf *text, struct err *err) {
    char path[PATH_SIZE];
    const char *at = text->data, *end = at + text->len;
    (void)name;
    (void)err;
    for (struct line l; line_next(&at, end, &l);)
        if (line_path(&l, kind->path_at, '\0', path))
            sum_note(p, path, l.s);
    return 0;
}

static int list_complete(struct packages *p, const char *name, const struct list_kind *kind,
                         struct buf *text, struct err *err) {
    char path[PATH_SIZE];
    const char *at = text->data, *end = at + text->len;
    (void)name;
    for (struct line l; line_next(&at, end, &l);)
        if (!line_begins(&l, "/usr/") && line_path(&l, kind->path_at, '\0', path) &&
            path_complete(p, path, err) < 0)
            return -1;
    return 0;
}

/* Removes the paths that are not in the image. */
static int list_filter(struct packages *p, const char *name, const struct list_kind *kind,
                       struct buf *text, struct err *err) {
    struct buf out DEFER(buf_done) = BUF(DATABASE_MAX);
    char path[PATH_SIZE];
    const char *at = text->data, *end = at + text->len;
    bool fits = true;
    for (struct line l; fits && line_next(&at, end, &l);)
        if (!line_path(&l, kind->path_at, '\0', path) || is_in_image(p, path))
            fits = line_keep(&out, &l);
    if (!fits)
        return err_set(err, ERR_LIMIT, "file '%s' of the package database is too large", name);
    return out.len == text->len ? 0 : text_write(p, p->info, name, &out, err);
}

/* ---- the status file ---- */

/* Reads the MD5 of configuration files: " /etc/file MD5" below "Conffiles:". */
static void status_sums(struct packages *p, const struct buf *text) {
    char path[PATH_SIZE];
    const char *at = text->data, *end = at + text->len;
    for (struct line l; line_next(&at, end, &l);) {
        const char *sum = line_begins(&l, " /") ? memchr(l.s + 1, ' ', l.n - 1) : NULL;
        if (sum && (size_t)(l.s + l.n - sum) >= MD5_HEX && line_path(&l, 1, ' ', path))
            sum_note(p, path, sum + 1);
    }
}

/* The paragraph of one package. */
struct paragraph {
    struct line package, arch, want;
    bool in_between; /* the host's package manager was at work on it */
};

static struct line value_of(const struct line *l, const char *field) {
    size_t n = strlen(field);
    return (struct line){l->s + n, l->n - n};
}

static struct paragraph paragraph_read(const char *at, const char *end) {
    static const char *const settled[] = {" installed", " config-files", " not-installed"};
    struct paragraph g = {0};
    for (struct line l; line_next(&at, end, &l);) {
        if (line_begins(&l, "Package: "))
            g.package = value_of(&l, "Package: ");
        else if (line_begins(&l, "Architecture: "))
            g.arch = value_of(&l, "Architecture: ");
        else if (line_begins(&l, "Status: ")) {
            g.want = value_of(&l, "Status: ");
            g.in_between = true;
            for (size_t i = 0; i < sizeof(settled) / sizeof(*settled); i++) {
                size_t n = strlen(settled[i]);
                if (l.n > n && memcmp(l.s + l.n - n, settled[i], n) == 0)
                    g.in_between = false;
            }
        }
    }
    return g;
}

static bool has_list(const struct packages *p, const struct paragraph *g) {
    char name[512];
    snprintf(name, sizeof(name), "%.*s.list", (int)g->package.n, g->package.s);
    if (faccessat(p->info, name, F_OK, 0) == 0)
        return true;
    snprintf(name, sizeof(name), "%.*s:%.*s.list", (int)g->package.n, g->package.s, (int)g->arch.n,
             g->arch.s);
    return faccessat(p->info, name, F_OK, 0) == 0;
}

/* True for a line of "Conffiles:" whose file is not in the image. */
static bool is_absent(const struct packages *p, const struct line *l) {
    char path[PATH_SIZE];
    return line_path(l, 1, ' ', path) && !is_in_image(p, path);
}

/* True for fields that a settled package does not have. */
static bool is_passing(const struct line *l) {
    static const char *const fields[] = {
        "Triggers-Pending:", "Triggers-Awaited:", "Config-Version:"};
    for (size_t i = 0; i < sizeof(fields) / sizeof(*fields); i++)
        if (line_begins(l, fields[i]))
            return true;
    return false;
}

/*
 * Writes the paragraph of a package. One that the host's package manager was at work on counts as
 * installed if its files are known, else as never seen: nobody will finish that work in the image.
 */
static bool paragraph_write(const struct packages *p, const char *at, const char *end,
                            struct buf *out) {
    const struct paragraph g = paragraph_read(at, end);
    struct line head = {NULL, 0}; /* the field "Conffiles:" before its first line that stays */
    bool in_files = false, fits = true;
    if (g.in_between && !has_list(p, &g))
        return true;
    for (struct line l; fits && line_next(&at, end, &l);) {
        if (!line_begins(&l, " "))
            in_files = line_begins(&l, "Conffiles:");
        if (in_files && !line_begins(&l, " ")) {
            head = l;
            continue;
        }
        if ((in_files && is_absent(p, &l)) || (g.in_between && is_passing(&l)))
            continue;
        if (in_files && head.s)
            fits = line_keep(out, &head);
        head.s = NULL;
        if (g.in_between && line_begins(&l, "Status: "))
            fits = fits && buf_addf(out, "Status: %s ok installed\n",
                                    line_begins(&g.want, "hold ") ? "hold" : "install");
        else
            fits = fits && line_keep(out, &l);
    }
    return fits && buf_add(out, "\n", 1);
}

static int status_filter(const struct packages *p, int dpkg, const struct buf *text,
                         struct err *err) {
    struct buf out DEFER(buf_done) = BUF(DATABASE_MAX);
    const char *at = text->data, *end = at + text->len;
    while (at < end) {
        const char *gap = memmem(at, (size_t)(end - at), "\n\n", 2);
        const char *stop = gap ? gap + 1 : end;
        if (!paragraph_write(p, at, stop, &out))
            return err_set(err, ERR_LIMIT, "file 'status' of the package database is too large");
        at = gap ? gap + 2 : end;
    }
    return text_write(p, dpkg, "status", &out, err);
}

/* ---- all of it ---- */

static int lists_work(struct packages *p, struct err *err) {
    if (lists_each(p, &list_kinds[2], list_sums, err) < 0 ||
        lists_each(p, &list_kinds[0], list_complete, err) < 0)
        return -1;
    for (size_t i = 0; i < sizeof(list_kinds) / sizeof(*list_kinds); i++)
        if (lists_each(p, &list_kinds[i], list_filter, err) < 0)
            return -1;
    return 0;
}

/* Removes the journal of a package manager at work: whoever finds it must finish that work first.
 */
static int journal_drop(const struct packages *p, struct err *err) {
    uid_t owner = p->how->owner_base;
    int r = tree_remove(p->root, DPKG "/updates");
    if (r == 0)
        r = tree_dir(p->root, DPKG "/updates", 0755, owner, owner);
    return r < 0 ? err_num(err, r, "cannot remove the journal of the package database") : 0;
}

int packages_complete(int host, int root, struct tree_copy *how, struct err *err) {
    struct packages p = {.host = host, .root = root, .how = how};
    struct buf status DEFER(buf_done) = BUF(DATABASE_MAX);
    int dpkg DEFER_CLOSE = dir_open_path(root, DPKG);
    if (dpkg < 0 || faccessat(dpkg, "status", F_OK, 0) < 0)
        return 0; /* the host has another package manager */
    int info DEFER_CLOSE = dir_open(dpkg, "info");
    p.info = info;
    int r = journal_drop(&p, err) < 0 ? -1 : text_read(dpkg, "status", &status, err);
    if (r == 0 && status.len) {
        status_sums(&p, &status);
        r = info < 0 ? 0 : lists_work(&p, err);
        if (r == 0)
            r = status_filter(&p, dpkg, &status, err);
    }
    map_done(&p.sums);
    arena_done(&p.memory);
    return r;
}
