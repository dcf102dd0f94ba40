#include "grant/sqlite/confine.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/filter.h"
#include "base/native.h"

/* System calls for memory, output and exit. All input was read before, so none opens a file. */
static const int allowed[] = {
    SYS_write,  SYS_mmap,   SYS_munmap,     SYS_mremap,         SYS_brk,           SYS_madvise,
    SYS_futex,  SYS_exit,   SYS_exit_group, SYS_rt_sigreturn,   SYS_clock_gettime, SYS_getrandom,
    SYS_gettid, SYS_getpid, SYS_tgkill,     SYS_rt_sigprocmask,
};
enum { MEMORY = 1 << 30, CPU_S = 60 };

static void set_limit(int what, rlim_t value) {
    const struct rlimit limit = {value, value};
    setrlimit(what, &limit);
}

int sqlite_confine(void) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_CPU, CPU_S);
    if (!INSTRUMENTED)
        set_limit(RLIMIT_AS, 3ul * MEMORY);
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    return INSTRUMENTED ? 0 : filter_allow(allowed, sizeof(allowed) / sizeof(*allowed));
}
