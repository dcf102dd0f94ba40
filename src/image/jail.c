#include "image/jail.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/native.h"

/* Capabilities to set owners and to read files of any owner. Without CAP_MKNOD no device can be
 * created. */
static const unsigned kept[] = {CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETFCAP};

static const int allowed[] = {
    /* file contents */
    SCMP_SYS(read),
    SCMP_SYS(write),
    SCMP_SYS(readv),
    SCMP_SYS(writev),
    SCMP_SYS(pread64),
    SCMP_SYS(pwrite64),
    SCMP_SYS(lseek),
    SCMP_SYS(close),
    SCMP_SYS(fadvise64),
    /* files and directories */
    SCMP_SYS(newfstatat),
    SCMP_SYS(fstat),
    SCMP_SYS(statx),
    SCMP_SYS(getdents64),
    SCMP_SYS(readlinkat),
    SCMP_SYS(fgetxattr),
    SCMP_SYS(flistxattr),
    SCMP_SYS(umask),
    /* memory, time, signals, exit */
    SCMP_SYS(brk),
    SCMP_SYS(mmap),
    SCMP_SYS(munmap),
    SCMP_SYS(mremap),
    SCMP_SYS(mprotect),
    SCMP_SYS(madvise),
    SCMP_SYS(futex),
    SCMP_SYS(clock_gettime),
    SCMP_SYS(getrandom),
    SCMP_SYS(rt_sigreturn),
    SCMP_SYS(rt_sigprocmask),
    SCMP_SYS(ppoll),
    SCMP_SYS(wait4),
    SCMP_SYS(exit),
    SCMP_SYS(exit_group),
};

/* What a program may do in the jail besides the calls in `allowed`. */
enum { JAIL_CHANGES = 1, JAIL_THREADS = 2 };

/* Not for a process that only reads. A filter cannot see the flags of openat2. */
static const int changing[] = {
    SCMP_SYS(openat),    SCMP_SYS(openat2), SCMP_SYS(ftruncate), SCMP_SYS(mkdirat),
    SCMP_SYS(unlinkat),  SCMP_SYS(linkat),  SCMP_SYS(symlinkat), SCMP_SYS(fchown),
    SCMP_SYS(fchownat),  SCMP_SYS(fchmod),  SCMP_SYS(fchmodat),  SCMP_SYS(utimensat),
    SCMP_SYS(fsetxattr),
};

/* Other fcntl commands (F_SETOWN) can send signals to any process. */
static const unsigned commands[] = {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL};

static const struct {
    int resource;
    rlim_t most;
} rlimits[] = {{RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 1024}, {RLIMIT_NPROC, 0}, {RLIMIT_AS, 4ul << 30}};

/* Threads count as processes of their user for RLIMIT_NPROC. The filter refuses processes. */
static void lower_limits(unsigned may) {
    for (size_t i = 0; i < sizeof(rlimits) / sizeof(*rlimits); i++) {
        struct rlimit now;
        if ((INSTRUMENTED && rlimits[i].resource == RLIMIT_AS) ||
            ((may & JAIL_THREADS) && rlimits[i].resource == RLIMIT_NPROC) ||
            getrlimit(rlimits[i].resource, &now) < 0)
            continue;
        if (now.rlim_max > rlimits[i].most)
            now.rlim_max = rlimits[i].most;
        if (now.rlim_cur > now.rlim_max)
            now.rlim_cur = now.rlim_max;
        setrlimit(rlimits[i].resource, &now);
    }
}

