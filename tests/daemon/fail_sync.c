/*
 * Preloaded into a daemon: while the file $FAIL_SYNC exists, no sync reaches the disk; while the
 * file $HOLD_SYNC exists, none returns, or only none of the file $HOLD_SYNC_OF.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_wanted(const char *variable) {
    const char *flag = getenv(variable);
    return flag && access(flag, F_OK) == 0;
}

static bool is_held(int fd) {
    const char *only = getenv("HOLD_SYNC_OF");
    char link[32], path[4096];
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    ssize_t n = only ? readlink(link, path, sizeof(path) - 1) : 0;
    path[n > 0 ? n : 0] = '\0';
    return !only || strcmp(path, only) == 0;
}

static int sync_or_fail(long number, int fd) {
    while (is_wanted("HOLD_SYNC") && is_held(fd))
        usleep(5000);
    if (is_wanted("FAIL_SYNC")) {
        errno = EIO;
        return -1;
    }
    return (int)syscall(number, fd);
}

int fdatasync(int fd) {
    return sync_or_fail(SYS_fdatasync, fd);
}

int fsync(int fd) {
    return sync_or_fail(SYS_fsync, fd);
}
