/*
 * Packs the changes in a granted directory: what its upper (writable layer) has.
 *
 * The answer is a sequence of messages (enum compare_say): a tar archive of the files, links and
 * directories, and a list of the paths that the upper changes (compare.h). Untouched files are in
 * the lower directory, which is never looked at. The machine may change the upper meanwhile.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "base/fs/baseline.h"
#include "base/fs/dir.h"
#include "base/tar.h"
#include "compare/compare.h"
#include "compare/look.h"

/* A name that is replaced while it is packed is looked at again, up to TRIES_MAX times. */
enum { DEPTH_MAX = 256, TRIES_MAX = 4 };

#define TOO_LONG "packing the changes took too long"

/* One message to the daemon, collected until it is full. */
struct out {
    size_t len;
    uint8_t bytes[COMPARE_MESSAGE_MAX];
};

struct packing {
    int socket;
    const char *opaque; /* attribute of a directory that hides the one below it */
    struct patience patience;
    struct out archive, list;
    struct buf line;
    struct tar_entry entry; /* its path is that of the present name */
    unsigned depth;
    uint64_t lines;
    bool failed;
};

/* ---- messages ---- */

static void pack_send(struct packing *p, struct out *o) {
    if (o->len > 1 && !p->failed && write_all(p->socket, o->bytes, o->len) < 0)
        p->failed = true;
    o->len = 1;
}

static void pack_say(struct packing *p, struct out *o, const void *bytes, size_t n) {
    while (n > 0 && !p->failed) {
        size_t room = sizeof(o->bytes) - o->len, part = n < room ? n : room;
        memcpy(o->bytes + o->len, bytes, part);
        o->len += part;
        bytes = (const uint8_t *)bytes + part;
        n -= part;
        if (o->len == sizeof(o->bytes))
            pack_send(p, o);
    }
}

/* Ends the walk: the daemon gets the reason instead of the rest. */
static void __attribute__((format(printf, 3, 4)))
pack_fail(struct packing *p, enum pack_cause cause, const char *format, ...) {
    char text[512] = {COMPARE_FAILED, (char)cause};
    va_list args;
    if (p->failed)
        return;
    va_start(args, format);
    vsnprintf(text + 2, sizeof(text) - 2, format, args);
    va_end(args);
    p->failed = true;
    (void)!write(p->socket, text, 2 + strlen(text + 2));
}

static void pack_fail_at(struct packing *p, const char *what) {
    pack_fail(p, PACK_UNREADABLE, "%s '%.200s': %s", what, p->entry.path, strerror(errno));
}

/* Lists the present path. kind: COMPARE_SELF or COMPARE_BELOW. */
static void pack_list(struct packing *p, char kind) {
    p->line.len = 0;
    if (++p->lines > COMPARE_PACK_MAX)
        pack_fail(p, PACK_LIMIT, "the machine changed more than %d paths", COMPARE_PACK_MAX);
    else if (!buf_addf(&p->line, "%c ", kind) || !baseline_put_path(&p->line, p->entry.path) ||
             !buf_add(&p->line, "\n", 1))
        pack_fail(p, PACK_LIMIT, "path '%.200s' is too long", p->entry.path);
    else
        pack_say(p, &p->list, p->line.data, p->line.len);
}

/* ---- entries of the archive ---- */

static void pack_head(struct packing *p, enum tar_kind kind) {
    static uint8_t head[TAR_HEAD_MAX];
    p->entry.kind = kind;
    pack_say(p, &p->archive, head, tar_put(head, &p->entry));
    p->entry.target[0] = '\0';
}

static void pack_bytes(struct packing *p, int fd) {
    static const uint8_t zeros[TAR_BLOCK];
    uint64_t left = p->entry.size;
    while (left > 0 && !p->failed) {
        struct out *o = &p->archive;
        size_t room = sizeof(o->bytes) - o->len;
        ssize_t n = read(fd, o->bytes + o->len, left < room ? (size_t)left : room);
        if (n <= 0) {
            pack_fail(p, PACK_CHANGED, "file '%.200s' became shorter while it was read",
                      p->entry.path);
            return;
        }
        o->len += (size_t)n;
        left -= (uint64_t)n;
        if (o->len == sizeof(o->bytes))
            pack_send(p, o);
        if (monotonic_ms() > p->patience.until_ms)
            pack_fail(p, PACK_LIMIT, TOO_LONG);
    }
    pack_say(p, &p->archive, zeros, tar_padding(p->entry.size));
}

/* Returns false if another entry took the name meanwhile. */
static bool pack_regular(struct packing *p, int dir, const char *name) {
    struct stat st;
    int fd DEFER_CLOSE =
        openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 && (errno == ENOENT || errno == ELOOP || errno == ENXIO))
        return false;
    if (fd < 0 || fstat(fd, &st) < 0) {
        pack_fail_at(p, "cannot open file");
        return true;
    }
    if (!S_ISREG(st.st_mode))
        return false;
    p->entry.size = (uint64_t)st.st_size;
    pack_list(p, COMPARE_BELOW);
    pack_head(p, TAR_FILE);
    pack_bytes(p, fd);
    return true;
}

