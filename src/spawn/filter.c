#include "spawn/filter.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"

#define NAMESPACE_FLAGS                                                                      \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

/* Set in S_IFCHR and S_IFBLK, and in nothing else that mknod makes. */
#define DEVICE_BIT (S_IFCHR & S_IFBLK)

#if defined(__x86_64__)
#define NATIVE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define NATIVE_ARCH AUDIT_ARCH_AARCH64
#else
#error "no seccomp table for this architecture"
#endif

static const struct {
    const char *name;
    bool allowed;
} plain[] = {
#define ALLOW(name) {#name, true},
#define DENY(name) {#name, false},
#include "spawn/syscalls.def"
#undef ALLOW
#undef DENY
};

static int add_rules(scmp_filter_ctx ctx, struct err *err) {
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        int nr = seccomp_syscall_resolve_name(plain[i].name);
        if (nr < 0)
            continue;
        int r = seccomp_rule_add_exact(ctx, plain[i].allowed ? SCMP_ACT_ALLOW : SCMP_ACT_ERRNO(EPERM), nr, 0);
        if (r < 0)
            return err_set(err, ERR_INTERNAL, "seccomp rule for %s: %s", plain[i].name, strerror(-r));
    }
    return 0;
}

/*
 * Calls that depend on an argument stand in front of libseccomp's tree, which then allows them.
 * It cannot say "all but these values", and it compares 64 bits where the kernel looks at 32:
 * a TIOCSTI with a bit set above would pass. Arguments here are their low 32 bits.
 */
#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define LOAD_ARG(n) LOAD(args[n])
#define IF_EQ(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define IF_ANY(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no)
#define ANSWER(number) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "args[n] is loaded by its low half");

static const struct sock_filter prefix[] = {
    LOAD(arch),
    IF_EQ(NATIVE_ARCH, 1, 0), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    /* Typing into a terminal as if by its user: never, even into one's own. Line disciplines are
       drivers that the host would load on demand. */
    IF_EQ(SYS_ioctl, 0, 8), LOAD_ARG(1),
    IF_EQ(TIOCSTI, 0, 1), ANSWER(EPERM),
    IF_EQ(TIOCLINUX, 0, 1), ANSWER(EPERM),
    IF_EQ(TIOCSETD, 0, 1), ANSWER(EPERM),
    LOAD(nr),
    /* No device nodes, and no 0:0 either, which needs no power and is overlay's mark for "deleted". */
#ifdef SYS_mknod
    IF_EQ(SYS_mknod, 0, 4), LOAD_ARG(1), IF_ANY(DEVICE_BIT, 0, 1), ANSWER(EPERM), LOAD(nr),
#endif
    IF_EQ(SYS_mknodat, 0, 4), LOAD_ARG(2), IF_ANY(DEVICE_BIT, 0, 1), ANSWER(EPERM), LOAD(nr),
    /* No namespaces. clone3, whose flags no filter can see, is ENOSYS: libc falls back to clone. */
    IF_EQ(SYS_clone, 0, 4), LOAD_ARG(0),
    IF_ANY(NAMESPACE_FLAGS, 0, 1), ANSWER(EPERM),
    LOAD(nr),
    IF_EQ(SYS_unshare, 0, 4), LOAD_ARG(0),
    IF_ANY(NAMESPACE_FLAGS | CLONE_NEWTIME, 0, 1), ANSWER(EPERM),
    LOAD(nr),
    /*
     * The families a program needs. AF_VSOCK reaches the hypervisor, AF_ALG and the rest the kernel.
     * Of the internet only its usual protocols: for another the host would load a module.
     */
    IF_EQ(SYS_socket, 0, 21), LOAD_ARG(0),
    IF_EQ(AF_UNIX, 18, 0), IF_EQ(AF_NETLINK, 14, 0), IF_EQ(AF_INET, 1, 0), IF_EQ(AF_INET6, 0, 14),
    LOAD_ARG(1), BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
    IF_EQ(SOCK_STREAM, 2, 0), IF_EQ(SOCK_DGRAM, 1, 0), IF_EQ(SOCK_RAW, 0, 6),
    LOAD_ARG(2), IF_EQ(0, 8, 0), IF_EQ(IPPROTO_TCP, 7, 0), IF_EQ(IPPROTO_UDP, 6, 0),
    IF_EQ(IPPROTO_ICMP, 5, 0), IF_EQ(IPPROTO_ICMPV6, 4, 0),
    ANSWER(EPROTONOSUPPORT),
    LOAD_ARG(2), IF_EQ(NETLINK_ROUTE, 1, 0),
    ANSWER(EAFNOSUPPORT),
    LOAD(nr),
    IF_EQ(SYS_socketpair, 0, 4), LOAD_ARG(0),
    IF_EQ(AF_UNIX, 1, 0), ANSWER(EAFNOSUPPORT),
    LOAD(nr),
    /* Asking for the personality, or for the usual one. */
    IF_EQ(SYS_personality, 0, 5), LOAD_ARG(0),
    IF_EQ(0, 2, 0), IF_EQ(0xffffffff, 1, 0), ANSWER(EPERM),
    LOAD(nr),
};

static int export(scmp_filter_ctx ctx, struct sock_fprog *ret, struct err *err) {
    int fd DEFER_CLOSE = memfd_create("filter", MFD_CLOEXEC);
    struct stat st;
    if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0 || fstat(fd, &st) < 0)
        return err_sys(err, "compile seccomp filter");
    size_t bytes = sizeof(prefix) + (size_t)st.st_size;
    struct sock_filter *code DEFER_FREE = malloc(bytes);
    if (!code || bytes / sizeof(*code) > BPF_MAXINSNS)
        return err_set(err, ERR_INTERNAL, "seccomp filter of %zu bytes", bytes);
    memcpy(code, prefix, sizeof(prefix));
    if (pread(fd, (char *)code + sizeof(prefix), (size_t)st.st_size, 0) != st.st_size)
        return err_sys(err, "read seccomp filter");
    ret->len = (unsigned short)(bytes / sizeof(*code));
    ret->filter = TAKE(code);
    return 0;
}

static void release(scmp_filter_ctx *ctx) {
    if (*ctx)
        seccomp_release(*ctx);
}

int filter_build(struct sock_fprog *ret, struct err *err) {
    scmp_filter_ctx ctx DEFER(release) = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (!ctx)
        return err_set(err, ERR_INTERNAL, "seccomp_init failed");
    if (seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS) < 0 ||
        seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2) < 0)
        return err_set(err, ERR_INTERNAL, "libseccomp without binary tree");
    if (add_rules(ctx, err) < 0)
        return -1;
    return export(ctx, ret, err);
}

int filter_load(const struct sock_fprog *filter) {
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter) < 0 ? -errno : 0;
}
