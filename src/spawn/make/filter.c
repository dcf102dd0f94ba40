#include "spawn/make/filter.h"

#include <assert.h>
#include <errno.h>
#include <linux/fs.h>
#include <linux/netlink.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sched.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/native.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

#define NAMESPACE_FLAGS                                                                           \
    (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | \
     CLONE_NEWNET)

/* A bit that is set in S_IFCHR and S_IFBLK, but in no other file type. */
#define DEVICE_BIT (S_IFCHR & S_IFBLK)

enum { NR_MAX = 1024, CHECK_MAX = 24 };

/* Actions for a system call. A number from CHECK on means: run row (number - CHECK) of `checks`. */
enum { NOSYS, ALLOW, DENY, KILL, CHECK };

static const struct {
    const char *name;
    uint8_t action;
} plain[] = {
#define ALLOW(name) {#name, ALLOW},
#define DENY(name) {#name, DENY},
#include "spawn/make/syscalls.def"
#undef ALLOW
#undef DENY
};

#define LOAD(member) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, member))
#define IF_EQ(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, yes, no)
#define IF_ANY(bits, yes, no) BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, yes, no)
#define IF_GE(value, yes, no) BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, value, yes, no)
#define ANSWER(number) BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (number))
#define PASS BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
#define DIE BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)

/*
 * LOAD reads the low 32 bits of an argument, because the kernel uses only those: TIOCSTI with a
 * higher bit set is still TIOCSTI.
 */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "LOAD requires a little-endian CPU");

/*
 * System calls that are allowed or refused by their arguments. Each small BPF program here ends
 * with a decision.
 */
static const struct check {
    const char *name;
    struct sock_filter code[CHECK_MAX];
} checks[] = {
    /*
     * TIOCSTI simulates keyboard input of the terminal's user, so it is never allowed. TIOCSETD
     * would load a driver on the host. With FS_IOC_SETFLAGS and FSSETXATTR, overlayfs acts as the
     * host's root and could move a file out of the box's project, and so out of its quota.
     */
    {"ioctl",
     {LOAD(args[1]), IF_EQ(TIOCSTI, 4, 0), IF_EQ(TIOCLINUX, 3, 0), IF_EQ(TIOCSETD, 2, 0),
      IF_EQ(FS_IOC_SETFLAGS, 2, 0), IF_EQ(FS_IOC_FSSETXATTR, 1, 2), ANSWER(EPERM), ANSWER(ENOTTY),
      PASS}},
    /*
     * Refuses to create device nodes. Device 0:0 is refused too: creating it requires no rights,
     * but overlayfs takes it for a whiteout (deletion mark).
     */
    {"mknod", {LOAD(args[1]), IF_ANY(DEVICE_BIT, 0, 1), ANSWER(EPERM), PASS}},
    {"mknodat", {LOAD(args[2]), IF_ANY(DEVICE_BIT, 0, 1), ANSWER(EPERM), PASS}},
    /*
     * Refuses new namespaces. A filter cannot see the flags of clone3: clone3 returns ENOSYS, and
     * libc uses clone.
     */
    {"clone", {LOAD(args[0]), IF_ANY(NAMESPACE_FLAGS, 0, 1), ANSWER(EPERM), PASS}},
    {"unshare",
     {LOAD(args[0]), IF_ANY(NAMESPACE_FLAGS | CLONE_NEWTIME, 0, 1), ANSWER(EPERM), PASS}},
    /*
     * Allows only the address families that programs need: AF_VSOCK reaches the hypervisor, and
     * other families reach rarely used kernel code. The Internet protocols are limited too, because
     * rare ones make the kernel load modules. Of netlink, NETLINK_ROUTE is allowed, and for `ss`
     * NETLINK_SOCK_DIAG, which lists the sockets of the box's own network namespace.
     */
    {"socket",
     {LOAD(args[0]),
      IF_EQ(AF_UNIX, 19, 0),
      IF_EQ(AF_NETLINK, 14, 0),
      IF_EQ(AF_INET, 1, 0),
      IF_EQ(AF_INET6, 0, 15),
      LOAD(args[1]),
      BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xf),
      IF_EQ(SOCK_STREAM, 2, 0),
      IF_EQ(SOCK_DGRAM, 1, 0),
      IF_EQ(SOCK_RAW, 0, 6),
      LOAD(args[2]),
      IF_EQ(0, 9, 0),
      IF_EQ(IPPROTO_TCP, 8, 0),
      IF_EQ(IPPROTO_UDP, 7, 0),
      IF_EQ(IPPROTO_ICMP, 6, 0),
      IF_EQ(IPPROTO_ICMPV6, 5, 0),
      ANSWER(EPROTONOSUPPORT),
      LOAD(args[2]),
      IF_EQ(NETLINK_ROUTE, 2, 0),
      IF_EQ(NETLINK_SOCK_DIAG, 1, 0),
      ANSWER(EAFNOSUPPORT),
      PASS}},
    {"socketpair", {LOAD(args[0]), IF_EQ(AF_UNIX, 1, 0), ANSWER(EAFNOSUPPORT), PASS}},
    /*
     * Allows only to query the personality, to set the default, and to switch off the random
     * placement of memory, as debuggers do for the program that they run.
     */
    {"personality",
     {LOAD(args[0]), IF_EQ(0, 3, 0), IF_EQ(0xffffffff, 2, 0), IF_EQ(ADDR_NO_RANDOMIZE, 1, 0),
      ANSWER(EPERM), PASS}},
};

