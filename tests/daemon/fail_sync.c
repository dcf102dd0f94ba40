/*
 * Preloaded into a daemon: while the file $FAIL_SYNC exists, no sync reaches the disk; while the
 * file $HOLD_SYNC exists, none returns.
 */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool is_wanted(const char *variable) {
    const char *flag = getenv(variable);
    return flag && access(flag, F_OK) == 0;
}

static int sync_or_fail(long number, int fd) {
    while (is_wanted("HOLD_SYNC"))
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
