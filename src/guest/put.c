/*
 * `put PATH IF MODE [sync [nofollow]]` replaces a file by stdin, completely or not at all, and only
 * if the present file meets the condition IF. `sha256 PATH` prints hash and size of a file.
 *
 * IF is "any", "absent", or the hash that the present file must have. It is checked before stdin is
 * read and again before the rename; for "absent" the rename itself fails if a file exists. MODE
 * (octal) applies to a new file; an existing file keeps its mode and owner. stdout gets the hash
 * and size of the new file. If the condition is not met, stdout gets those of the present file, or
 * "absent". SIGTERM removes the temporary file and ends the tool. A link at PATH is followed,
 * or with `nofollow` refused.
 */
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>

#include "base/sha256.h"
#include "guest/sys.h"
#include "guest/tool.h"

#define HEX_CHARS (SHA256_HEX - 1)
#define RENAME_NOREPLACE_ 1u /* from linux/fs.h */

/* A regular file and its hash as hex digits. */
struct content {
    bool is_there;
    struct stat st;
    uint64_t size;
    char hex[SHA256_HEX];
};

static struct {
    int dir;
    char path[PATH_MAX]; /* path of the file to replace, with links resolved */
    const char *name;
    char temporary[32]; /* name of the temporary file; empty: none exists */
    struct content before;
} put;

static uint8_t chunk[64 << 10];

static void content_read(int fd, struct content *ret, const char *path) {
    struct sha256 s;
    ssize_t n;
    sha256_init(&s);
    while ((n = read(fd, chunk, sizeof(chunk))) > 0 || (n < 0 && errno == EINTR))
        if (n > 0) {
            sha256_add(&s, chunk, (size_t)n);
            ret->size += (uint64_t)n;
        }
    if (n < 0)
        tool_fail(errno, "cannot read", path);
    sha256_end_hex(&s, ret->hex);
}

/*
 * Reads and hashes the file dir/name; dir may be AT_FDCWD. A file that is not regular ends the
 * tool; a missing file does not.
 */
static struct content content_of(int dir, const char *name, int flags, const char *path) {
    struct content c = {0};
    int fd DEFER_CLOSE = sys_open(dir, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | flags, 0);
    if (fd < 0 && errno == ENOENT)
        return c;
    if (fd < 0 || fstat(fd, &c.st) < 0)
        tool_fail(errno, "cannot open", path);
    if (!S_ISREG(c.st.st_mode) || tool_is_proc(fd))
        tool_fail(S_ISDIR(c.st.st_mode) ? EISDIR : EINVAL, "not a regular file:", path);
    content_read(fd, &c, path);
    c.is_there = true;
    return c;
}

static void put_say(const struct content *c) {
    char size[24], *at = size + sizeof(size);
    uint64_t v = c->size;
    do {
        *--at = (char)('0' + v % 10);
        v /= 10;
    } while (v > 0);
    if (c->is_there) {
        guest_tool_write(c->hex, HEX_CHARS);
        guest_tool_write(" ", 1);
        guest_tool_write(at, (size_t)(size + sizeof(size) - at));
    } else {
        guest_tool_write("absent", 6);
    }
    guest_tool_write("\n", 1);
    tool_flush();
}

int tool_sha256(char **argv) {
    const char *path = argv[1];
    if (!path || *path != '/')
        tool_fail(EINVAL, "the path must be absolute:", path ? path : "");
    struct content c = content_of(AT_FDCWD, path, 0, path);
    if (!c.is_there)
        tool_fail(ENOENT, "cannot open", path);
    put_say(&c);
    return MSG_TOOL_DONE;
}

/* Sets the directory and name of the file, which may not exist yet. */
static void locate(const char *path, bool follow) {
    char own[32];
    int fd DEFER_CLOSE = sys_open(AT_FDCWD, path, O_PATH | (follow ? 0 : O_NOFOLLOW), 0);
    ssize_t n =
        fd >= 0 ? readlinkat(usage_files.proc, own_path(fd, own), put.path, sizeof(put.path) - 1)
                : -1;
    if (n > 0)
        put.path[n] = '\0';
    else if (strlen(path) < sizeof(put.path))
        memcpy(put.path, path, strlen(path) + 1);
    char *slash = strrchr(put.path, '/');
    if (!slash || strlen(slash + 1) - 1 >= NAME_MAX)
        tool_fail(EINVAL, "the path does not end with a valid file name:", path);
    put.name = slash + 1;
    *slash = '\0';
    put.dir = sys_open(AT_FDCWD, slash == put.path ? "/" : put.path, O_PATH | O_DIRECTORY, 0);
    if (put.dir < 0 || tool_is_proc(put.dir))
        tool_fail(put.dir < 0 ? errno : EACCES, "cannot open the directory of", path);
}

