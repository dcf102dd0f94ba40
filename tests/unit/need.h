/* What a host may lack that a test needs: such a test is skipped. */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"

/* Every kernel of ours has it; valgrind 3.19 does not know it. */
static inline void need_openat2(void) {
    const struct open_how how = {.flags = O_PATH | O_CLOEXEC};
    int fd DEFER_CLOSE = (int)syscall(SYS_openat2, AT_FDCWD, "/", &how, sizeof(how));
    if (fd < 0 && errno == ENOSYS)
        skip();
}
