#include "base/filter.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/native.h"

enum { OURSELVES = -1, VALUES = 6, RULE_MAX = VALUES + 5 };

#define WHOLE UINT32_MAX
#define WRITING (O_ACCMODE | O_CREAT | O_TRUNC)

/* Calls that could signal any process of the same user, or change files. They are allowed only if
 * the bits `mask` of argument `arg` have one of these values. */
static const struct rule {
    int call;
    unsigned arg;
    uint32_t mask;
    unsigned count;
    int values[VALUES];
} rules[] = {
    {SYS_tgkill, 0, WHOLE, 1, {OURSELVES}},
    {SYS_fcntl, 1, WHOLE, VALUES, {F_DUPFD, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD, F_GETFL, F_SETFL}},
    {SYS_openat, 2, WRITING, 1, {O_RDONLY}},
#ifdef SYS_open
    {SYS_open, 1, WRITING, 1, {O_RDONLY}},
#endif
};
enum { RULES = sizeof(rules) / sizeof(*rules) };

static const struct {
    int call, older;
} twins[] = {
#ifdef __x86_64__
#define TWIN(newer, older) {SYS_##newer, SYS_##older},
    FILTER_TWINS(TWIN)
#undef TWIN
#else
    {-1, -1},
#endif
};
enum { TWINS = sizeof(twins) / sizeof(*twins) };
_Static_assert(FILTER_CALLS_MAX + TWINS < UINT8_MAX, "a jump reaches the end of the filter");

static bool is_listed(int call, const int *calls, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (calls[i] == call)
            return true;
    return false;
}

static struct sock_filter *put_rule(struct sock_filter *end, const struct rule *r) {
    *end++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)r->call, 0,
                                          (unsigned char)(r->count + 4));
    *end++ = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                                          offsetof(struct seccomp_data, args) + 8 * r->arg);
    *end++ = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, r->mask);
    for (unsigned i = 0; i < r->count; i++)
        *end++ = (struct sock_filter)BPF_JUMP(
            BPF_JMP | BPF_JEQ | BPF_K,
            (uint32_t)(r->values[i] == OURSELVES ? getpid() : r->values[i]),
            (unsigned char)(r->count - i), 0);
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return end;
}

/* Copies `calls` and the older calls of the same effect to `ret`; returns their number. */
static size_t with_twins(const int *calls, size_t count, int ret[FILTER_CALLS_MAX + TWINS]) {
    size_t n = count;
    memcpy(ret, calls, count * sizeof(*calls));
    for (size_t i = 0; i < TWINS; i++)
        if (is_listed(twins[i].call, calls, count))
            ret[n++] = twins[i].older;
    return n;
}

int filter_allow(const int *wanted, size_t count) {
    int calls[FILTER_CALLS_MAX + TWINS];
    struct sock_filter code[4 + RULES * RULE_MAX + FILTER_CALLS_MAX + TWINS + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, NATIVE_ARCH, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    struct sock_filter *end = code + 4;
    if (count > FILTER_CALLS_MAX)
        return -E2BIG;
    count = with_twins(wanted, count, calls);
    for (size_t i = 0; i < RULES; i++)
        if (is_listed(rules[i].call, calls, count))
            end = put_rule(end, &rules[i]);
    for (size_t i = 0; i < count; i++)
        *end++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)calls[i],
                                              (unsigned char)(count - i), 0);
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    *end++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {.len = (unsigned short)(end - code), .filter = code};
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
}
