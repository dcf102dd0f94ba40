#include "base/fs/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/defer.h"

int folder_sync(const char *path) {
    int fd DEFER_CLOSE = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 || fsync(fd) < 0 ? -errno : 0;
}

int folder_sync_above(const char *path) {
    char above[PATH_MAX];
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n >= sizeof(above))
        return -ENAMETOOLONG;
    snprintf(above, sizeof(above), "%.*s", n ? (int)n : 1, n ? path : ".");
    return folder_sync(above);
}

int folder_make(const char *path) {
    if (mkdir(path, 0700) == 0)
        return folder_sync_above(path);
    return errno == EEXIST ? 0 : -errno;
}