/* Consecutive system call numbers with one action; the next run starts where this one ends. */
struct run {
    uint32_t first;
    uint8_t action;
};

struct program {
    struct sock_filter code[BPF_MAXINSNS];
    unsigned len;
};

static void filter_put(struct program *p, struct sock_filter insn) {
    assert(p->len < BPF_MAXINSNS);
    p->code[p->len++] = insn;
}

static void put_leaf(struct program *p, uint8_t action) {
    static const struct sock_filter simple[] = {
        [NOSYS] = ANSWER(ENOSYS), [ALLOW] = PASS, [DENY] = ANSWER(EPERM), [KILL] = DIE};
    if (action < CHECK) {
        filter_put(p, simple[action]);
        return;
    }
    const struct sock_filter *code = checks[action - CHECK].code;
    do
        filter_put(p, *code);
    while ((code++)->code != (BPF_RET | BPF_K) || code[0].code != 0);
}

/*
 * Writes a balanced tree of comparisons over the runs: seven comparisons find the action of any
 * system call number. On loading, the kernel evaluates it once per number, so a shallow tree also
 * loads faster.
 */
static int put_tree(struct program *p, const struct run *runs, size_t count, struct err *err) {
    if (count == 1) {
        put_leaf(p, runs[0].action);
        return 0;
    }
    size_t half = count / 2;
    unsigned at = p->len;
    filter_put(p, (struct sock_filter)IF_GE(runs[half].first, 0, 0));
    if (put_tree(p, runs, half, err) < 0)
        return -1;
    unsigned skip = p->len - at - 1;
    if (skip > UINT8_MAX)
        return err_set(err, ERR_INTERNAL, "the seccomp filter is too large");
    p->code[at].jt = (uint8_t)skip;
    return put_tree(p, runs + half, count - half, err);
}

/*
 * Fills the action of each system call number. libseccomp knows the numbers of each architecture;
 * calls without an action fail with ENOSYS.
 */
static void number_actions(uint8_t actions[NR_MAX]) {
    memset(actions, NOSYS, NR_MAX);
    for (size_t i = 0; i < sizeof(plain) / sizeof(*plain); i++) {
        int nr = seccomp_syscall_resolve_name(plain[i].name);
        if (nr >= 0 && nr < NR_MAX)
            actions[nr] = plain[i].action;
    }
    for (size_t i = 0; i < sizeof(checks) / sizeof(*checks); i++) {
        int nr = seccomp_syscall_resolve_name(checks[i].name);
        if (nr >= 0 && nr < NR_MAX)
            actions[nr] = (uint8_t)(CHECK + i);
    }
}

static size_t find_runs(const uint8_t actions[NR_MAX], struct run runs[NR_MAX + 2]) {
    size_t n = 0;
    for (uint32_t nr = 0; nr < NR_MAX; nr++)
        if (nr == 0 || actions[nr] != actions[nr - 1] || actions[nr] >= CHECK)
            runs[n++] = (struct run){nr, actions[nr]};
    /* x32 calls have the same architecture value as x86-64 calls. */
    runs[n++] = (struct run){0x40000000, KILL};
    return n;
}

int filter_build(struct sock_fprog *ret, struct err *err) {
    uint8_t actions[NR_MAX];
    static struct run runs[NR_MAX + 2];
    static struct program p;
    number_actions(actions);
    size_t count = find_runs(actions, runs);
    p.len = 0;
    filter_put(&p, (struct sock_filter)LOAD(arch));
    filter_put(&p, (struct sock_filter)IF_EQ(NATIVE_ARCH, 1, 0));
    filter_put(&p, (struct sock_filter)DIE);
    filter_put(&p, (struct sock_filter)LOAD(nr));
    if (put_tree(&p, runs, count, err) < 0)
        return -1;
    *ret = (struct sock_fprog){.len = (unsigned short)p.len, .filter = p.code};
    return 0;
}

int filter_load(const struct sock_fprog *filter) {
    return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, filter) < 0 ? -errno : 0;
}
