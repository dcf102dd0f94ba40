/*
 * `untar` unpacks an archive from stdin into a directory, and never outside it.
 *
 * The kernel resolves every path beneath that directory (RESOLVE_BENEATH): links that lead out of
 * it are not followed, and ".." is refused. Existing files are replaced; existing directories are
 * kept. Files belong to the tool's user and are never setuid.
 */
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "base/tar.h"
#include "guest/sys.h"
#include "guest/tool.h"

#define RESOLVE_BENEATH 0x08 /* from linux/openat2.h */
#define PENDING_MAX 64
#define MODE_KEPT 01777

static struct {
    int root;
    bool is_partial;
    uint32_t masked; /* mode bits to clear (the umask); 0 inside a machine */
    struct tar_reader reader;
    /* the entry that is being unpacked; its path is cleaned: no leading slash, no "." and ".." */
    struct tar_entry entry;
    const char *name; /* the last part of entry.path */
    uint8_t in[64 << 10];
    size_t start, end;
    int parent; /* parent directory of entry.path, or -1; kept for the next entry */
    char parent_path[TAR_NAME_MAX + 1];
    /* Directories whose mode and time are set after their last entry. */
    struct {
        size_t len;
        uint32_t mode;
        int64_t mtime;
    } pending[PENDING_MAX];
    int pending_count;
    char pending_path[TAR_NAME_MAX + 1];
} u;

static void leave_out(int number, const char *what) {
    tool_complain(number, what, u.entry.path);
    u.is_partial = true;
}

/* Reading the archive. */

/* Reads until the buffer has at least one block. False: the archive ends before that. */
static bool unpack_fill(void) {
    if (u.start > 0)
        memmove(u.in, u.in + u.start, u.end - u.start);
    u.end -= u.start;
    u.start = 0;
    while (u.end < TAR_BLOCK) {
        size_t n = guest_tool_read(u.in + u.end, sizeof(u.in) - u.end);
        if (n == 0)
            return false;
        u.end += n;
    }
    return true;
}

static const uint8_t *next_block(void) {
    if (u.end - u.start < TAR_BLOCK && !unpack_fill())
        tool_fail(EIO, "the tar archive is truncated", "");
    u.start += TAR_BLOCK;
    return u.in + u.start - TAR_BLOCK;
}

/*
 * Returns whole blocks of the archive from the buffer: at most `left` bytes of content and their
 * padding.
 */
static const uint8_t *next_bytes(uint64_t left, size_t *ret) {
    const uint8_t *at = next_block();
    size_t more = (u.end - u.start) / TAR_BLOCK * TAR_BLOCK;
    uint64_t want = left > TAR_BLOCK ? left - TAR_BLOCK + tar_padding(left) : 0;
    more = want < more ? (size_t)want : more;
    u.start += more;
    size_t got = TAR_BLOCK + more;
    *ret = left < got ? (size_t)left : got;
    return at;
}

static void take_contents(int fd) {
    uint64_t left = u.entry.size;
    while (left > 0) {
        size_t n;
        const uint8_t *bytes = next_bytes(left, &n);
        if (fd >= 0)
            tool_write_all(fd, bytes, n, u.entry.path);
        left -= n;
    }
}

/* Resolving paths. */

/* Reduces a path to plain names with single slashes between them. False: a name is "..". */
static bool clean(char *path) {
    char *to = path;
    for (char *at = path; *at;) {
        size_t n = strcspn(at, "/");
        if (n == 2 && at[0] == '.' && at[1] == '.')
            return false;
        if (n > 0 && !(n == 1 && *at == '.')) {
            if (to > path)
                *to++ = '/';
            memmove(to, at, n);
            to += n;
        }
        at += n;
        at += *at == '/';
    }
    *to = '\0';
    return true;
}

static int open_beneath(const char *path, int flags) {
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .resolve = RESOLVE_NO_MAGICLINKS | RESOLVE_BENEATH};
    return (int)syscall(SYS_openat2, u.root, *path ? path : ".", &how, sizeof(how));
}

/* Opens a directory, and creates it and its parents if they are missing. */
static int make_parents(char *path) {
    int dir = open_beneath("", O_PATH | O_DIRECTORY);
    for (char *at = path; dir >= 0 && *at;) {
        char *end = strchrnul(at, '/');
        char was = *end;
        *end = '\0';
        int next = open_beneath(path, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT && mkdirat(dir, at, 0755) == 0)
            next = open_beneath(path, O_PATH | O_DIRECTORY);
        *end = was;
        int number = errno;
        close(dir);
        errno = number;
        dir = next;
        at = was ? end + 1 : end;
    }
    return dir;
}

/* Splits a cleaned path into directory and name, and opens or creates the directory. */
static int open_parent(char *path, const char **ret_name) {
    char *slash = strrchr(path, '/');
    *ret_name = slash ? slash + 1 : path;
    char saved = slash ? *slash : '\0';
    if (slash)
        *slash = '\0';
    const char *dir = slash ? path : "";
    if (u.parent < 0 || strcmp(dir, u.parent_path) != 0) {
        close_fd(&u.parent);
        u.parent = open_beneath(dir, O_PATH | O_DIRECTORY);
        if (u.parent < 0 && errno == ENOENT && slash)
            u.parent = make_parents(path);
        memcpy(u.parent_path, dir, strlen(dir) + 1);
    }
    if (slash)
        *slash = saved;
    return u.parent;
}

/* Call it after EEXIST: removes an existing file with the entry's name; a directory stays. */
static bool clear_way(void) {
    return errno == EEXIST && unlinkat(u.parent, u.name, 0) == 0;
}

