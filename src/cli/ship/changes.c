#include "cli/ship/changes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/beneath.h"
#include "base/fs/dir.h"
#include "base/text/textdiff.h"
#include "cli/safe.h"
#include "cli/table.h"
#include "review/flags.h"

/* HELD_MAX limits the bytes of all files that are copied for the review. */
enum { DEPTH_MAX = 64, FILE_MAX = 64 << 20, HELD_MAX = 1 << 30, SHOWN_MAX = 1 << 20, CONTEXT = 3 };

static void changes_add(struct changes *c, const char *path, char kind, const struct stat *st) {
    c->list = xrealloc(c->list, c->count + 1, sizeof(*c->list));
    c->list[c->count++] = (struct change){.path = xstrdup(path),
                                          .kind = kind,
                                          .is_dir = S_ISDIR(st->st_mode),
                                          .is_link = S_ISLNK(st->st_mode)};
}

static bool is_whiteout(const struct stat *st) {
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

/* An opaque directory hides the host directory below it. */
static bool is_opaque(int dir) {
    static const char *const names[] = {"trusted.overlay.opaque", "user.overlay.opaque"};
    char value[2] = "";
    for (size_t i = 0; i < 2; i++)
        if (fgetxattr(dir, names[i], value, sizeof(value)) > 0 && value[0] == 'y')
            return true;
    return false;
}

typedef void entry_fn(struct changes *c, int dir, const char *name, const char *path, int depth,
                      void *arg);

/* Calls fn for every name in dir. Sets `cut` if a name cannot be read or there are too many. */
static void each(struct changes *c, int dir, const char *prefix, int depth, entry_fn *fn,
                 void *arg) {
    DIR *d DEFER(dir_close) = dir < 0 ? NULL : dir_list(dir, ".");
    if (!d || depth > DEPTH_MAX) {
        c->cut = true;
        return;
    }
    for (struct dirent *e; c->count < CHANGES_MAX && (e = readdir(d));) {
        char path[PLAN_PATH_SIZE * 2];
        if (is_dots(e->d_name))
            continue;
        if (snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", e->d_name) >=
            (int)sizeof(path))
            c->cut = true;
        else
            fn(c, dir, e->d_name, path, depth, arg);
    }
}

/* Adds a deleted file or directory of the host, with its contents. */
static void removed(struct changes *c, int host, const char *name, const char *path, int depth,
                    void *arg) {
    struct stat st;
    (void)arg;
    if (fstatat(host, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    changes_add(c, path, 'D', &st);
    if (!S_ISDIR(st.st_mode))
        return;
    int below DEFER_CLOSE = dir_open(host, name);
    each(c, below, path, depth + 1, removed, NULL);
}

/* Adds an entry that an opaque directory hides as deleted, unless `upper` has the same name. */
static void removed_unless_kept(struct changes *c, int host, const char *name, const char *path,
                                int depth, void *upper) {
    struct stat st;
    if (fstatat(*(int *)upper, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        removed(c, host, name, path, depth, NULL);
}

/* The host directory that corresponds to a directory of the upper (the writable layer). */
struct beside {
    int host;    /* -1: the host has no such directory */
    bool opaque; /* the directory of the upper hides the one of the host */
};

static void visit(struct changes *c, int upper, const char *name, const char *path, int depth,
                  void *arg);

static void visit_dir(struct changes *c, int upper, const char *name, const char *path, int depth,
                      struct beside above) {
    int below DEFER_CLOSE = dir_open(upper, name);
    int host DEFER_CLOSE = above.host < 0 ? -1 : dir_open(above.host, name);
    struct beside here = {host, below >= 0 && (above.opaque || is_opaque(below))};
    if (here.opaque && host >= 0)
        each(c, host, path, depth + 1, removed_unless_kept, &below);
    each(c, below, path, depth + 1, visit, &here);
}

static void visit(struct changes *c, int upper, const char *name, const char *path, int depth,
                  void *arg) {
    struct beside *beside = arg;
    struct stat now, before;
    if (fstatat(upper, name, &now, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    bool was = beside->host >= 0 && fstatat(beside->host, name, &before, AT_SYMLINK_NOFOLLOW) == 0;
    bool is_dir = S_ISDIR(now.st_mode), other = was && S_ISDIR(before.st_mode) != is_dir;
    if (was && (is_whiteout(&now) || other))
        removed(c, beside->host, name, path, depth, NULL);
    was = was && !other;
    if (is_dir ? !was : S_ISREG(now.st_mode) || S_ISLNK(now.st_mode))
        changes_add(c, path, was ? 'M' : 'A', &now);
    if (is_dir)
        visit_dir(c, upper, name, path, depth, was ? *beside : (struct beside){-1, true});
}

/* Sorts by path. If the type of a path changed, its removal comes before its addition. */
static int by_path(const void *a, const void *b) {
    const struct change *x = a, *y = b;
    int order = strcmp(x->path, y->path);
    return order ? order : (y->kind == 'D') - (x->kind == 'D');
}

void changes_find(int upper, int host_dir, struct changes *ret) {
    *ret = (struct changes){0};
    struct beside beside = {host_dir, false};
    each(ret, upper, "", 0, visit, &beside);
    if (ret->count == CHANGES_MAX)
        ret->cut = true;
    if (ret->count)
        qsort(ret->list, ret->count, sizeof(*ret->list), by_path);
}

void changes_done(struct changes *c) {
    for (size_t i = 0; i < c->count; i++) {
        free(c->list[i].path);
        free(c->list[i].target);
        if (c->list[i].n)
            munmap(c->list[i].bytes, c->list[i].n);
    }
    free(c->list);
    *c = (struct changes){0};
}

/* ---- reading: each file is read once, so that the bytes shown are the bytes written ---- */

static int guest_path(const struct apply *a, size_t grant, const char *path, char *to,
                      size_t size) {
    return snprintf(to, size, "%s/%s", a->plan->grants[grant].path, path) < (int)size ? 0 : -1;
}

/* Makes the URL of an API request about the file at `path` in the machine. */
static int file_target(const struct apply *a, const char *format, const char *path,
                       char target[CLIENT_TARGET_SIZE], struct err *err) {
    return client_target(target, err, format, a->remote->id, path);
}

static int stat_inside(const struct apply *a, const char *path, json_t **ret, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target};
    return file_target(a, "/v1/machines/%s/files/stat?path=%s&user=root", path, target, err) < 0
               ? -1
               : remote_call(a->remote, &r, ret, err);
}

/* Creates a temporary file without a name, in the filesystem of `dir` or else in memory. */
static int open_nameless(int dir) {
    int fd = openat(dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    return fd >= 0 ? fd : memfd_create("change", MFD_CLOEXEC);
}

static int fetch(const struct apply *a, const char *path, int to, size_t *ret_n, struct err *err) {
    char target[CLIENT_TARGET_SIZE];
    const struct client_request r = {.method = "GET", .target = target, .accept = "*/*"};
    const struct http_head *head;
    const char *bytes;
    size_t n, all = 0;
    int more;
    if (file_target(a, "/v1/machines/%s/files?path=%s&user=root", path, target, err) < 0 ||
        remote_ask(a->remote, &r, &head, err) < 0)
        return -1;
    while ((more = http_client_read(a->remote->second, &bytes, &n, err)) > 0) {
        if ((all += n) > FILE_MAX)
            return err_set(err, ERR_LIMIT, "file '%s' of the machine is larger than %d MiB", path,
                           FILE_MAX >> 20);
        int w = write_all(to, bytes, n);
        if (w < 0)
            return err_num(err, w, "cannot copy file '%s' of the machine", path);
    }
    *ret_n = all;
    return more;
}

/* Reads a file of the machine into `c`, where it stays for the review. */
static int hold(const struct apply *a, size_t grant, const char *path, struct changes *all,
                struct change *c, struct err *err) {
    size_t n = 0;
    int fd DEFER_CLOSE = open_nameless(a->grants->dirs[grant]);
    if (fd < 0)
        return err_sys(err, "cannot create a temporary file for a copy of '%s'", path);
    if (fetch(a, path, fd, &n, err) < 0)
        return -1;
    if (n > HELD_MAX - all->held) {
        err_set(err, ERR_LIMIT, "the changed files are larger than %d MiB in total",
                HELD_MAX >> 20);
        return err_remedy(err, "use carrel new --dir, then carrel ship --only for parts of them");
    }
    char *bytes = n ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : NULL;
    if (bytes == MAP_FAILED)
        return err_sys(err, "cannot map the copy of '%s' into memory", path);
    c->bytes = bytes;
    c->n = n;
    all->held += n;
    return 0;
}

static const char *type_of(const struct change *c) {
    return c->is_dir ? "directory" : c->is_link ? "symlink" : "file";
}

static int changes_look(const struct apply *a, size_t grant, struct changes *all, struct change *c,
                        struct err *err) {
    char path[PLAN_PATH_SIZE * 3];
    json_t *entry DEFER(json_decrefp) = NULL;
    if (c->kind == 'D')
        return 0;
    if (guest_path(a, grant, c->path, path, sizeof(path)) < 0)
        return err_set(err, ERR_LIMIT, "path '%s' is too long", c->path);
    if (stat_inside(a, path, &entry, err) < 0)
        return -1;
    if (strcmp(client_text(entry, "type"), type_of(c)) != 0)
        return err_set(err, ERR_BUSY,
                       "path '%s' changed during the review: these changes were not copied back",
                       c->path);
    c->mode = (mode_t)strtoul(client_text(entry, "mode"), NULL, 8) & 07777;
    c->target = c->is_link ? xstrdup(client_text(entry, "target")) : NULL;
    return c->is_dir || c->is_link ? 0 : hold(a, grant, path, all, c, err);
}

static int open_parent(int dir, const char *path, const char **ret_name) {
    return beneath_parent(dir, path, O_RDONLY, ret_name);
}

/* ---- showing ---- */

static bool is_text(const char *bytes, size_t n) {
    return !n || !memchr(bytes, 0, n);
}

/* Reads the file on the host into `text`. False: the file is absent, unreadable or too large. */
static bool read_before(int host_dir, const struct change *c, struct stat *ret, struct buf *text) {
    const char *name;
    char bytes[64 << 10];
    int dir DEFER_CLOSE = open_parent(host_dir, c->path, &name);
    int fd DEFER_CLOSE =
        dir < 0 ? -1 : openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    *ret = (struct stat){0};
    if (fd < 0 || fstat(fd, ret) < 0 || !S_ISREG(ret->st_mode) || ret->st_size > SHOWN_MAX)
        return false;
    for (ssize_t n; (n = read(fd, bytes, sizeof(bytes))) != 0;)
        if (n < 0 || !buf_add(text, bytes, (size_t)n))
            return false;
    return true;
}

static void show_text(const struct change *c, const struct stat *was, const struct buf *before) {
    struct buf diff DEFER(buf_done) = BUF(4 * SHOWN_MAX);
    struct textdiff_count count;
    const char *why = was->st_size > SHOWN_MAX || c->n > SHOWN_MAX ? "too large to show"
                      : !is_text(c->bytes, c->n) || !is_text(before->data, before->len)
                          ? "not a text file"
                          : NULL;
    if (!why && !textdiff(&diff, before->data ? before->data : "", before->len,
                          c->bytes ? c->bytes : "", c->n, CONTEXT, &count))
        why = "too large to show";
    if (why)
        printf("(%lld bytes before, %zu after: %s)\n", (long long)was->st_size, c->n, why);
    else
        safe_text(stdout, diff.data ? diff.data : "", diff.len);
}

static void show_flags(const struct change *c) {
    char flags[FLAGS_TEXT];
    struct tar_entry e = {.kind = c->is_dir    ? TAR_DIR
                                  : c->is_link ? TAR_SYMLINK
                                               : TAR_FILE,
                          .mode = c->mode};
    snprintf(e.path, sizeof(e.path), "%s", c->path);
    snprintf(e.target, sizeof(e.target), "%s", c->target ? c->target : "");
    flags_text(flags_of(&e, c->bytes, c->n), flags);
    if (*flags)
        printf("  [%s]", flags);
    if (*flags_why(c->path))
        printf("  %s", flags_why(c->path));
}

/* Shows the permission bits. The other mode bits are not copied to the host. */
static void show_mode(const struct change *c, const struct stat *was) {
    unsigned now = c->mode & 0777, before = was->st_mode & 0777;
    if (!was->st_mode)
        printf("  mode %o", now);
    else if (now != before)
        printf("  mode %o -> %o", before, now);
}

static void changes_show(int host_dir, const struct change *c) {
    struct buf before DEFER(buf_done) = BUF(SHOWN_MAX);
    struct stat was = {0};
    bool is_file = c->kind != 'D' && !c->is_dir && !c->is_link;
    if (is_file && c->kind == 'M')
        read_before(host_dir, c, &was, &before);
    printf("%c ", c->kind);
    safe_name(stdout, c->path);
    if (c->is_dir)
        putchar('/');
    if (c->target) {
        fputs(" -> ", stdout);
        safe_name(stdout, c->target);
    } else if (c->kind != 'D') {
        show_mode(c, &was);
    }
    if (c->kind != 'D')
        show_flags(c);
    putchar('\n');
    if (is_file)
        show_text(c, &was, &before);
}

static bool changes_ask(size_t count, const char *dir) {
    FILE *tty = fopen("/dev/tty", "r+e");
    char answer[16] = "";
    if (!tty) {
        fprintf(stderr, "carrel: there is no terminal to ask on: nothing was copied back\n");
        return false;
    }
    fprintf(tty, "Copy %zu change%s back to %s? [y/N] ", count, count == 1 ? "" : "s", dir);
    fflush(tty);
    bool yes = fgets(answer, sizeof(answer), tty) && (answer[0] == 'y' || answer[0] == 'Y');
    fclose(tty);
    return yes;
}

/* ---- writing ---- */

static bool touched_since(int dir, const char *name, struct timespec since) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return st.st_ctim.tv_sec > since.tv_sec ||
           (st.st_ctim.tv_sec == since.tv_sec && st.st_ctim.tv_nsec > since.tv_nsec);
}

/* Finds the owner for a file that root writes: that of the old file, else of the directory. */
static void owner_of(int dir, const char *name, struct stat *ret) {
    if (fstatat(dir, name, ret, AT_SYMLINK_NOFOLLOW) < 0 && fstat(dir, ret) < 0)
        *ret = (struct stat){.st_uid = geteuid(), .st_gid = getegid()};
}

static int give(int dir, const char *name, const struct stat *owner) {
    return geteuid() ? 0 : fchownat(dir, name, owner->st_uid, owner->st_gid, AT_SYMLINK_NOFOLLOW);
}

/* Renames the complete file `aside` to `name`, so that no reader sees a partial file. */
static int take_place(int dir, const char *aside, const char *name, const struct stat *owner,
                      struct err *err) {
    if (give(dir, aside, owner) == 0 && renameat(dir, aside, dir, name) == 0)
        return 0;
    err_sys(err, "cannot write '%s'", name);
    unlinkat(dir, aside, 0);
    return -1;
}

static void aside_name(int dir, char ret[64]) {
    snprintf(ret, 64, ".carrel-%d", (int)getpid());
    unlinkat(dir, ret, 0);
}

static int write_file(int dir, const char *name, const struct change *c, struct err *err) {
    char aside[64];
    struct stat owner;
    owner_of(dir, name, &owner);
    aside_name(dir, aside);
    int fd DEFER_CLOSE = openat(dir, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    int status = fd < 0 ? -errno : write_all(fd, c->bytes, c->n);
    if (status == 0 && fchmod(fd, c->mode & 0777) < 0)
        status = -errno;
    if (status == 0)
        return take_place(dir, aside, name, &owner, err);
    unlinkat(dir, aside, 0);
    return err_num(err, status, "cannot write '%s'", name);
}

static int make_link(int dir, const char *name, const char *target, struct err *err) {
    char aside[64];
    struct stat owner;
    /* JSON has U+FFFD in place of bytes that are not UTF-8, so the real target is unknown. */
    if (!*target || strstr(target, "\xef\xbf\xbd"))
        return err_set(err, ERR_UNSUPPORTED,
                       "the target of symbolic link '%s' is empty or not UTF-8", name);
    owner_of(dir, name, &owner);
    aside_name(dir, aside);
    if (symlinkat(target, dir, aside) < 0)
        return err_sys(err, "cannot create symbolic link '%s'", name);
    return take_place(dir, aside, name, &owner, err);
}

static int changes_make_dir(int dir, const char *name, mode_t mode, struct err *err) {
    struct stat owner;
    owner_of(dir, name, &owner);
    if (mkdirat(dir, name, mode & 0777) < 0)
        return errno == EEXIST ? 0 : err_sys(err, "cannot create directory '%s'", name);
    return give(dir, name, &owner) < 0
               ? err_sys(err, "cannot set the owner of directory '%s'", name)
               : 0;
}

static int write_one(const struct change *c, int dir, const char *name, struct err *err) {
    return c->is_dir    ? changes_make_dir(dir, name, c->mode, err)
           : c->is_link ? make_link(dir, name, c->target, err)
                        : write_file(dir, name, c, err);
}

static int apply_one(const struct apply *a, size_t grant, const struct change *c, struct err *err) {
    const char *name;
    int dir DEFER_CLOSE = open_parent(a->grants->dirs[grant], c->path, &name);
    if (dir < 0)
        return err_num(err, dir, "cannot open the directory that contains '%s'", c->path);
    if (!c->is_dir && touched_since(dir, name, a->since))
        return err_set(err, ERR_BUSY, "file '%s' was changed on this host: it is not overwritten",
                       c->path);
    if (c->kind != 'D')
        return write_one(c, dir, name, err);
    if (unlinkat(dir, name, c->is_dir ? AT_REMOVEDIR : 0) < 0 && errno != ENOENT)
        return err_sys(err, "cannot delete '%s'", c->path);
    return 0;
}

static size_t apply_or_say(const struct apply *a, size_t grant, const struct change *c) {
    struct err err;
    if (apply_one(a, grant, c, &err) == 0)
        return 1;
    fputs("carrel: ", stderr);
    safe_name(stderr, err.text);
    fputc('\n', stderr);
    return 0;
}

int changes_apply(const struct apply *a, size_t grant, struct changes *c, struct err *err) {
    for (size_t i = 0; i < c->count; i++) {
        if (changes_look(a, grant, c, &c->list[i], err) < 0)
            return -1;
        changes_show(a->grants->dirs[grant], &c->list[i]);
    }
    fflush(stdout);
    if (c->cut)
        return err_set(err, ERR_LIMIT,
                       "the list of changes is incomplete (too many changes, or a directory that "
                       "cannot be read): these changes "
                       "were not copied back");
    if (!changes_ask(c->count, a->grants->host[grant]))
        return 0;
    /* Deletions come first, the contents of a directory before the directory. Then come the
     * other changes, a directory before its contents. */
    size_t done = 0;
    for (size_t i = c->count; i-- > 0;)
        if (c->list[i].kind == 'D')
            done += apply_or_say(a, grant, &c->list[i]);
    for (size_t i = 0; i < c->count; i++)
        if (c->list[i].kind != 'D')
            done += apply_or_say(a, grant, &c->list[i]);
    fprintf(stderr, "carrel: %zu of %zu changes copied back to %s\n", done, c->count,
            a->grants->host[grant]);
    return 0;
}
