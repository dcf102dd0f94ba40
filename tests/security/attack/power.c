/* Priorities and limits that only the host may change: groups 28, 29; capabilities of root. */
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <mqueue.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "attack.h"

static int schedule(const struct attack *a) {
    struct sched_param p = {.sched_priority = (int)a->n[1]};
    return attack_outcome(sched_setscheduler(0, (int)a->n[0], &p));
}

static int deadline(const struct attack *a) {
    struct sched_attr {
        uint32_t size, policy;
        uint64_t flags;
        int32_t nice;
        uint32_t priority;
        uint64_t runtime, deadline, period;
    } attr = {.size = 48,
              .policy = (uint32_t)a->n[0],
              .priority = (uint32_t)a->n[1],
              .nice = (int)a->n[2],
              .runtime = a->n[0] == 6 ? 1000000 : 0,
              .deadline = a->n[0] == 6 ? 100000000 : 0,
              .period = a->n[0] == 6 ? 100000000 : 0};
    return attack_outcome(syscall(SYS_sched_setattr, 0, &attr, 0));
}

static int be_greedy(const struct attack *a) {
    return attack_outcome(setpriority(PRIO_PROCESS, 0, (int)a->n[0]));
}

static int io_priority(const struct attack *a) {
    return attack_outcome(syscall(SYS_ioprio_set, 1L, 0L, a->n[0] << 13));
}

static int raise_limit(const struct attack *a) {
    struct rlimit r = {.rlim_cur = (rlim_t)a->n[1], .rlim_max = (rlim_t)a->n[1]};
    return attack_outcome(setrlimit((__rlimit_resource_t)a->n[0], &r));
}

/* In any of the sets: permitted, effective, inheritable, bounding, ambient. */
static int has_capability(const struct attack *a) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {0};
    unsigned cap = (unsigned)a->n[0];
    syscall(SYS_capget, &head, data);
    uint32_t bit = 1u << (cap % 32), i = cap / 32;
    bool has = (data[i].effective | data[i].permitted | data[i].inheritable) & bit;
    return has || prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 1 ||
                   prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, cap, 0, 0) == 1
               ? 0
               : EPERM;
}

static int gain_capability(const struct attack *a) {
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}, {0}};
    data[a->n[0] / 32].effective = data[a->n[0] / 32].permitted = 1u << (a->n[0] % 32);
    return attack_outcome(syscall(SYS_capset, &head, data));
}

static int no_filter(const struct attack *a) {
    (void)a;
    return prctl(PR_GET_SECCOMP, 0, 0, 0, 0) == 2 ? EPERM : 0;
}

/* Ids of the host's: none of them is in the box's map. */
static int become(const struct attack *a) {
    return attack_outcome(syscall(SYS_setresuid, a->n[0], a->n[0], a->n[0]));
}

static int replace_exe(const struct attack *a) {
    (void)a;
    struct prctl_mm_map map = {0};
    return attack_outcome(prctl(PR_SET_MM, PR_SET_MM_MAP, &map, sizeof(map), 0));
}

static int lock_memory(const struct attack *a) {
    size_t bytes = (size_t)a->n[0];
    void *p = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? errno : attack_outcome(mlock(p, bytes));
}

static int huge_pages(const struct attack *a) {
    (void)a;
    void *p = mmap(NULL, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB,
                   -1, 0);
    return p == MAP_FAILED ? errno : 0;
}

/* Two fences: how much a queue may hold, and how much of them a user may have. */
static int big_queue(const struct attack *a) {
    (void)a;
    const struct rlimit all = {RLIM_INFINITY, RLIM_INFINITY};
    setrlimit(RLIMIT_MSGQUEUE, &all);
    struct mq_attr attr = {.mq_maxmsg = 65536, .mq_msgsize = 65536};
    mqd_t q = mq_open("/carrel-attack", O_CREAT | O_RDWR, 0600, &attr);
    int e = q == (mqd_t)-1 ? errno : 0;
    mq_unlink("/carrel-attack");
    return e;
}

static int big_pipe(const struct attack *a) {
    int ends[2];
    return pipe2(ends, O_CLOEXEC) < 0 ? errno
                                      : attack_outcome(fcntl(ends[0], F_SETPIPE_SZ, (int)a->n[0]));
}

#define CAP(name)                                                                  \
    {                                                                              \
        28, "capability " #name, has_capability, NULL, {CAP_##name}, {EPERM}, {0}, \
            "weak capabilities"                                                    \
    }
