/*
 * What the seccomp filter answers, as the kernel runs it. The attacks (tests/security) try it from
 * a box, where some kernels refuse a call that the filter let through; here nobody else answers.
 */
#include <errno.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/syscall.h>

#include "base/native.h"
#include "spawn/make/filter.h"
#include "tests/unit/unit.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

enum { HIGH_BITS = 3, PASSES = 0 };

static uint32_t word_at(const struct seccomp_data *d, uint32_t at) {
    uint32_t word;
    assert_true(at + sizeof(word) <= sizeof(*d));
    memcpy(&word, (const char *)d + at, sizeof(word));
    return word;
}

static bool jumps(const struct sock_filter *f, uint32_t a) {
    switch (BPF_OP(f->code)) {
    case BPF_JEQ:
        return a == f->k;
    case BPF_JGE:
        return a >= f->k;
    case BPF_JSET:
        return a & f->k;
    }
    fail_msg("jump %#x", f->code);
    return false;
}

/* Only the instructions that the filter has. */
static uint32_t run(const struct sock_fprog *p, const struct seccomp_data *d) {
    uint32_t a = 0;
    for (size_t at = 0; at < p->len; at++) {
        const struct sock_filter *f = &p->filter[at];
        switch (BPF_CLASS(f->code)) {
        case BPF_LD:
            a = word_at(d, f->k);
            break;
        case BPF_ALU:
            assert_int_equal(f->code, BPF_ALU | BPF_AND | BPF_K);
            a &= f->k;
            break;
        case BPF_JMP:
            at += jumps(f, a) ? f->jt : f->jf;
            break;
        case BPF_RET:
            return f->k;
        default:
            fail_msg("instruction %#x", f->code);
        }
    }
    fail_msg("it ends without an answer");
    return 0;
}

static const struct {
    int nr;
    uint64_t args[3];
    int error; /* PASSES, or what is answered */
} rows[] = {
    {SYS_read, {0}, PASSES},
    {SYS_ioctl, {0, TCGETS}, PASSES},
    {SYS_ioctl, {0, TIOCSTI}, EPERM},
    {SYS_ioctl, {0, TIOCLINUX}, EPERM},
    {SYS_ioctl, {0, TIOCSETD}, EPERM},
    {SYS_unshare, {CLONE_FILES}, PASSES},
    {SYS_unshare, {CLONE_NEWTIME}, EPERM},
    {SYS_unshare, {CLONE_FILES | CLONE_NEWTIME}, EPERM},
    {SYS_unshare, {CLONE_NEWUSER}, EPERM},
    {SYS_clone, {SIGCHLD}, PASSES},
    {SYS_clone, {SIGCHLD | CLONE_NEWNET}, EPERM},
    {SYS_clone3, {0}, ENOSYS},
    {SYS_madvise, {0}, PASSES},
    {SYS_process_madvise, {0}, EPERM},
    {SYS_ptrace, {0}, PASSES},
    {SYS_process_vm_readv, {0}, PASSES},
    {SYS_process_vm_writev, {0}, PASSES},
    {SYS_kcmp, {0}, EPERM},
    {SYS_personality, {0}, PASSES},
    {SYS_personality, {0xffffffff}, PASSES},
    {SYS_personality, {ADDR_NO_RANDOMIZE}, PASSES},
    {SYS_personality, {ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC}, EPERM},
    {SYS_personality, {READ_IMPLIES_EXEC}, EPERM},
    {SYS_personality, {PER_LINUX32}, EPERM},
    {SYS_pidfd_getfd, {0}, EPERM},
    {SYS_socket, {AF_UNIX, SOCK_SEQPACKET, 0}, PASSES},
    {SYS_socket, {AF_INET, SOCK_STREAM, 0}, PASSES},
    {SYS_socket, {AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP}, PASSES},
    {SYS_socket, {AF_INET, SOCK_DGRAM, IPPROTO_UDP}, PASSES},
    {SYS_socket, {AF_INET, SOCK_DGRAM, IPPROTO_ICMP}, PASSES},
    {SYS_socket, {AF_INET6, SOCK_DGRAM, IPPROTO_ICMPV6}, PASSES},
    {SYS_socket, {AF_INET, SOCK_STREAM, IPPROTO_SCTP}, EPROTONOSUPPORT},
    {SYS_socket, {AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_SCTP}, EPROTONOSUPPORT},
    {SYS_socket, {AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP}, EPROTONOSUPPORT},
    {SYS_socket, {AF_INET, SOCK_SEQPACKET, 0}, EPROTONOSUPPORT},
    {SYS_socket, {AF_INET, SOCK_STREAM, IPPROTO_MPTCP}, EPROTONOSUPPORT},
    {SYS_socket, {AF_NETLINK, SOCK_RAW, NETLINK_ROUTE}, PASSES},
    {SYS_socket, {AF_NETLINK, SOCK_RAW, NETLINK_SOCK_DIAG}, PASSES},
    {SYS_socket, {AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER}, EAFNOSUPPORT},
    {SYS_socket, {AF_NETLINK, SOCK_RAW, NETLINK_KOBJECT_UEVENT}, EAFNOSUPPORT},
    {SYS_socket, {AF_VSOCK, SOCK_STREAM, 0}, EAFNOSUPPORT},
    {SYS_socket, {AF_ALG, SOCK_SEQPACKET, 0}, EAFNOSUPPORT},
};

static void check(const struct sock_fprog *p, size_t i, uint64_t high) {
    struct seccomp_data d = {.nr = rows[i].nr, .arch = NATIVE_ARCH};
    for (size_t k = 0; k < 3; k++)
        d.args[k] = rows[i].args[k] | high;
    uint32_t wanted =
        rows[i].error ? SECCOMP_RET_ERRNO | (uint32_t)rows[i].error : (uint32_t)SECCOMP_RET_ALLOW;
    uint32_t got = run(p, &d);
    if (got != wanted)
        fail_msg("call %d (%#lx, %#lx, %#lx): %#x, not %#x", d.nr, (long)d.args[0], (long)d.args[1],
                 (long)d.args[2], got, wanted);
}

/* The kernel looks at the low half of these arguments only, and so must the filter. */
static void each_call_gets_its_answer(void **state) {
    static const uint64_t high[HIGH_BITS] = {0, 1ull << 32, 0xffffffffull << 32};
    struct sock_fprog p;
    struct err err;
    (void)state;
    assert_int_equal(filter_build(&p, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (size_t k = 0; k < HIGH_BITS; k++)
            check(&p, i, high[k]);
}

static void calls_of_another_architecture_kill(void **state) {
    struct sock_fprog p;
    struct err err;
    (void)state;
    assert_int_equal(filter_build(&p, &err), 0);
    struct seccomp_data other = {.nr = SYS_read, .arch = NATIVE_ARCH ^ 1};
    assert_int_equal(run(&p, &other), SECCOMP_RET_KILL_PROCESS);
    struct seccomp_data x32 = {.nr = 0x40000000 | SYS_read, .arch = NATIVE_ARCH};
    assert_int_equal(run(&p, &x32), SECCOMP_RET_KILL_PROCESS);
}

UNIT_MAIN(cmocka_unit_test(each_call_gets_its_answer),
          cmocka_unit_test(calls_of_another_architecture_kill))
