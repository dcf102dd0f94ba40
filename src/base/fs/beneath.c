#include "base/fs/beneath.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"

enum { PARENT_SIZE = 4096, TRIES_MAX = 64 };

static int open_resolved(int dir, const char *path, int flags, unsigned mode, uint64_t resolve) {
    const struct open_how how = {.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
                                 .mode = flags & O_CREAT ? mode : 0,
                                 .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve};
    int fd = -1;
    errno = EAGAIN; /* openat2() fails with it if a name was changed meanwhile: try again */
    for (int i = 0; i < TRIES_MAX && fd < 0 && errno == EAGAIN; i++)
        fd = (int)syscall(SYS_openat2, dir, *path ? path : ".", &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

int beneath_open(int dir, const char *path, int flags) {
    return open_resolved(dir, path, flags, 0, 0);
}

int beneath_create(int dir, const char *path, int flags, unsigned mode) {
    return open_resolved(dir, path, flags, mode, 0);
}

int beneath_open_plain(int dir, const char *path, int flags) {
    return open_resolved(dir, path, flags, 0, RESOLVE_NO_SYMLINKS);
}

int beneath_parent(int dir, const char *path, int flags, const char **ret_name) {
    char parent[PARENT_SIZE];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    *ret_name = slash ? slash + 1 : path;
    if (n >= sizeof(parent))
        return -ENAMETOOLONG;
    if (slash == path)
        return -EXDEV;
    memcpy(parent, path, n);
    parent[n] = '\0';
    return beneath_open_plain(dir, parent, flags | O_DIRECTORY);
}

bool beneath_leaves(int r) {
    return r == -EXDEV || r == -ELOOP;
}

int beneath_open_file(int dir, const char *path, struct err *err) {
    struct stat st;
    int fd DEFER_CLOSE = beneath_open(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
    if (beneath_leaves(fd)) {
        err_set(err, ERR_DENIED, "path '%.120s' is a link or leads out of its directory", path);
        return err_remedy(err, "use the file itself instead of a link");
    }
    if (fd < 0)
        return err_num(err, fd, "cannot open '%.120s'", path);
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_INVALID, "path '%.120s' is not a regular file", path);
    return TAKE_FD(fd);
}
