/*
 * The few system calls that musl wraps in a way the guest cannot use, and time.
 *
 * setuid and its family must act on the calling thread alone: the wrappers of a
 * C library signal every thread, and after a vfork they would reach the parent's.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"

#define RESOLVE_NO_MAGICLINKS 0x02 /* from linux/openat2.h */

struct open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

/*
 * Open a path that a client named. A link of /proc leads to what the guest itself
 * holds (its descriptors, its program), so those are never followed.
 */
static inline int sys_open(int dir, const char *path, int flags, uint32_t mode) {
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = flags & O_CREAT ? mode & 07777 : 0,
                           .resolve = RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/* The name under which a descriptor can be used where the kernel wants a path. */
static inline const char *own_path(int fd, char ret[32]) {
    static const char prefix[] = "/proc/self/fd/";
    memcpy(ret, prefix, sizeof(prefix));
    char digits[12];
    int n = 0;
    for (unsigned v = (unsigned)fd; n == 0 || v > 0; v /= 10)
        digits[n++] = (char)('0' + v % 10);
    char *at = ret + sizeof(prefix) - 1;
    while (n > 0)
        *at++ = digits[--n];
    *at = '\0';
    return ret;
}

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}