/* Creating entries. */

static void set_times(int fd, int64_t mtime) {
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = (time_t)mtime}};
    futimens(fd, times);
}

static void unpack_make_file(void) {
    int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    int fd DEFER_CLOSE = openat(u.parent, u.name, flags, 0600);
    if (fd < 0 && clear_way())
        fd = openat(u.parent, u.name, flags, 0600);
    if (fd < 0)
        leave_out(errno, "cannot create");
    take_contents(fd);
    if (fd < 0)
        return;
    fchmod(fd, u.entry.mode & MODE_KEPT & ~u.masked);
    set_times(fd, u.entry.mtime);
}

static void settle_dir(const char *path, uint32_t mode, int64_t mtime) {
    int fd DEFER_CLOSE = open_beneath(path, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return;
    set_times(fd, mtime);
    fchmod(fd, mode & MODE_KEPT & ~u.masked);
}

/* Sets mode and time of the pending directories that do not contain this path. */
static void settle_until(const char *path) {
    while (u.pending_count > 0) {
        size_t len = u.pending[u.pending_count - 1].len;
        if (strncmp(path, u.pending_path, len) == 0 && path[len] == '/')
            return;
        u.pending_count--;
        u.pending_path[len] = '\0';
        settle_dir(u.pending_path, u.pending[u.pending_count].mode,
                   u.pending[u.pending_count].mtime);
    }
}

static bool is_dir_there(void) {
    int fd DEFER_CLOSE = open_beneath(u.entry.path, O_PATH | O_DIRECTORY);
    return fd >= 0;
}

static void unpack_make_dir(void) {
    if (mkdirat(u.parent, u.name, 0700) < 0 && !is_dir_there()) {
        errno = EEXIST;
        if (!clear_way() || mkdirat(u.parent, u.name, 0700) < 0) {
            leave_out(errno, "cannot create directory");
            return;
        }
    }
    if (u.pending_count == PENDING_MAX) {
        settle_dir(u.entry.path, u.entry.mode | 0700, u.entry.mtime);
        return;
    }
    size_t len = strlen(u.entry.path);
    memcpy(u.pending_path, u.entry.path, len + 1);
    u.pending[u.pending_count].len = len;
    u.pending[u.pending_count].mode = u.entry.mode;
    u.pending[u.pending_count++].mtime = u.entry.mtime;
}

static void make_symlink(void) {
    if (symlinkat(u.entry.target, u.parent, u.name) < 0 &&
        !(clear_way() && symlinkat(u.entry.target, u.parent, u.name) == 0))
        leave_out(errno, "cannot create link");
}

static void make_hardlink(void) {
    if (!clean(u.entry.target) || !*u.entry.target) {
        leave_out(EINVAL, "the target of the hard link is not valid:");
        return;
    }
    char *slash = strrchr(u.entry.target, '/');
    if (slash)
        *slash = '\0';
    int dir DEFER_CLOSE = open_beneath(slash ? u.entry.target : "", O_PATH | O_DIRECTORY);
    const char *name = slash ? slash + 1 : u.entry.target;
    if (dir < 0 || (linkat(dir, name, u.parent, u.name, 0) < 0 &&
                    !(clear_way() && linkat(dir, name, u.parent, u.name, 0) == 0)))
        leave_out(errno, "cannot create hard link");
}

static void pass_over(void) {
    leave_out(0, "not a file, directory or link:");
    take_contents(-1);
}

static void (*const makers[])(void) = {
    [TAR_FILE] = unpack_make_file,  [TAR_DIR] = unpack_make_dir, [TAR_SYMLINK] = make_symlink,
    [TAR_HARDLINK] = make_hardlink, [TAR_OTHER] = pass_over,
};

static void unpack(void) {
    bool is_sound = clean(u.entry.path);
    if (is_sound && !*u.entry.path && u.entry.kind == TAR_DIR)
        return; /* the top directory, which exists */
    if (!is_sound || !*u.entry.path) {
        leave_out(EINVAL, "the path is empty or contains '..':");
        take_contents(-1);
        return;
    }
    settle_until(u.entry.path);
    if (open_parent(u.entry.path, &u.name) < 0 || strlen(u.name) > NAME_MAX) {
        leave_out(u.parent < 0 ? errno : ENAMETOOLONG, "cannot open the directory of");
        take_contents(-1);
        return;
    }
    makers[u.entry.kind]();
}

/* For use on the host: clears the mode bits that the caller's umask forbids. */
int tool_untar_masked(char **argv) {
    u.masked = umask(0);
    umask(u.masked);
    return tool_untar(argv);
}

int tool_untar(char **argv) {
    const char *path = argv[1];
    if (!path || *path != '/')
        tool_fail(EINVAL, "the path must be absolute:", path ? path : "");
    u.parent = -1;
    u.root = sys_open(AT_FDCWD, path, O_PATH | O_DIRECTORY, 0);
    if (u.root < 0 || tool_is_proc(u.root))
        tool_fail(u.root < 0 ? errno : EACCES, "cannot open", path);
    enum tar_step step;
    while ((step = tar_next(&u.reader, next_block(), &u.entry)) != TAR_END) {
        if (step == TAR_BAD)
            tool_fail(EINVAL, "the input is not a tar archive, or it is damaged", "");
        if (step == TAR_ENTRY)
            unpack();
    }
    settle_until("");
    while (guest_tool_read(u.in, sizeof(u.in)) > 0)
        ; /* skips padding after the end of the archive */
    return u.is_partial ? MSG_TOOL_PARTLY : MSG_TOOL_DONE;
}
