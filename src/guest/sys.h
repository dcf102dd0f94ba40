/*
 * System calls whose wrappers in musl the guest cannot use, and the time.
 *
 * setuid and similar calls must change only the calling thread. The wrappers of a C library signal
 * every thread; after a vfork these would be the threads of the parent.
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
#include "guest/usage.h"

#define RESOLVE_NO_MAGICLINKS 0x02 /* from linux/openat2.h */

struct open_how {
    uint64_t flags;
    uint64_t mode;
    uint64_t resolve;
};

/*
 * Opens a path that a client named. Magic links in /proc are never followed, because they lead to
 * descriptors and the program of the guest itself.
 */
static inline int sys_open(int dir, const char *path, int flags, uint32_t mode) {
    struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC),
                           .mode = flags & O_CREAT ? mode & 07777 : 0,
                           .resolve = RESOLVE_NO_MAGICLINKS};
    return (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

/*
 * Sets the real and effective group id, and a saved one that differs. The kernel lets a process
 * trace another, or use its memory, only if its own group id equals all three: so no process in the
 * machine can do that to the guest or its children, until exec makes the three equal. `dumpable`
 * alone does not protect them: with fs.suid_dumpable=1 every change of ids sets it again.
 */
static inline int sys_set_gid(uint32_t gid) {
    enum { UNUSED = 65535 };
    long r = syscall(SYS_setresgid, gid, gid, gid == UNUSED ? UNUSED - 1 : UNUSED);
    /* Every machine has that id; a user namespace around a guest without a machine may not. */
    return (int)(r < 0 && errno == EINVAL ? syscall(SYS_setresgid, gid, gid, gid) : r);
}

/*
 * Writes the /proc path of a descriptor, for system calls that take only a path. In a cell machine,
 * where /proc is not mounted, it is relative to usage_files.proc; so use it with that directory.
 */
static inline const char *own_path(int fd, char ret[32]) {
    static const char whole[] = "/proc/self/fd/";
    const char *prefix = usage_files.is_hidden ? whole + sizeof("/proc") : whole;
    size_t len = strlen(prefix);
    memcpy(ret, prefix, len);
    char digits[12];
    int n = 0;
    for (unsigned v = (unsigned)fd; n == 0 || v > 0; v /= 10)
        digits[n++] = (char)('0' + v % 10);
    char *at = ret + len;
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

/* From linux/random.h. */
#define RND_ADD_ENTROPY _IOW('R', 0x03, int[2])
#define RND_RESEED_CRNG _IO('R', 0x07)
