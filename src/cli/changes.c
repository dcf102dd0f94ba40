#include "cli/changes.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"

enum { DEPTH_MAX = 64, FILE_MAX = 64 << 20 };

static void close_dir(DIR **d) {
    if (*d)
        closedir(*d);
}

static int add(struct changes *c, const char *path, char kind, const struct stat *st, struct err *err) {
    if (c->count == CHANGES_MAX) {
        c->cut = true;
        return 0;
    }
    struct change *list = realloc(c->list, (c->count + 1) * sizeof(*list));
    if (!list)
        return err_set(err, ERR_LIMIT, "out of memory");
    c->list = list;
    char *copy = strdup(path);
    if (!copy)
        return err_set(err, ERR_LIMIT, "out of memory");
    list[c->count++] = (struct change){.path = copy, .kind = kind, .is_dir = S_ISDIR(st->st_mode),
                                       .is_link = S_ISLNK(st->st_mode)};
    return 0;
}

static bool is_whiteout(const struct stat *st) {
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

static int walk(int upper, int host, const char *prefix, int depth, struct changes *c, struct err *err);

static int visit(int upper, int host, const char *name, const char *path, int depth,
                 struct changes *c, struct err *err) {
    struct stat now, before;
    if (fstatat(upper, name, &now, AT_SYMLINK_NOFOLLOW) < 0)
        return 0;
    bool was = host >= 0 && fstatat(host, name, &before, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_whiteout(&now))
        return was ? add(c, path, 'D', &before, err) : 0;
    if (!S_ISDIR(now.st_mode)) {
        bool plain = S_ISREG(now.st_mode) || S_ISLNK(now.st_mode);
        return plain ? add(c, path, was ? 'M' : 'A', &now, err) : 0;
    }
    bool was_dir = was && S_ISDIR(before.st_mode);
    if (!was_dir && add(c, path, 'A', &now, err) < 0)
        return -1;
    int below DEFER_CLOSE = openat(upper, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int host_below DEFER_CLOSE =
        was_dir ? openat(host, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    if (below < 0) {
        c->cut = true;
        return 0;
    }
    return walk(below, host_below, path, depth + 1, c, err);
}

static int walk(int upper, int host, const char *prefix, int depth, struct changes *c, struct err *err) {
    int fd = openat(upper, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d DEFER(close_dir) = fd < 0 ? NULL : fdopendir(fd);
    if (!d || depth > DEPTH_MAX) {
        c->cut = true;
        return 0;
    }
    for (struct dirent *e; (e = readdir(d)) && !(c->cut && c->count == CHANGES_MAX);) {
        char path[PLAN_PATH_SIZE * 2];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        if (snprintf(path, sizeof(path), "%s%s%s", prefix, *prefix ? "/" : "", e->d_name) >= (int)sizeof(path)) {
            c->cut = true;
            continue;
        }
        if (visit(upper, host, e->d_name, path, depth, c, err) < 0)
            return -1;
    }
    return 0;
}

static int by_path(const void *a, const void *b) {
    return strcmp(((const struct change *)a)->path, ((const struct change *)b)->path);
}

int changes_find(int upper, int host_dir, struct changes *ret, struct err *err) {
    *ret = (struct changes){0};
    if (walk(upper, host_dir, "", 0, ret, err) < 0)
        return -1;
    if (ret->count)
        qsort(ret->list, ret->count, sizeof(*ret->list), by_path);
    return 0;
}

void changes_done(struct changes *c) {
    for (size_t i = 0; i < c->count; i++)
        free(c->list[i].path);
    free(c->list);
    *c = (struct changes){0};
}

/* Control characters of a name or a line could repaint the terminal of whoever reviews. */
static void show(FILE *to, const char *text, size_t len) {
    for (size_t i = 0; i < len; i++) {
        unsigned char ch = (unsigned char)text[i];
        if ((ch < ' ' && ch != '\n' && ch != '\t') || ch == 127)
            fprintf(to, "\\x%02x", ch);
        else
            fputc(ch, to);
    }
}

static int guest_path(const struct apply *a, size_t grant, const char *path, char *to, size_t size) {
    return snprintf(to, size, "%s/%s", a->plan->grants[grant].path, path) < (int)size ? 0 : -1;
}

static int stat_inside(const struct apply *a, const char *path, struct frame *frame,
                       struct msg_entry *ret, struct err *err) {
    struct msg_path m = {.uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .flags = MSG_NOFOLLOW,
                         .path = {path, (uint32_t)strlen(path)}};
    if (guest_link_call(a->link, (struct frame_head){.type = MSG_STAT}, &m, frame, err) < 0)
        return -1;
    return msg_decode(frame, ret, sizeof(*ret)) < 0 ? err_set(err, ERR_INTERNAL, "malformed answer") : 0;
}

/* The file as the command left it, in a file of ours without a name. */
static int fetch(const struct apply *a, const char *path, struct err *err) {
    int fd DEFER_CLOSE = memfd_create("change", MFD_CLOEXEC);
    if (fd < 0)
        return err_sys(err, "memfd");
    for (uint64_t at = 0;;) {
        struct frame frame;
        struct msg_read_data got;
        struct msg_read m = {.uid = MSG_ID_NONE, .gid = MSG_ID_NONE, .offset = at,
                             .bytes = MSG_CHUNK_MAX, .path = {path, (uint32_t)strlen(path)}};
        if (guest_link_call(a->link, (struct frame_head){.type = MSG_READ}, &m, &frame, err) < 0)
            return -1;
        if (msg_decode(&frame, &got, sizeof(got)) < 0)
            return err_set(err, ERR_INTERNAL, "malformed answer");
        if (got.data.n == 0)
            return TAKE_FD(fd);
        at += got.data.n;
        if (at > FILE_MAX)
            return err_set(err, ERR_LIMIT, "'%s' is larger than %d MiB", path, FILE_MAX >> 20);
        int r = write_all(fd, got.data.p, got.data.n);
        if (r < 0) {
            errno = -r;
            return err_sys(err, "copy '%s'", path);
        }
    }
}

/* diff(1) between the host's file and the fetched one; its output is shown harmless. */
static void show_diff(int host_dir, const struct change *c, int fetched) {
    char old_name[64] = "/dev/null", new_name[64];
    int old DEFER_CLOSE = c->kind == 'A' ? -1 : openat(host_dir, c->path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    int ends[2];
    if (old >= 0)
        snprintf(old_name, sizeof(old_name), "/proc/self/fd/%d", old);
    snprintf(new_name, sizeof(new_name), "/proc/self/fd/%d", fetched);
    if (pipe2(ends, O_CLOEXEC) < 0)
        return;
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(fetched, F_SETFD, 0);
        if (old >= 0)
            fcntl(old, F_SETFD, 0);
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execlp("diff", "diff", "-u", "--label", "before", "--label", "after", old_name, new_name, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    char block[4096];
    for (ssize_t n; (n = read(ends[0], block, sizeof(block))) > 0;)
        show(stdout, block, (size_t)n);
    close(ends[0]);
    while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        ;
}

static int show_one(const struct apply *a, size_t grant, const struct change *c, struct err *err) {
    char path[PLAN_PATH_SIZE * 3];
    printf("%c ", c->kind);
    show(stdout, c->path, strlen(c->path));
    puts(c->is_dir ? "/" : c->is_link ? " (link)" : "");
    if (c->kind == 'D' || c->is_dir || c->is_link)
        return 0;
    if (guest_path(a, grant, c->path, path, sizeof(path)) < 0)
        return err_set(err, ERR_LIMIT, "'%s' is too long", c->path);
    int fetched DEFER_CLOSE = fetch(a, path, err);
    if (fetched < 0)
        return -1;
    show_diff(a->grants->dirs[grant], c, fetched);
    return 0;
}

static bool ask(size_t count, const char *dir) {
    FILE *tty = fopen("/dev/tty", "r+e");
    char answer[16] = "";
    if (!tty) {
        fprintf(stderr, "carrel: nobody to ask: not applied\n");
        return false;
    }
    fprintf(tty, "Copy %zu changes back to %s? [y/N] ", count, dir);
    fflush(tty);
    bool yes = fgets(answer, sizeof(answer), tty) && (answer[0] == 'y' || answer[0] == 'Y');
    fclose(tty);
    return yes;
}

/* The directory that holds path's last name, reached without following any link. */
static int open_parent(int dir, const char *path, const char **ret_name) {
    char parent[PLAN_PATH_SIZE * 2];
    const char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    snprintf(parent, sizeof(parent), "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dir, parent, &how, sizeof(how));
}

static bool touched_since(int dir, const char *name, struct timespec since) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return false;
    return st.st_ctim.tv_sec > since.tv_sec ||
           (st.st_ctim.tv_sec == since.tv_sec && st.st_ctim.tv_nsec > since.tv_nsec);
}

static int write_file(int dir, const char *name, int from, mode_t mode, struct err *err) {
    char aside[64];
    snprintf(aside, sizeof(aside), ".carrel-%d", (int)getpid());
    unlinkat(dir, aside, 0);
    int fd DEFER_CLOSE = openat(dir, aside, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode & 0777);
    if (fd < 0)
        return err_sys(err, "write '%s'", name);
    static char block[1 << 16];
    off_t at = 0;
    for (ssize_t n; (n = pread(from, block, sizeof(block), at)) > 0; at += n) {
        int r = write_all(fd, block, (size_t)n);
        if (r < 0) {
            unlinkat(dir, aside, 0);
            errno = -r;
            return err_sys(err, "write '%s'", name);
        }
    }
    if (fchmod(fd, mode & 0777) < 0 || renameat(dir, aside, dir, name) < 0) {
        err_sys(err, "replace '%s'", name);
        unlinkat(dir, aside, 0);
        return -1;
    }
    return 0;
}

static int make_link(int dir, const char *name, const struct msg_entry *e, struct err *err) {
    unlinkat(dir, name, 0);
    return symlinkat(e->target.s, dir, name) < 0 ? err_sys(err, "make link '%s'", name) : 0;
}

static int apply_one(const struct apply *a, size_t grant, const struct change *c, struct err *err) {
    char path[PLAN_PATH_SIZE * 3];
    const char *name;
    struct frame frame;
    struct msg_entry entry;
    int dir DEFER_CLOSE = open_parent(a->grants->dirs[grant], c->path, &name);
    if (dir < 0)
        return err_sys(err, "open directory of '%s'", c->path);
    if (!c->is_dir && touched_since(dir, name, a->since))
        return err_set(err, ERR_BUSY, "'%s' was changed here meanwhile: left alone", c->path);
    if (c->kind == 'D') {
        if (unlinkat(dir, name, c->is_dir ? AT_REMOVEDIR : 0) < 0)
            return err_sys(err, "remove '%s'", c->path);
        return 0;
    }
    if (c->is_dir)
        return mkdirat(dir, name, 0755) < 0 && errno != EEXIST ? err_sys(err, "make '%s'", c->path) : 0;
    if (guest_path(a, grant, c->path, path, sizeof(path)) < 0 ||
        stat_inside(a, path, &frame, &entry, err) < 0)
        return -1;
    if (c->is_link)
        return make_link(dir, name, &entry, err);
    mode_t mode = entry.mode;
    int fetched DEFER_CLOSE = fetch(a, path, err);
    return fetched < 0 ? -1 : write_file(dir, name, fetched, mode, err);
}

int changes_apply(const struct apply *a, size_t grant, const struct changes *c, struct err *err) {
    for (size_t i = 0; i < c->count; i++)
        if (show_one(a, grant, &c->list[i], err) < 0)
            return -1;
    fflush(stdout);
    if (c->cut)
        return err_set(err, ERR_LIMIT, "too many changes to review here");
    if (!ask(c->count, a->grants->host[grant]))
        return 0;
    size_t done = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct err one;
        if (apply_one(a, grant, &c->list[i], &one) == 0)
            done++;
        else
            fprintf(stderr, "carrel: %s\n", one.text);
    }
    fprintf(stderr, "carrel: %zu of %zu changes copied back to %s\n", done, c->count,
            a->grants->host[grant]);
    return 0;
}