#define GAIN(name) \
    { 28, "capset " #name, gain_capability, NULL, {CAP_##name}, {EPERM}, {0}, NULL, 'r' }
#define LIMIT(name, value)                                                                  \
    {                                                                                       \
        29, "raise RLIMIT_" #name, raise_limit, NULL, {RLIMIT_##name, value}, {EPERM}, {0}, \
            "outside SYS_RESOURCE"                                                          \
    }

static const struct attack rows[] = {
    {28, "SCHED_FIFO", schedule, NULL, {SCHED_FIFO, 50}, {EPERM}},
    {28, "SCHED_RR", schedule, NULL, {SCHED_RR, 1}, {EPERM}},
    {28, "SCHED_FIFO for children too", schedule, NULL, {SCHED_FIFO | 0x40000000, 99}, {EPERM}},
    {28, "SCHED_DEADLINE", deadline, NULL, {6, 0, 0}, {EPERM}, {EBUSY}},
    {28, "sched_setattr FIFO", deadline, NULL, {1, 1, 0}, {EPERM}},
    {28, "sched_setattr nice -20", deadline, NULL, {0, 0, -20}, {EPERM}},
    {28, "nice -20", be_greedy, NULL, {-20}, {EACCES, EPERM}},
    {28, "nice -1", be_greedy, NULL, {-1}, {EACCES, EPERM}},
    {28, "ioprio realtime", io_priority, NULL, {1}, {EPERM}},
    CAP(SYS_ADMIN),
    CAP(SYS_PTRACE),
    CAP(SYS_MODULE),
    CAP(SYS_RAWIO),
    CAP(SYS_BOOT),
    CAP(SYS_NICE),
    CAP(SYS_TIME),
    CAP(SYS_TTY_CONFIG),
    CAP(SYS_PACCT),
    CAP(SYS_RESOURCE),
    CAP(NET_ADMIN),
    CAP(NET_RAW),
    CAP(NET_BROADCAST),
    CAP(MKNOD),
    CAP(DAC_READ_SEARCH),
    CAP(LINUX_IMMUTABLE),
    CAP(IPC_LOCK),
    CAP(IPC_OWNER),
    CAP(LEASE),
    CAP(AUDIT_CONTROL),
    CAP(AUDIT_WRITE),
    CAP(AUDIT_READ),
    CAP(MAC_ADMIN),
    CAP(MAC_OVERRIDE),
    CAP(SYSLOG),
    CAP(WAKE_ALARM),
    CAP(BLOCK_SUSPEND),
    {28, "capability PERFMON", has_capability, NULL, {38}, {EPERM}, {0}, "weak capabilities"},
    {28, "capability BPF", has_capability, NULL, {39}, {EPERM}, {0}, "weak capabilities"},
    {28,
     "capability CHECKPOINT_RESTORE",
     has_capability,
     NULL,
     {40},
     {EPERM},
     {0},
     "weak capabilities"},
    GAIN(SYS_ADMIN),
    GAIN(NET_ADMIN),
    GAIN(SYS_PTRACE),
    {8, "no filter is loaded", no_filter, NULL, {0}, {EPERM}, {0}, "weak seccomp"},
    {37, "become a uid outside the range", become, NULL, {70000}, {EPERM, EINVAL}},
    {37, "become the highest uid", become, NULL, {0xfffffffe}, {EPERM, EINVAL}},
    {15, "PR_SET_MM", replace_exe, NULL, {0}, {EPERM, EINVAL}, {EINVAL, EFAULT}},

    LIMIT(NOFILE, 1 << 20),
    LIMIT(MEMLOCK, 1L << 40),
    LIMIT(RTPRIO, 99),
    LIMIT(NICE, 40),
    LIMIT(MSGQUEUE, 1L << 40),
    LIMIT(SIGPENDING, 1 << 30),
    {29,
     "raise RLIMIT_CORE",
     raise_limit,
     NULL,
     {RLIMIT_CORE, 1 << 30},
     {EPERM},
     {0},
     "outside SYS_RESOURCE"},
    {29, "lock 1 GiB of memory", lock_memory, NULL, {1L << 30}, {EPERM, ENOMEM, EAGAIN}},
    {29,
     "huge pages",
     huge_pages,
     NULL,
     {0},
     {ENOMEM, EPERM, EINVAL},
     {0},
     "none: hosts without reserved huge pages refuse it too"},
    {29,
     "a message queue of 4 GiB",
     big_queue,
     NULL,
     {0},
     {EMFILE, EINVAL, ENOMEM},
     {0},
     "outside SYS_RESOURCE"},
    {29,
     "a pipe of 1 GiB",
     big_pipe,
     NULL,
     {1 << 30},
     {EPERM},
     {EBUSY, ENOMEM},
     "outside SYS_RESOURCE"},
};

const struct attack_table power_attacks = ATTACK_TABLE(rows);