static void put_give_up(int number) {
    if (put.temporary[0])
        unlinkat(put.dir, put.temporary, 0);
    _exit(128 + number);
}

static int make_temporary(void) {
    static const char prefix[] = ".carrel-put-";
    uint8_t random[8];
    if (getrandom(random, sizeof(random), 0) != sizeof(random))
        return -1;
    memcpy(put.temporary, prefix, sizeof(prefix));
    char *at = put.temporary + sizeof(prefix) - 1;
    for (size_t i = 0; i < sizeof(random); i++) {
        *at++ = "0123456789abcdef"[random[i] >> 4];
        *at++ = "0123456789abcdef"[random[i] & 15];
    }
    *at = '\0';
    return openat(put.dir, put.temporary, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                  0600);
}

_Noreturn static void put_fail(const char *what, const char *path) {
    int number = errno;
    unlinkat(put.dir, put.temporary, 0);
    tool_fail(number, what, path);
}

static struct content copy_stdin(int fd, const char *path) {
    struct content c = {.is_there = true};
    struct sha256 s;
    size_t n;
    sha256_init(&s);
    while ((n = guest_tool_read(chunk, sizeof(chunk))) > 0) {
        sha256_add(&s, chunk, n);
        c.size += n;
        for (size_t done = 0; done < n;) {
            ssize_t part = write(fd, chunk + done, n - done);
            if (part < 0 && errno != EINTR)
                put_fail("cannot write", path);
            done += part > 0 ? (size_t)part : 0;
        }
    }
    sha256_end_hex(&s, c.hex);
    return c;
}

static bool is_met(const char *condition, const struct content *c) {
    if (strcmp(condition, "any") == 0)
        return true;
    if (strcmp(condition, "absent") == 0)
        return !c->is_there;
    return c->is_there && strcmp(condition, c->hex) == 0;
}

/* True if the present file is the one that was read before, and was not changed since. */
static bool is_unchanged(void) {
    struct stat st, *was = &put.before.st;
    return put.before.is_there && fstatat(put.dir, put.name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           st.st_ino == was->st_ino && st.st_size == was->st_size &&
           memcmp(&st.st_mtim, &was->st_mtim, sizeof(st.st_mtim)) == 0 &&
           memcmp(&st.st_ctim, &was->st_ctim, sizeof(st.st_ctim)) == 0;
}

static int unmet(const char *path) {
    if (put.temporary[0])
        unlinkat(put.dir, put.temporary, 0);
    struct content now = content_of(put.dir, put.name, O_NOFOLLOW, path);
    put_say(&now);
    return MSG_TOOL_UNMET;
}

static void dress(int fd, const char *mode) {
    const struct stat *old = put.before.is_there ? &put.before.st : NULL;
    if (old && fchown(fd, old->st_uid, old->st_gid) < 0)
        (void)!fchown(fd, (uid_t)-1, old->st_gid);
    fchmod(fd, old ? old->st_mode & 07777 : (mode_t)strtoul(mode, NULL, 8) & 01777);
}

int tool_put(char **argv) {
    const char *path = argv[1], *condition = path ? argv[2] : NULL;
    const char *mode = condition ? argv[3] : NULL;
    if (!mode || *path != '/')
        tool_fail(EINVAL, "usage:", "put PATH any|absent|HASH MODE [sync [nofollow]]");
    bool sync = argv[4] != NULL;
    locate(path, !(sync && argv[5]));
    put.before = content_of(put.dir, put.name, O_NOFOLLOW, path);
    if (!is_met(condition, &put.before))
        return unmet(path);
    signal(SIGTERM, put_give_up);
    int fd DEFER_CLOSE = make_temporary();
    if (fd < 0)
        tool_fail(errno, "cannot create a temporary file in the directory of", path);
    struct content after = copy_stdin(fd, path);
    dress(fd, mode);
    if (sync && fsync(fd) < 0)
        put_fail("cannot sync", path);
    if (strcmp(condition, "any") != 0 && !is_unchanged()) {
        struct content now = content_of(put.dir, put.name, O_NOFOLLOW, path);
        if (!is_met(condition, &now))
            return unmet(path);
    }
    unsigned flags = strcmp(condition, "absent") == 0 ? RENAME_NOREPLACE_ : 0;
    if (syscall(SYS_renameat2, put.dir, put.temporary, put.dir, put.name, flags) < 0) {
        if (errno == EEXIST)
            return unmet(path);
        put_fail("cannot replace", path);
    }
    if (sync) {
        int dir DEFER_CLOSE = openat(put.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* A directory that the user cannot read cannot be opened: sync the whole filesystem. */
        if ((dir < 0 ? syncfs(fd) : fsync(dir)) < 0)
            tool_fail(errno, "cannot sync the directory of", path);
    }
    put_say(&after);
    return MSG_TOOL_DONE;
}