/* extra: capabilities to keep besides `kept`, as bits. */
static int drop_capabilities(uint64_t extra) {
    uint64_t keep = extra;
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        keep |= 1ull << kept[i];
    for (unsigned cap = 0; cap <= 63; cap++)
        if (!(keep & 1ull << cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* past the last capability this kernel knows */
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    if (syscall(SYS_capget, &header, data) < 0)
        return -errno;
    for (int i = 0; i < 2; i++) {
        data[i].permitted &= (uint32_t)(keep >> 32 * i);
        data[i].effective = data[i].permitted;
        data[i].inheritable = 0;
    }
    uint64_t has = data[0].effective | (uint64_t)data[1].effective << 32;
    if ((has & extra) != extra)
        return -EPERM;
    return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/*
 * mknodat is allowed for pipes and whiteouts only: with other modes it creates devices. A whiteout
 * is device 0:0, which cannot be opened.
 */
static int allow_changes(scmp_filter_ctx ctx) {
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof(changing) / sizeof(*changing); i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, changing[i], 0);
    if (r == 0)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mknodat), 1,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, S_IFIFO));
    if (r == 0)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(mknodat), 2,
                             SCMP_A2(SCMP_CMP_MASKED_EQ, S_IFMT, S_IFCHR), SCMP_A3(SCMP_CMP_EQ, 0));
    return r;
}

/*
 * A thread has the memory and the signal handlers of its process. clone3 keeps its flags in memory,
 * where no filter sees them: it stays refused, and the C library then uses clone.
 */
static int allow_threads(scmp_filter_ctx ctx) {
    const uint64_t wanted = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
    const uint64_t refused = CLONE_NEWNS | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET |
                             CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP | CLONE_PTRACE |
                             CLONE_UNTRACED;
    const int calls[] = {SCMP_SYS(set_robust_list), SCMP_SYS(rseq), SCMP_SYS(sched_yield)};
    int r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                             SCMP_A0(SCMP_CMP_MASKED_EQ, wanted | refused, wanted));
    for (size_t i = 0; r == 0 && i < sizeof(calls) / sizeof(*calls); i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, calls[i], 0);
    return r;
}

/* A process that only reads opens no file for writing and creates none. */
static int allow_reads(scmp_filter_ctx ctx) {
    const unsigned writing = O_ACCMODE | O_CREAT | O_TRUNC;
    return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(openat), 1,
                            SCMP_A2(SCMP_CMP_MASKED_EQ, writing, O_RDONLY));
}

static int load_filter(unsigned may) {
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    int r = ctx ? 0 : -ENOMEM;
    for (size_t i = 0; r == 0 && i < sizeof(allowed) / sizeof(*allowed); i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, allowed[i], 0);
    for (size_t i = 0; r == 0 && i < sizeof(commands) / sizeof(*commands); i++)
        r = seccomp_rule_add(ctx, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1,
                             SCMP_A1(SCMP_CMP_MASKED_EQ, UINT32_MAX, commands[i]));
    if (r == 0)
        r = may & JAIL_CHANGES ? allow_changes(ctx) : allow_reads(ctx);
    if (r == 0 && (may & JAIL_THREADS))
        r = allow_threads(ctx);
    if (r == 0)
        r = seccomp_load(ctx);
    if (ctx)
        seccomp_release(ctx);
    return r;
}

static int jail_close(int dir, int last, unsigned may, uint64_t extra, struct err *err) {
    if (fchdir(dir) < 0 || chroot(".") < 0)
        return err_sys(err, "cannot enter the image's directory");
    close_range((unsigned)last + 1, ~0u, 0);
    umask(0);
    lower_limits(may);
    if (prctl(PR_SET_DUMPABLE, 0) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return err_sys(err, "cannot drop the privileges of carrel-image");
    int r = drop_capabilities(extra);
    if (r == 0 && !INSTRUMENTED)
        r = load_filter(may);
    return r < 0 ? err_num(err, r, "cannot drop the privileges of carrel-image") : 0;
}

int jail_enter(int dir, int last, struct err *err) {
    return jail_close(dir, last, JAIL_CHANGES, 0, err);
}

int jail_enter_threads(int dir, int last, bool marks, struct err *err) {
    return jail_close(dir, last, JAIL_THREADS, marks ? 1ull << CAP_SYS_ADMIN : 0, err);
}

int jail_enter_reading(int dir, int last, bool marks, struct err *err) {
    return jail_close(dir, last, 0, marks ? 1ull << CAP_SYS_ADMIN : 0, err);
}
