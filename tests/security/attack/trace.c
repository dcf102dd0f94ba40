/* Debugging is allowed between processes of one box: what a tracer must not reach, group 7. */
#include <dirent.h>
#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

enum { GET_FILTER = 0x420c, SUSPEND_FILTER = 1 << 21, ARM_SYSTEM_CALL = 0x404 };

/* Pid 1, or its newest thread. */
static pid_t target_of(const struct attack *a) {
    pid_t last = 1;
    DIR *tasks = strcmp(a->path, "thread") == 0 ? opendir("/proc/1/task") : NULL;
    for (struct dirent *d; tasks && (d = readdir(tasks));) {
        long tid = strtol(d->d_name, NULL, 10);
        last = tid > last ? (pid_t)tid : last;
    }
    return last;
}

/* Where it gets through the target goes on unharmed. */
static int trace_init(const struct attack *a) {
    pid_t pid = target_of(a);
    if (ptrace((enum __ptrace_request)a->n[0], pid, NULL, NULL) < 0)
        return errno;
    if (a->n[0] == PTRACE_SEIZE)
        ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
    waitpid(pid, NULL, __WALL);
    ptrace(PTRACE_DETACH, pid, NULL, NULL);
    return 0;
}

static int memory_of_init(const struct attack *a) {
    static long word;
    struct iovec here = {&word, sizeof(word)}, there = {&word, sizeof(word)};
    return attack_outcome(syscall(a->n[0], (long)target_of(a), &here, 1L, &there, 1L, 0L));
}

/* The kernel compares ids for this as it does for a tracer, but does not ask for `dumpable`. */
static int limits_of_init(const struct attack *a) {
    struct rlimit limit;
    return attack_outcome(syscall(SYS_prlimit64, target_of(a), RLIMIT_NOFILE, NULL, &limit));
}

/* With `by_filter` the tracer is asked by a filter of the program's own, else at every call. */
static void __attribute__((noreturn)) traced(bool by_filter) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog filter = {4, code};
    ptrace(PTRACE_TRACEME, 0, NULL, NULL);
    raise(SIGSTOP);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (by_filter && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) < 0)
        _exit(ENODATA);
    _exit(syscall(SYS_getppid) < 0 ? errno : 0);
}

#if defined(__x86_64__)
static void put_call(pid_t pid, struct user_regs_struct *regs, const long n[6]) {
    regs->orig_rax = (unsigned long)n[0];
    regs->rdi = (unsigned long)n[1];
    regs->rsi = (unsigned long)n[2];
    regs->rdx = (unsigned long)n[3];
    regs->r10 = (unsigned long)n[4];
    ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &(struct iovec){regs, sizeof(*regs)});
}
#define NUMBER(regs) ((long)(regs).orig_rax)
#else
static void put_call(pid_t pid, struct user_regs_struct *regs, const long n[6]) {
    int number = (int)n[0];
    for (int i = 0; i < 4; i++)
        regs->regs[i] = (unsigned long)n[i + 1];
    ptrace(PTRACE_SETREGSET, pid, NT_PRSTATUS, &(struct iovec){regs, sizeof(*regs)});
    ptrace(PTRACE_SETREGSET, pid, ARM_SYSTEM_CALL, &(struct iovec){&number, sizeof(number)});
}
#define NUMBER(regs) ((long)(regs).regs[8])
#endif

/* An allowed call that its tracer replaces at its entry: the outcome is that of the new one. */
static int rewrite(const struct attack *a) {
    bool by_filter = strcmp(a->path, "filter") == 0, done = false;
    int status;
    pid_t pid = fork();
    if (pid == 0)
        traced(by_filter);
    if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
        return ECHILD;
    ptrace(PTRACE_SETOPTIONS, pid, NULL, PTRACE_O_TRACESECCOMP | PTRACE_O_EXITKILL);
    for (;;) {
        ptrace(by_filter || done ? PTRACE_CONT : PTRACE_SYSCALL, pid, NULL, NULL);
        if (waitpid(pid, &status, 0) != pid || WIFEXITED(status))
            return done ? WEXITSTATUS(status) : ECHILD;
        if (WIFSIGNALED(status))
            return ATTACK_KILLED + WTERMSIG(status);
        struct user_regs_struct regs = {0};
        struct iovec all = {&regs, sizeof(regs)};
        ptrace(PTRACE_GETREGSET, pid, NT_PRSTATUS, &all);
        if (!done && NUMBER(regs) == SYS_getppid) {
            put_call(pid, &regs, a->n);
            done = true;
        }
    }
}

/* What only a tracer without a filter of its own may ask for. */
static int about_the_filter(const struct attack *a) {
    pid_t pid = fork();
    if (pid == 0)
        for (;;)
            pause();
    int e = errno, r = ptrace(PTRACE_SEIZE, pid, NULL, NULL) < 0 ? -1 : 0;
    if (r == 0) {
        ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
        waitpid(pid, NULL, __WALL);
        r = (int)ptrace((enum __ptrace_request)a->n[0], pid, NULL, a->n[1]);
        e = errno;
    }
    kill(pid, SIGKILL);
    return r < 0 ? e : 0;
}

#define REWRITE(name, reached, ...)                                                               \
    {7, "a traced call becomes " name, rewrite, "call", {__VA_ARGS__}, {EPERM}, {reached}}, {     \
        7, "a call that a filter shows becomes " name, rewrite, "filter", {__VA_ARGS__}, {EPERM}, \
        {                                                                                         \
            reached                                                                               \
        }                                                                                         \
    }
#define OF_INIT(name, run, number, reached)                                  \
    {7, name " of pid 1", run, "leader", {number}, {EPERM}, {reached}}, {    \
        7, name " of a thread of pid 1", run, "thread", {number}, {EPERM}, { \
            reached                                                          \
        }                                                                    \
    }

static const struct attack rows[] = {
    OF_INIT("ptrace ATTACH", trace_init, PTRACE_ATTACH, 0),
    OF_INIT("ptrace SEIZE", trace_init, PTRACE_SEIZE, 0),
    OF_INIT("process_vm_readv", memory_of_init, SYS_process_vm_readv, EFAULT),
    OF_INIT("process_vm_writev", memory_of_init, SYS_process_vm_writev, EFAULT),
    OF_INIT("prlimit", limits_of_init, 0, 0),

    REWRITE("unshare", 0, SYS_unshare, CLONE_NEWNS),
    REWRITE("mount", EFAULT, SYS_mount, 0, 0, 0, 0),
    REWRITE("pidfd_getfd", EBADF, SYS_pidfd_getfd, -1, 0, 0),
    REWRITE("setns", EBADF, SYS_setns, -1, 0),
    REWRITE("bpf", EINVAL, SYS_bpf, -1, 0, 0),

    {7,
     "suspend the filter of a traced process",
     about_the_filter,
     NULL,
     {PTRACE_SETOPTIONS, SUSPEND_FILTER},
     {EPERM, EINVAL},
     {EINVAL}},
    {7,
     "read the filter of a traced process",
     about_the_filter,
     NULL,
     {GET_FILTER, 0},
     {EACCES, EINVAL},
     {ENOENT, EINVAL}},
};

const struct attack_table trace_attacks = ATTACK_TABLE(rows);
