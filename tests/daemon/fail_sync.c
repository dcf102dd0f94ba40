/* Preloaded into a daemon: while the file $FAIL_SYNC exists, no sync reaches the disk. */
#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int sync_or_fail(long number, int fd) {
    const char *flag = getenv("FAIL_SYNC");
    if (flag && access(flag, F_OK) == 0) {
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