static bool pack_symlink(struct packing *p, int dir, const char *name) {
    ssize_t n = readlinkat(dir, name, p->entry.target, TAR_NAME_MAX);
    if (n < 0 && (errno == ENOENT || errno == EINVAL))
        return false;
    if (n < 0)
        pack_fail_at(p, "cannot read symbolic link");
    p->entry.target[n < 0 ? 0 : n] = '\0';
    pack_list(p, COMPARE_BELOW);
    pack_head(p, TAR_SYMLINK);
    return true;
}

static void pack_names(struct packing *p, int dir);

static bool pack_directory(struct packing *p, int dir, const char *name) {
    char mark[2] = "";
    size_t len = strlen(p->entry.path);
    int fd DEFER_CLOSE = look_into(dir, name);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return false;
    if (fd < 0 || p->depth == DEPTH_MAX || len == TAR_NAME_MAX) {
        errno = fd < 0 ? errno : ENAMETOOLONG;
        pack_fail_at(p, "cannot open directory");
        return true;
    }
    bool hides = fgetxattr(fd, p->opaque, mark, sizeof(mark)) > 0 && mark[0] == 'y';
    pack_list(p, hides ? COMPARE_BELOW : COMPARE_SELF);
    memcpy(p->entry.path + len, "/", 2);
    pack_head(p, TAR_DIR);
    p->depth++;
    pack_names(p, fd);
    p->depth--;
    return true;
}

/* A whiteout hides the name of the lower directory. Commands in a box cannot make such a device. */
static bool is_whiteout_mark(const struct stat *st) {
    return S_ISCHR(st->st_mode) && st->st_rdev == 0;
}

/* Packs the present path. False: another entry took the name meanwhile. */
static bool pack_entry(struct packing *p, int dir, const char *name) {
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        if (errno != ENOENT)
            pack_fail_at(p, "cannot read the metadata of file");
        return true;
    }
    p->entry.mode = st.st_mode & 07777;
    p->entry.mtime = st.st_mtim.tv_sec;
    p->entry.size = 0;
    if (S_ISREG(st.st_mode))
        return pack_regular(p, dir, name);
    if (S_ISDIR(st.st_mode))
        return pack_directory(p, dir, name);
    if (S_ISLNK(st.st_mode))
        return pack_symlink(p, dir, name);
    pack_list(p, COMPARE_BELOW);
    if (!is_whiteout_mark(&st))
        pack_head(p, TAR_OTHER);
    return true;
}

static void pack_name(struct packing *p, int dir, const char *name) {
    size_t at = strlen(p->entry.path), n = strlen(name);
    if (n > TAR_NAME_MAX - at) {
        pack_fail(p, PACK_LIMIT, "a path below '%.200s' is too long", p->entry.path);
        return;
    }
    memcpy(p->entry.path + at, name, n + 1);
    int tries = 0;
    while (!pack_entry(p, dir, name))
        if (++tries == TRIES_MAX) {
            pack_fail(p, PACK_CHANGED, "path '%.200s' changed while it was read", p->entry.path);
            break;
        }
    p->entry.path[at] = '\0';
}

static void pack_names(struct packing *p, int dir) {
    DIR *d DEFER(dir_close) = dir_list(dir, ".");
    if (!d)
        pack_fail_at(p, "cannot read directory");
    for (struct dirent *e; !p->failed && (e = readdir(d));) {
        if (is_dots(e->d_name))
            continue;
        if (patience_look(&p->patience))
            pack_name(p, dir, e->d_name);
        else
            pack_fail(p, PACK_LIMIT, "%s",
                      p->patience.cut == CUT_TIME ? TOO_LONG
                                                  : "the machine changed too many files");
    }
}

void compare_pack(int upper, bool userxattr, int socket) {
    static const uint8_t zeros[2 * TAR_BLOCK], end[] = {COMPARE_END};
    struct packing *p DEFER_FREE = xnew(struct packing);
    p->socket = socket;
    p->opaque = userxattr ? "user.overlay.opaque" : "trusted.overlay.opaque";
    p->archive.bytes[0] = COMPARE_ARCHIVE;
    p->list.bytes[0] = COMPARE_LIST;
    p->archive.len = p->list.len = 1;
    p->line = BUF(4 * TAR_NAME_MAX);
    patience_begin(&p->patience);
    p->patience.until_ms = monotonic_ms() + COMPARE_PACK_MS;
    pack_names(p, upper);
    pack_say(p, &p->archive, zeros, sizeof(zeros));
    pack_send(p, &p->archive);
    pack_send(p, &p->list);
    if (!p->failed)
        (void)!write(socket, end, sizeof(end));
    buf_done(&p->line);
}
