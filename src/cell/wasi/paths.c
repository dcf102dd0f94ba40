/*
 * Functions of paths. The kernel resolves each path beneath its directory (base/fs/beneath.h), so
 * neither ".." nor a symbolic link leads out of it.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/defer.h"
#include "base/fs/beneath.h"
#include "cell/wasi/wasi_inner.h"

/* A path of the program, copied from its memory, and its directory. */
struct wasi_path {
    struct wasi_fd *dir;
    char text[WASI_PATH_MAX];
};

/* Reads the arguments (descriptor, pointer, length) of a path, which must not be absolute. */
static int wasi_path_text(const struct wasi_at *a, int pointer, char text[WASI_PATH_MAX]) {
    uint32_t len = wasi_u32(a, pointer + 1);
    const uint8_t *bytes = wasi_bytes(a->c, wasi_u32(a, pointer), len);
    if (!bytes)
        return WASI_FAULT;
    if (len >= WASI_PATH_MAX)
        return WASI_NAMETOOLONG;
    if (memchr(bytes, 0, len))
        return WASI_INVAL;
    memcpy(text, bytes, len);
    text[len] = '\0';
    return !len ? WASI_NOENT : text[0] == '/' ? WASI_PERM : WASI_OK;
}

/* `changes`: the call changes the directory, so a read-only preopen refuses it. */
static int wasi_path_at(const struct wasi_at *a, int fd, int pointer, uint64_t rights, bool changes,
                        struct wasi_path *ret) {
    struct wasi_fd *f = wasi_fd_at(a->w, wasi_u32(a, fd));
    if (f && f->kind != KIND_DIR && f->kind != KIND_STALE)
        return WASI_NOTDIR;
    int error = wasi_fd_with(a->w, wasi_u32(a, fd), rights, &ret->dir);
    if (error)
        return error;
    error = wasi_path_text(a, pointer, ret->text);
    if (!error && changes && ret->dir->is_read_only)
        error = WASI_ROFS;
    return error;
}

/*
 * Opens the parent directory of a path. *ret_name is the last name, with a slash if the path ended
 * with one. A last name of ".." would lead out of the parent, so then the whole path is opened, and
 * the name is ".".
 */
static int wasi_parent(struct wasi_path *p, const char **ret_name) {
    size_t end = strlen(p->text);
    while (end > 1 && p->text[end - 1] == '/')
        end--;
    size_t start = end;
    while (start > 0 && p->text[start - 1] != '/')
        start--;
    size_t len = end - start;
    bool is_dots = (len == 1 && p->text[start] == '.') ||
                   (len == 2 && p->text[start] == '.' && p->text[start + 1] == '.');
    if (is_dots) {
        *ret_name = ".";
        return beneath_open(p->dir->host, p->text, O_PATH | O_DIRECTORY);
    }
    char parent[WASI_PATH_MAX];
    memcpy(parent, p->text, start);
    parent[start] = '\0';
    if (p->text[end] == '/')
        p->text[end + 1] = '\0';
    *ret_name = p->text + start;
    return beneath_open(p->dir->host, start ? parent : ".", O_PATH | O_DIRECTORY);
}

/* --- open --- */

enum wasi_kind wasi_kind_of(int host) {
    struct stat st;
    if (fstat(host, &st) < 0)
        return KIND_FREE;
    return S_ISREG(st.st_mode) ? KIND_FILE : S_ISDIR(st.st_mode) ? KIND_DIR : KIND_FREE;
}

static int wasi_host_flags(uint64_t rights, uint16_t flags, unsigned oflags) {
    bool reads = rights & (RIGHT_FD_READ | RIGHT_FD_READDIR), writes = rights & WASI_WRITE_RIGHTS;
    int host = writes ? (reads ? O_RDWR : O_WRONLY) : O_RDONLY;
    static const struct {
        unsigned bit;
        int flag;
    } opens[] = {{OFLAG_CREAT, O_CREAT},
                 {OFLAG_DIRECTORY, O_DIRECTORY},
                 {OFLAG_EXCL, O_EXCL},
                 {OFLAG_TRUNC, O_TRUNC}},
      kept[] = {{FDFLAG_APPEND, O_APPEND},
                {FDFLAG_DSYNC, O_DSYNC},
                {FDFLAG_RSYNC, O_SYNC},
                {FDFLAG_SYNC, O_SYNC}};
    for (size_t i = 0; i < 4; i++)
        host |=
            (oflags & opens[i].bit ? opens[i].flag : 0) | (flags & kept[i].bit ? kept[i].flag : 0);
    return host;
}

/* O_NONBLOCK: a pipe must not block the worker; it is refused once it is open. */
int wasi_open_beneath(int dir, const char *path, const struct wasi_fd *like, bool follow,
                      unsigned oflags) {
    int flags = wasi_host_flags(like->base, like->flags, oflags) | O_NONBLOCK | O_NOCTTY;
    return beneath_create(dir, path, flags | (follow ? 0 : O_NOFOLLOW), 0666);
}

