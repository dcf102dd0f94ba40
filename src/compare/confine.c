#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/filter.h"
#include "base/native.h"
#include "compare/compare.h"

/* System calls to read files, use memory, answer and exit. All others are refused. */
static const int allowed[] = {
    SYS_read,       SYS_write,   SYS_openat,        SYS_close,          SYS_newfstatat,
    SYS_fstat,      SYS_statx,   SYS_getdents64,    SYS_readlinkat,     SYS_fgetxattr,
    SYS_lseek,      SYS_fcntl,   SYS_mmap,          SYS_munmap,         SYS_mremap,
    SYS_brk,        SYS_madvise, SYS_clock_gettime, SYS_sysinfo,        SYS_futex,
    SYS_exit_group, SYS_exit,    SYS_rt_sigreturn,  SYS_rt_sigprocmask, SYS_gettid,
    SYS_tgkill,     SYS_getpid,
};
/*
 * Keeps two capabilities. CAP_DAC_READ_SEARCH is needed to read files of boxes, which have any
 * owner and mode. The kernel requires CAP_SYS_ADMIN to read the attributes of an overlay; the
 * filter allows no other system call for which CAP_SYS_ADMIN counts.
 */
static int drop_capabilities(void) {
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &head, data) < 0)
        return -errno;
    uint32_t kept = data[0].permitted & (1u << CAP_DAC_READ_SEARCH | 1u << CAP_SYS_ADMIN);
    data[0] = (struct __user_cap_data_struct){.effective = kept, .permitted = kept};
    data[1] = (struct __user_cap_data_struct){0};
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

static void set_limit(int what, rlim_t value) {
    struct rlimit now;
    if (getrlimit(what, &now) == 0) {
        now.rlim_cur = value < now.rlim_max ? value : now.rlim_max;
        now.rlim_max = now.rlim_cur;
        setrlimit(what, &now);
    }
}

int compare_confine(int root) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_DUMPABLE, 0);
    set_limit(RLIMIT_CORE, 0);
    set_limit(RLIMIT_FSIZE, 0);
    set_limit(RLIMIT_NOFILE, RLIM_INFINITY);
    set_limit(RLIMIT_CPU, 60);
    if (!INSTRUMENTED)
        set_limit(RLIMIT_AS, 1ul << 30);
    /* Absolute paths, which this process does not use, would start at `root`. */
    if (fchdir(root) == 0 && chroot(".") < 0 && errno != EPERM)
        return -errno;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    int r = drop_capabilities();
    if (r < 0 || INSTRUMENTED)
        return r;
    return filter_allow(allowed, sizeof(allowed) / sizeof(*allowed));
}
