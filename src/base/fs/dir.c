#include "base/fs/dir.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void dir_close(DIR **d) {
    if (*d)
        closedir(*d);
    *d = NULL;
}

DIR *dir_take(int fd) {
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d && fd >= 0) {
        int cause = errno;
        close(fd);
        errno = cause;
    }
    return d;
}

int dir_open(int at, const char *name) {
    int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int dir_open_path(int at, const char *name) {
    int fd = openat(at, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

DIR *dir_list(int at, const char *name) {
    return dir_take(openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
}