/* Returns the path beneath the preopen, or NULL if it is too long to be kept. */
static char *wasi_full_path(const char *dir, const char *path) {
    size_t n = dir ? strlen(dir) : 0, len = strlen(path);
    if (!dir || n + len + 2 > WASI_PATH_MAX)
        return NULL;
    char *full = malloc(n + len + 2);
    if (full)
        snprintf(full, n + len + 2, "%s%s%s", dir, n ? "/" : "", path);
    return full;
}

/* Checks the rights for what the flags ask, and the flags themselves. */
static int wasi_check_open(const struct wasi_fd *dir, unsigned oflags, uint32_t flags,
                           uint64_t rights) {
    if (oflags > 15 || flags > FDFLAG_ALL ||
        (oflags & (OFLAG_CREAT | OFLAG_DIRECTORY)) == (OFLAG_CREAT | OFLAG_DIRECTORY))
        return WASI_INVAL;
    if (((oflags & OFLAG_CREAT) && !(dir->base & RIGHT_PATH_CREATE_FILE)) ||
        ((oflags & OFLAG_TRUNC) && !(dir->base & RIGHT_PATH_FILESTAT_SET_SIZE)))
        return WASI_NOTCAPABLE;
    if ((oflags & OFLAG_DIRECTORY) && (rights & WASI_WRITE_RIGHTS))
        return WASI_ISDIR;
    if (dir->is_read_only &&
        ((oflags & (OFLAG_CREAT | OFLAG_TRUNC)) || (rights & WASI_WRITE_RIGHTS)))
        return WASI_ROFS;
    return WASI_OK;
}

/* Rights that the kind of file does not know are dropped, as are those that dir may not pass on. */
static int wasi_finish_open(const struct wasi_at *a, const struct wasi_path *p, struct wasi_fd *f) {
    uint32_t fd;
    f->kind = wasi_kind_of(f->host);
    if (f->kind == KIND_FREE) {
        close(f->host);
        return WASI_NOTSUP;
    }
    f->base &= f->kind == KIND_DIR ? WASI_DIR_RIGHTS : WASI_FILE_RIGHTS;
    f->path = wasi_full_path(p->dir->path, p->text);
    int error = wasi_fd_add(a->w, f, &fd);
    if (error)
        return error;
    error = wasi_put_number(a, wasi_u32(a, 8), fd, 4);
    if (error)
        wasi_fd_drop(&a->w->fds[fd]);
    return error;
}

int wasi_path_open(const struct wasi_at *a) {
    struct wasi_path p;
    unsigned oflags = wasi_u32(a, 4);
    uint32_t flags = wasi_u32(a, 7);
    int error = wasi_path_at(a, 0, 2, RIGHT_PATH_OPEN, false, &p);
    if (!error)
        error = wasi_check_open(p.dir, oflags, flags, wasi_u64(a, 5));
    if (error)
        return error;
    struct wasi_fd f = {.is_read_only = p.dir->is_read_only,
                        .root = p.dir->root,
                        .base = wasi_u64(a, 5) & p.dir->inheriting,
                        .inheriting = wasi_u64(a, 6) & p.dir->inheriting,
                        .flags = (uint16_t)flags};
    f.host = wasi_open_beneath(p.dir->host, p.text, &f, wasi_u32(a, 1) & LOOKUP_FOLLOW, oflags);
    return f.host < 0 ? wasi_path_error(f.host) : wasi_finish_open(a, &p, &f);
}

/* --- attributes --- */

/* Opens what a path names, without rights to its contents. */
static int wasi_look(const struct wasi_path *p, uint32_t lookup) {
    return beneath_open(p->dir->host, p->text, O_PATH | (lookup & LOOKUP_FOLLOW ? 0 : O_NOFOLLOW));
}

int wasi_path_filestat_get(const struct wasi_at *a) {
    struct wasi_path p;
    struct stat st;
    int error = wasi_path_at(a, 0, 2, RIGHT_PATH_FILESTAT_GET, false, &p);
    if (error)
        return error;
    int fd DEFER_CLOSE = wasi_look(&p, wasi_u32(a, 1));
    if (fd < 0)
        return wasi_path_error(fd);
    if (fstat(fd, &st) < 0)
        return wasi_error(-errno);
    return wasi_put_filestat(a, wasi_u32(a, 4), &st, FILETYPE_UNKNOWN);
}

int wasi_path_filestat_set_times(const struct wasi_at *a) {
    struct wasi_path p;
    struct timespec times[2];
    int error = wasi_path_at(a, 0, 2, RIGHT_PATH_FILESTAT_SET_TIMES, true, &p);
    if (!error)
        error = wasi_times(a, 4, times);
    if (error)
        return error;
    int fd DEFER_CLOSE = wasi_look(&p, wasi_u32(a, 1));
    if (fd < 0)
        return wasi_path_error(fd);
    return utimensat(fd, "", times, AT_EMPTY_PATH) < 0 ? wasi_error(-errno) : WASI_OK;
}

