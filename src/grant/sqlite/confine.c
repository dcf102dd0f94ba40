#include "grant/sqlite/confine.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include "base/native.h"

/* Memory, the answer and the end. Everything is read already, so nothing is opened. */
static const int allowed[] = {
    SYS_write,  SYS_mmap,   SYS_munmap,     SYS_mremap,         SYS_brk,           SYS_madvise,
    SYS_futex,  SYS_exit,   SYS_exit_group, SYS_rt_sigreturn,   SYS_clock_gettime, SYS_getrandom,
    SYS_gettid, SYS_getpid, SYS_tgkill,     SYS_rt_sigprocmask,
};
enum { ALLOWED = sizeof(allowed) / sizeof(*allowed), MEMORY = 1 << 30, CPU_S = 60 };

static int load_filter(void) {
    struct sock_filter code[4 + ALLOWED + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    for (int i = 0; i < ALLOWED; i++)
        code[4 + i] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)allowed[i],
                                                   (unsigned char)(ALLOWED - i), 0);
    code[4 + ALLOWED] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    code[5 + ALLOWED] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = sizeof(code) / sizeof(*code), .filter = code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}

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
    return INSTRUMENTED ? 0 : load_filter();
}
