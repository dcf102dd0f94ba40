#include <errno.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/filter.h"
#include "base/native.h"
#include "packages/worker.h"

enum { NOBODY = 65534 };

/* Calls to use memory and open descriptors, and to wait for gpgv. No file can be opened. */
static const int reading[] = {
    SYS_read,          SYS_write,
    SYS_readv,         SYS_writev,
    SYS_lseek,         SYS_close,
    SYS_fstat,         SYS_fcntl,
    SYS_newfstatat,    SYS_mmap,
    SYS_munmap,        SYS_mremap,
    SYS_mprotect,      SYS_brk,
    SYS_madvise,       SYS_futex,
    SYS_ppoll,         SYS_wait4,
    SYS_clock_gettime, SYS_getrandom,
    SYS_rt_sigreturn,  SYS_rt_sigprocmask,
    SYS_exit,          SYS_exit_group,
    SYS_getpid,        SYS_gettid,
    SYS_tgkill,        SYS_sched_getaffinity,
    SYS_sysinfo,
};

/* Calls of the dynamic linker and of gpgv, which reads its keyring. */
static const int verifying[] = {
    SYS_execve,     SYS_openat,       SYS_faccessat,       SYS_pread64,         SYS_readlinkat,
    SYS_statx,      SYS_getdents64,   SYS_getcwd,          SYS_uname,           SYS_ioctl,
    SYS_prlimit64,  SYS_getuid,       SYS_geteuid,         SYS_getgid,          SYS_getegid,
    SYS_getppid,    SYS_rt_sigaction, SYS_set_tid_address, SYS_set_robust_list, SYS_getrusage,
    SYS_times,      SYS_dup,          SYS_prctl,           SYS_umask,           SYS_clock_nanosleep,
    SYS_setrlimit,  SYS_getrlimit,
#ifdef SYS_faccessat2
    SYS_faccessat2,
#endif
#ifdef SYS_rseq
    SYS_rseq,
#endif
};
enum {
    READING = sizeof(reading) / sizeof(*reading),
    VERIFYING = sizeof(verifying) / sizeof(*verifying),
};
_Static_assert(READING + VERIFYING <= FILTER_CALLS_MAX, "filter_allow() has room for all calls");

static const struct {
    int what;
    rlim_t most;
    bool counts_instrumented; /* also in a build with sanitizers, which map much memory */
} worker_limits[] = {
    {RLIMIT_CORE, 0, true},  {RLIMIT_CPU, 60, true},        {RLIMIT_FSIZE, 128 << 20, true},
    {RLIMIT_NPROC, 0, true}, {RLIMIT_AS, 1ul << 30, false},
};

static void lower_worker_limits(bool runs_gpgv) {
    for (size_t i = 0; i < sizeof(worker_limits) / sizeof(*worker_limits); i++) {
        struct rlimit now;
        if ((INSTRUMENTED && !worker_limits[i].counts_instrumented) ||
            getrlimit((__rlimit_resource_t)worker_limits[i].what, &now) < 0)
            continue;
        rlim_t most =
            runs_gpgv && worker_limits[i].what == RLIMIT_FSIZE ? 0 : worker_limits[i].most;
        now.rlim_max = most < now.rlim_max ? most : now.rlim_max;
        now.rlim_cur = now.rlim_max;
        setrlimit((__rlimit_resource_t)worker_limits[i].what, &now);
    }
}

static int drop_worker_capabilities(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}, {0}};
    return syscall(SYS_capset, &head, none) < 0 ? -errno : 0;
}

/* A worker of root's daemon becomes nobody, so that file permissions hold for it too. */
static int become_nobody(void) {
    if (geteuid() != 0)
        return 0;
    return setgroups(0, NULL) < 0 || setresgid(NOBODY, NOBODY, NOBODY) < 0 ||
                   setresuid(NOBODY, NOBODY, NOBODY) < 0
               ? -errno
               : 0;
}

static int give_up_rights(void) {
    int r = become_nobody();
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    if (r == 0)
        r = drop_worker_capabilities();
    return r < 0 ? r : prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
}

int worker_confine(struct err *err) {
    int r = give_up_rights();
    lower_worker_limits(false);
    if (r == 0 && !INSTRUMENTED)
        r = filter_allow(reading, READING);
    return r < 0 ? err_num(err, r, "cannot drop the privileges of carrel-packages") : 0;
}

int worker_confine_verifier(void) {
    int calls[READING + VERIFYING], r = give_up_rights();
    for (size_t i = 0; i < READING + VERIFYING; i++)
        calls[i] = i < READING ? reading[i] : verifying[i - READING];
    lower_worker_limits(true);
    return r < 0 || INSTRUMENTED ? r : filter_allow(calls, READING + VERIFYING);
}