int wasi_path_readlink(const struct wasi_at *a) {
    struct wasi_path p;
    char target[WASI_PATH_MAX];
    int error = wasi_path_at(a, 0, 1, RIGHT_PATH_READLINK, false, &p);
    if (error)
        return error;
    int fd DEFER_CLOSE = wasi_look(&p, 0);
    if (fd < 0)
        return wasi_path_error(fd);
    ssize_t n = readlinkat(fd, "", target, sizeof(target));
    if (n < 0) /* the kernel says ENOENT of what is not a link */
        return errno == ENOENT ? WASI_INVAL : wasi_error(-errno);
    size_t len = (size_t)n < wasi_u32(a, 4) ? (size_t)n : wasi_u32(a, 4);
    error = wasi_put(a, wasi_u32(a, 3), target, len);
    return error ? error : wasi_put_number(a, wasi_u32(a, 5), len, 4);
}

/* --- names --- */

int wasi_path_create_directory(const struct wasi_at *a) {
    struct wasi_path p;
    const char *name;
    int error = wasi_path_at(a, 0, 1, RIGHT_PATH_CREATE_DIRECTORY, true, &p);
    if (error)
        return error;
    int parent DEFER_CLOSE = wasi_parent(&p, &name);
    if (parent < 0)
        return wasi_path_error(parent);
    return mkdirat(parent, name, 0777) < 0 ? wasi_error(-errno) : WASI_OK;
}

static int wasi_remove(const struct wasi_at *a, uint64_t right, int flags) {
    struct wasi_path p;
    const char *name;
    int error = wasi_path_at(a, 0, 1, right, true, &p);
    if (error)
        return error;
    int parent DEFER_CLOSE = wasi_parent(&p, &name);
    if (parent < 0)
        return wasi_path_error(parent);
    return unlinkat(parent, name, flags) < 0 ? wasi_error(-errno) : WASI_OK;
}

int wasi_path_remove_directory(const struct wasi_at *a) {
    return wasi_remove(a, RIGHT_PATH_REMOVE_DIRECTORY, AT_REMOVEDIR);
}

int wasi_path_unlink_file(const struct wasi_at *a) {
    return wasi_remove(a, RIGHT_PATH_UNLINK_FILE, 0);
}

int wasi_path_rename(const struct wasi_at *a) {
    struct wasi_path from, to;
    const char *from_name, *to_name;
    int error = wasi_path_at(a, 0, 1, RIGHT_PATH_RENAME_SOURCE, true, &from);
    if (!error)
        error = wasi_path_at(a, 3, 4, RIGHT_PATH_RENAME_TARGET, true, &to);
    if (error)
        return error;
    int old DEFER_CLOSE = wasi_parent(&from, &from_name);
    int new DEFER_CLOSE = wasi_parent(&to, &to_name);
    if (old < 0 || new < 0)
        return wasi_path_error(old < 0 ? old : new);
    return syscall(SYS_renameat2, old, from_name, new, to_name, 0) < 0 ? wasi_error(-errno)
                                                                       : WASI_OK;
}

/* The kernel cannot check where a link leads while it makes a hard link: links are not followed. */
int wasi_path_link(const struct wasi_at *a) {
    struct wasi_path from, to;
    const char *from_name, *to_name;
    int error = wasi_path_at(a, 0, 2, RIGHT_PATH_LINK_SOURCE, true, &from);
    if (!error)
        error = wasi_path_at(a, 4, 5, RIGHT_PATH_LINK_TARGET, true, &to);
    if (!error && (wasi_u32(a, 1) & LOOKUP_FOLLOW))
        error = WASI_INVAL;
    if (error)
        return error;
    int old DEFER_CLOSE = wasi_parent(&from, &from_name);
    int new DEFER_CLOSE = wasi_parent(&to, &to_name);
    if (old < 0 || new < 0)
        return wasi_path_error(old < 0 ? old : new);
    /* The kernel would follow a link whose name ends with a slash, out of the directory too. */
    if (strchr(from_name, '/'))
        return WASI_NOTDIR;
    return linkat(old, from_name, new, to_name, 0) < 0 ? wasi_error(-errno) : WASI_OK;
}

/* An absolute target could only lead out of the directory, so it is refused. */
int wasi_path_symlink(const struct wasi_at *a) {
    struct wasi_path to;
    char target[WASI_PATH_MAX];
    const char *name;
    int error = wasi_path_text(a, 0, target);
    if (!error)
        error = wasi_path_at(a, 2, 3, RIGHT_PATH_SYMLINK, true, &to);
    if (error)
        return error;
    int parent DEFER_CLOSE = wasi_parent(&to, &name);
    if (parent < 0)
        return wasi_path_error(parent);
    return symlinkat(target, parent, name) < 0 ? wasi_error(-errno) : WASI_OK;
}
