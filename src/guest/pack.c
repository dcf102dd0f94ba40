/*
 * `tar` writes a directory as an archive to stdout. Names are relative to the directory; hard links
 * become copies.
 */
#include <dirent.h>
#include <string.h>
#include <sys/stat.h>

#include "base/fs/dots.h"
#include "base/tar.h"
#include "guest/sys.h"
#include "guest/tool.h"

/*
 * Each directory level needs a descriptor, so depth is limited. Deeper entries are skipped and
 * reported.
 */
#define DEPTH_MAX 256

static struct {
    struct {
        DIR *dir;
        size_t len; /* length of the directory's path, including the slash */
    } levels[DEPTH_MAX];
    int depth;
    bool is_partial;
    bool names_others;      /* also pack entries for pipes, sockets and devices */
    struct tar_entry entry; /* the file that is being packed */
} p;

static void leave_out(int number, const char *what) {
    tool_complain(number, what, p.entry.path);
    p.is_partial = true;
}

static void pack_put_head(void) {
    static uint8_t head[TAR_HEAD_MAX];
    guest_tool_write(head, tar_put(head, &p.entry));
}

static void put_zeros(uint64_t n) {
    static const uint8_t zeros[TAR_BLOCK];
    for (; n > 0; n -= n < TAR_BLOCK ? n : TAR_BLOCK)
        guest_tool_write(zeros, n < TAR_BLOCK ? (size_t)n : TAR_BLOCK);
}

/* Writes as many bytes as the header says, even if the file became shorter meanwhile. */
static void put_contents(int fd) {
    uint64_t left = p.entry.size;
    ssize_t n = 1;
    while (left > 0 && (n = tool_write_from(fd, left < SIZE_MAX ? (size_t)left : SIZE_MAX)) > 0)
        left -= (uint64_t)n;
    if (left > 0)
        leave_out(n < 0 ? errno : 0, "file became shorter, filled with zeros:");
    put_zeros(left);
    put_zeros(tar_padding(p.entry.size));
}

static void pack_file(int dir, const char *name) {
    struct stat st;
    int fd DEFER_CLOSE =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        leave_out(fd < 0 ? errno : 0, "cannot open");
        return;
    }
    p.entry.kind = TAR_FILE;
    p.entry.size = (uint64_t)st.st_size;
    pack_put_head();
    put_contents(fd);
}

static void pack_link(int dir, const char *name) {
    ssize_t n = readlinkat(dir, name, p.entry.target, TAR_NAME_MAX);
    if (n < 0) {
        leave_out(errno, "cannot read link");
        return;
    }
    p.entry.target[n] = '\0';
    p.entry.kind = TAR_SYMLINK;
    pack_put_head();
    p.entry.target[0] = '\0';
}

/* Starts to pack a directory. The packer then owns its descriptor. */
static bool pack_enter(int fd, size_t len) {
    DIR *dir = fd >= 0 && p.depth < DEPTH_MAX && !tool_is_proc(fd) ? fdopendir(fd) : NULL;
    if (!dir) {
        leave_out(p.depth == DEPTH_MAX ? ELOOP : fd < 0 ? errno : EACCES, "cannot open");
        close_fd(&fd);
        return false;
    }
    p.levels[p.depth].dir = dir;
    p.levels[p.depth++].len = len;
    return true;
}

static void pack_dir(int dir, const char *name) {
    size_t n = strlen(p.entry.path);
    if (n == TAR_NAME_MAX) {
        leave_out(ENAMETOOLONG, "cannot pack");
        return;
    }
    memcpy(p.entry.path + n, "/", 2);
    p.entry.kind = TAR_DIR;
    pack_put_head();
    pack_enter(openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC), n + 1);
}

/* Pack a special file without content: a missing entry would count as deleted. */
static void pack_other(void) {
    p.entry.kind = TAR_OTHER;
    pack_put_head();
}

static void pack(int dir, const char *name) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            leave_out(errno, "cannot stat");
        return;
    }
    p.entry.mode = st.st_mode & 07777;
    p.entry.uid = st.st_uid;
    p.entry.gid = st.st_gid;
    p.entry.mtime = st.st_mtim.tv_sec;
    p.entry.size = 0;
    if (S_ISREG(st.st_mode))
        pack_file(dir, name);
    else if (S_ISDIR(st.st_mode))
        pack_dir(dir, name);
    else if (S_ISLNK(st.st_mode))
        pack_link(dir, name);
    else if (p.names_others)
        pack_other();
    else
        leave_out(0, "not a file, directory or link:");
}

static bool name_entry(size_t at, const char *name) {
    size_t n = strlen(name);
    if (n > TAR_NAME_MAX - at) {
        leave_out(ENAMETOOLONG, "cannot pack");
        return false;
    }
    memcpy(p.entry.path + at, name, n + 1);
    return true;
}

static void pack_levels(void) {
    while (p.depth > 0) {
        DIR *dir = p.levels[p.depth - 1].dir;
        size_t len = p.levels[p.depth - 1].len;
        struct dirent *e = readdir(dir);
        p.entry.path[len] = '\0';
        if (!e) {
            closedir(dir);
            p.depth--;
        } else if (!is_dots(e->d_name) && name_entry(len, e->d_name)) {
            pack(dirfd(dir), e->d_name);
        }
    }
}

int tool_tar(char **argv) {
    const char *path = argv[1];
    if (!path || *path != '/')
        tool_fail(EINVAL, "the path must be absolute:", path ? path : "");
    p.names_others = argv[2] && strcmp(argv[2], "all") == 0;
    struct stat st;
    int at DEFER_CLOSE = sys_open(AT_FDCWD, path, O_PATH, 0);
    if (at < 0 || fstat(at, &st) < 0)
        tool_fail(errno, "cannot open", path);
    if (S_ISDIR(st.st_mode)) {
        if (!pack_enter(openat(at, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0))
            return MSG_TOOL_FAILED;
        pack_levels();
    } else if (name_entry(0, strrchr(path, '/') + 1)) {
        pack(AT_FDCWD, path);
    }
    put_zeros(2 * TAR_BLOCK);
    tool_flush();
    return p.is_partial ? MSG_TOOL_PARTLY : MSG_TOOL_DONE;
}
