/* What /proc, /sys and pid 1 give away or let one change: groups 1, 2, 3, 15, 27, 30. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "attack.h"

extern char **environ;

static int open_for(const struct attack *a) {
    return attack_outcome(open(a->path, (int)a->n[0] | O_CLOEXEC | O_NONBLOCK));
}

static int read_link(const struct attack *a) {
    char target[4096];
    return attack_outcome(readlink(a->path, target, sizeof(target)));
}

static int run_file(const struct attack *a) {
    char *argv[] = {(char *)"attack", (char *)"--help", NULL};
    int ends[2], e = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return errno;
    if (fork() == 0) {
        execve(a->path, argv, environ);
        e = errno;
        (void)!write(ends[1], &e, sizeof(e));
        _exit(1);
    }
    /* A program that runs closes the pipe without a word. */
    close(ends[1]);
    (void)!read(ends[0], &e, sizeof(e));
    return e;
}

/* Through /proc/1/root (or cwd): the marker that lies on the host. */
static int through(const struct attack *a) {
    char path[4096];
    const char *mark = attack_fact("mark");
    snprintf(path, sizeof(path), "%s%s", a->path, mark ? mark : "/nowhere");
    return attack_outcome(open(path, O_RDONLY | O_CLOEXEC));
}

/* A file that must not hold a text the host is known by. */
static int holds_fact(const struct attack *a) {
    static char text[1 << 18];
    const char *facts[] = {"run", "home", "hostname", "boot_id"};
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    size_t len = 0;
    for (ssize_t n; (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    for (size_t i = 0; i < len; i++)
        if (!text[i])
            text[i] = ' ';
    for (size_t i = 0; i < sizeof(facts) / sizeof(*facts); i++) {
        const char *fact = attack_fact(facts[i]);
        if (fact && strstr(text, fact))
            return 0;
    }
    return ENODATA;
}

/* A line of /proc/stat that counts something. */
static int counted(const struct attack *a) {
    static char text[1 << 18];
    size_t len = 0;
    int fd = open("/proc/stat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    for (ssize_t n; (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    close(fd);
    const char *at = strstr(text, a->path);
    return at && strtoull(at + strlen(a->path), NULL, 10) > 0 ? 0 : ENODATA;
}

static int host_name(const struct attack *a) {
    (void)a;
    struct utsname u;
    const char *fact = attack_fact("hostname");
    return uname(&u) == 0 && fact && strcmp(u.nodename, fact) == 0 ? 0 : ENODATA;
}

/* The client's environment holds this one. */
static int environment(const struct attack *a) {
    return getenv(a->path) ? 0 : ENODATA;
}

static int same_file(const struct attack *a) {
    struct stat st;
    char text[64];
    const char *fact = attack_fact(a->path);
    if (stat("/", &st) < 0)
        return errno;
    snprintf(text, sizeof(text), "%llu:%llu", (unsigned long long)st.st_dev,
             (unsigned long long)st.st_ino);
    return fact && strcmp(text, fact) == 0 ? 0 : ENODATA;
}

/* Its own group may show; where the host keeps it must not. */
static int own_cgroup(const struct attack *a) {
    char text[8192] = "";
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, text, sizeof(text) - 1) <= 0)
        return errno;
    const char *fact = attack_fact("cgroup");
    return fact && strstr(text, fact) ? 0 : ENODATA;
}

/* A raise is free for all; only lowering asks for power. */
static int lower_oom_score(const struct attack *a) {
    int fd = open(a->path, O_WRONLY | O_CLOEXEC);
    return fd < 0 ? errno : attack_outcome(write(fd, "-999", 4));
}

static int write_text(const struct attack *a) {
    int fd = open(a->path, O_WRONLY | O_CLOEXEC);
    static const char *const texts[] = {"0 0 65536\n", "deny", "50001"};
    const char *text = texts[a->n[0]];
    return fd < 0 ? errno : attack_outcome(write(fd, text, strlen(text)));
}

#define SYSCTL(group, name)                                                     \
    {                                                                           \
        group, "write /proc/sys/" name, attack_write, "/proc/sys/" name, {1}, { \
            EACCES, EROFS, EPERM                                                \
        }                                                                       \
    }
#define SYSCTL_USER(name)                                                           \
    {                                                                               \
        1, "write /proc/sys/user/" name, attack_write, "/proc/sys/user/" name, {1}, \
            {EACCES, EROFS, EPERM}, {0}, "outside SYS_RESOURCE"                     \
    }
/* Some of net/ exist only in the host's own network namespace. */
#define SYSCTL_NET(name)                                                    \
    {                                                                       \
        1, "write /proc/sys/" name, attack_write, "/proc/sys/" name, {1}, { \
            EACCES, EPERM, ENOENT                                           \
        }                                                                   \
    }
/* Those that cannot be read, or whose own text does something: opening is enough. */
#define SYSCTL_OPEN(group, name)                                               \
    {                                                                          \
        group, "open /proc/sys/" name, attack_write, "/proc/sys/" name, {0}, { \
            EACCES, EROFS, EPERM                                               \
        }                                                                      \
    }
/* Covered by a file or directory that nobody in a box may open (docs/reference/box.md). */
#define MASKED(name) \
    { 2, "read /proc/" name, attack_read, "/proc/" name, {0}, {EACCES}, {EPERM}, "weak masks" }
#define MASKED_DIR(name) \
    { 2, "list /proc/" name, attack_list, "/proc/" name, {0}, {EACCES}, {0}, "weak masks" }
/* For the host's root alone, whom nobody in a box is. */
#define CLOSED(name)                                                        \
    {                                                                       \
        2, "read /proc/" name, attack_read, "/proc/" name, {0}, {EACCES}, { \
            EAGAIN, EFAULT, EINVAL, EIO                                     \
        }                                                                   \
    }
#define OF_INIT(name, how)                                                              \
    {                                                                                   \
        15, #how " /proc/1/" name, open_for, "/proc/1/" name, {how}, {EACCES, EPERM}, { \
            ETXTBSY                                                                     \
        }                                                                               \
    }
#define LINK_OF_INIT(name)                                               \
    {                                                                    \
        15, "readlink /proc/1/" name, read_link, "/proc/1/" name, {0}, { \
            EACCES, EPERM                                                \
        }                                                                \
    }
#define ABSENT(group, name, run)       \
    {                                  \
        group, name, run, name, {0}, { \
            ENOENT, EACCES, ENOTDIR    \
        }                              \
    }

/* A directory of a package, without what the host put there. */
#define NOTHING(group, name)                   \
    {                                          \
        group, name, attack_list, name, {0}, { \
            ENOENT, EACCES, ENOTDIR, ENODATA   \
        }                                      \
    }

static const struct attack rows[] = {
    SYSCTL(1, "kernel/core_pattern"),
    SYSCTL(1, "kernel/core_pipe_limit"),
    SYSCTL(1, "kernel/modprobe"),
    SYSCTL(1, "kernel/poweroff_cmd"),
    SYSCTL(1, "kernel/sysrq"),
    SYSCTL(1, "kernel/hostname"),
    SYSCTL(1, "kernel/domainname"),
    SYSCTL(1, "kernel/randomize_va_space"),
    SYSCTL(1, "kernel/kptr_restrict"),
    SYSCTL(1, "kernel/dmesg_restrict"),
    SYSCTL(1, "kernel/perf_event_paranoid"),
    SYSCTL(1, "kernel/unprivileged_bpf_disabled"),
    SYSCTL(1, "kernel/yama/ptrace_scope"),
    SYSCTL(1, "kernel/panic"),
    SYSCTL(1, "kernel/panic_on_oops"),
    SYSCTL(1, "kernel/pid_max"),
    SYSCTL(1, "kernel/threads-max"),
    SYSCTL(1, "kernel/ns_last_pid"),
    {1,
     "write /proc/sys/kernel/cad_pid",
     attack_write,
     "/proc/sys/kernel/cad_pid",
     {1},
     {EACCES, EROFS, EPERM},
     {ESRCH}},
    SYSCTL(1, "kernel/msgmax"),
    SYSCTL(1, "kernel/msgmni"),
    SYSCTL(1, "kernel/shmmax"),
    SYSCTL(1, "kernel/shmall"),
    SYSCTL(1, "kernel/sem"),
    SYSCTL(1, "kernel/printk"),
    SYSCTL(1, "kernel/pty/max"),
    SYSCTL(1, "kernel/sched_rt_runtime_us"),
    SYSCTL(1, "kernel/hung_task_timeout_secs"),
    SYSCTL_OPEN(1, "kernel/usermodehelper/bset"),
    SYSCTL_OPEN(1, "kernel/random/write_wakeup_threshold"),
    SYSCTL_OPEN(1, "vm/drop_caches"),
    SYSCTL_OPEN(1, "vm/compact_memory"),
    SYSCTL(1, "vm/overcommit_memory"),
    SYSCTL(1, "vm/mmap_min_addr"),
    SYSCTL(1, "vm/swappiness"),
    SYSCTL(1, "vm/panic_on_oom"),
    SYSCTL(1, "vm/max_map_count"),
    SYSCTL(1, "vm/nr_hugepages"),
    SYSCTL(1, "vm/unprivileged_userfaultfd"),
    SYSCTL(1, "vm/min_free_kbytes"),
    SYSCTL(1, "fs/file-max"),
    SYSCTL(1, "fs/nr_open"),
    SYSCTL(1, "fs/suid_dumpable"),
    SYSCTL(1, "fs/protected_symlinks"),
    SYSCTL(1, "fs/protected_hardlinks"),
    SYSCTL(1, "fs/pipe-max-size"),
    SYSCTL(1, "fs/inotify/max_user_watches"),
    SYSCTL(1, "fs/inotify/max_user_instances"),
    SYSCTL(1, "fs/epoll/max_user_watches"),
    SYSCTL(1, "fs/mqueue/queues_max"),
    SYSCTL(1, "fs/aio-max-nr"),
    SYSCTL_OPEN(1, "fs/binfmt_misc/register"),
    SYSCTL(1, "net/ipv4/ip_forward"),
    SYSCTL(1, "net/ipv4/ping_group_range"),
    SYSCTL_NET("net/core/somaxconn"),
    SYSCTL(1, "net/ipv4/ip_unprivileged_port_start"),
    SYSCTL_NET("net/ipv4/tcp_mem"),
    SYSCTL(1, "net/ipv6/conf/all/forwarding"),
    SYSCTL_NET("net/core/bpf_jit_enable"),
    SYSCTL_USER("max_user_namespaces"),
    SYSCTL_USER("max_inotify_instances"),
    SYSCTL_USER("max_mnt_namespaces"),
    SYSCTL(1, "debug/exception-trace"),
    {1,
     "open /proc/irq/default_smp_affinity",
     attack_write,
     "/proc/irq/default_smp_affinity",
     {0},
     {EACCES, EPERM}},
    {1,
     "lower /proc/self/oom_score_adj",
     lower_oom_score,
     "/proc/self/oom_score_adj",
     {0},
     {EACCES},
     {0},
     "outside SYS_RESOURCE"},
    {1,
     "lower /proc/1/oom_score_adj",
     lower_oom_score,
     "/proc/1/oom_score_adj",
     {0},
     {EACCES},
     {0},
     "outside SYS_RESOURCE"},
    {1,
     "write /proc/self/uid_map",
     write_text,
     "/proc/self/uid_map",
     {0},
     {EPERM},
     {0},
     "none: a map can be written only once, also outside"},
    {1,
     "write /proc/self/setgroups",
     write_text,
     "/proc/self/setgroups",
     {1},
     {EPERM, EACCES},
     {0},
     "none: a map that exists forbids it, also outside"},

    {2, "open /proc/sysrq-trigger", attack_write, "/proc/sysrq-trigger", {0}, {EACCES}},
    MASKED("kallsyms"),
    MASKED("config.gz"),
    MASKED("keys"),
    MASKED("key-users"),
    MASKED("modules"),
    MASKED("cmdline"),
    MASKED("diskstats"),
    MASKED("partitions"),
    MASKED("interrupts"),
    MASKED("locks"),
    MASKED("sched_debug"),
    MASKED("latency_stats"),
    MASKED("iomem"),
    MASKED("ioports"),
    MASKED("softirqs"),
    MASKED("dma"),
    MASKED_DIR("bus"),
    MASKED_DIR("bus/pci"),
    MASKED_DIR("irq"),
    {2, "interrupts in /proc/stat", counted, "\nintr ", {0}, {ENODATA}, {0}, "weak masks"},
    {2, "soft interrupts in /proc/stat", counted, "\nsoftirq ", {0}, {ENODATA}, {0}, "weak masks"},
    {2, "the host's work in /proc/stat", counted, "\nctxt ", {0}, {ENODATA}, {0}, "weak masks"},
    MASKED("timer_stats"),
    MASKED_DIR("fs"),
    MASKED_DIR("acpi"),
    MASKED_DIR("scsi"),
    MASKED_DIR("asound"),
    CLOSED("kcore"),
    CLOSED("kmsg"),
    CLOSED("timer_list"),
    CLOSED("vmallocinfo"),
    CLOSED("slabinfo"),
    CLOSED("pagetypeinfo"),
    CLOSED("kpagecount"),
    CLOSED("kpageflags"),
    CLOSED("kpagecgroup"),
    CLOSED("mtrr"),
    CLOSED("allocinfo"),
    {2, "read /dev/kmsg", attack_read, "/dev/kmsg", {0}, {ENOENT}, {EAGAIN, EPIPE, EINVAL}},
    {2, "read /dev/mem", attack_read, "/dev/mem", {0}, {ENOENT}, {EPERM, EFAULT}},

    ABSENT(3, "/sys/fs/cgroup/memory/release_agent", open_for),
    ABSENT(3, "/sys/fs/cgroup/cgroup.procs", open_for),
    ABSENT(3, "/sys/fs/cgroup/freezer/notify_on_release", open_for),
    ABSENT(3, "/sys/fs/cgroup", attack_list),
    ABSENT(27, "/sys/fs/cgroup/unified/cgroup.procs", open_for),
    ABSENT(27, "/sys/fs/cgroup/pids/tasks", open_for),
    {27,
     "own cgroup path shows the host's tree",
     own_cgroup,
     "/proc/self/cgroup",
     {0},
     {ENODATA},
     {0},
     "none: outside it is shown or not by how the host was started"},

    OF_INIT("mem", O_RDONLY),
    OF_INIT("mem", O_RDWR),
    OF_INIT("exe", O_RDONLY),
    OF_INIT("exe", O_WRONLY),
    OF_INIT("environ", O_RDONLY),
    OF_INIT("maps", O_RDONLY),
    OF_INIT("smaps", O_RDONLY),
    OF_INIT("auxv", O_RDONLY),
    OF_INIT("pagemap", O_RDONLY),
    OF_INIT("fd", O_RDONLY),
    OF_INIT("fdinfo", O_RDONLY),
    OF_INIT("map_files", O_RDONLY),
    OF_INIT("clear_refs", O_WRONLY),
    OF_INIT("root", O_RDONLY),
    OF_INIT("cwd", O_RDONLY),
    OF_INIT("ns/mnt", O_RDONLY),
    OF_INIT("ns/user", O_RDONLY),
    OF_INIT("ns/pid", O_RDONLY),
    OF_INIT("ns/net", O_RDONLY),
    OF_INIT("task/1/mem", O_RDWR),
    OF_INIT("task/1/fd", O_RDONLY),
    LINK_OF_INIT("exe"),
    LINK_OF_INIT("root"),
    LINK_OF_INIT("cwd"),
    LINK_OF_INIT("fd/4"),
    OF_INIT("fd/4", O_RDONLY),
    LINK_OF_INIT("ns/mnt"),
    LINK_OF_INIT("ns/user"),
    {15, "write /proc/1/timerslack_ns", write_text, "/proc/1/timerslack_ns", {2}, {EACCES, EPERM}},
    {15, "read /proc/1/stack", attack_read, "/proc/1/stack", {0}, {EACCES, EPERM}},
    {15, "read /proc/1/syscall", attack_read, "/proc/1/syscall", {0}, {EACCES, EPERM}},
    {15, "execve /proc/1/exe", run_file, "/proc/1/exe", {0}, {EACCES, EPERM}},
    {15,
     "write /proc/self/exe",
     open_for,
     "/proc/self/exe",
     {O_WRONLY},
     {ETXTBSY, EACCES},
     {0},
     "none: ETXTBSY outside too; what counts is that this file is nobody else's"},

    {14, "the host through /proc/1/root", through, "/proc/1/root", {0}, {EACCES, EPERM}},
    {14,
     "the host through /proc/1/cwd/..",
     through,
     "/proc/1/cwd/../../../..",
     {0},
     {EACCES, EPERM}},
    {14,
     "the host through /proc/self/root/..",
     through,
     "/proc/self/root/../../../..",
     {0},
     {ENOENT}},
    {14, "the host through ../..", through, "../../../../../../../../../..", {0}, {ENOENT}},
    {14, "the root directory is the host's", same_file, "root", {0}, {ENODATA}},

    {30,
     "/proc/self/mountinfo names the host's paths",
     holds_fact,
     "/proc/self/mountinfo",
     {0},
     {ENODATA},
     {0},
     "none: outside every path is the host's"},
    {30,
     "/proc/self/mounts names the host's paths",
     holds_fact,
     "/proc/self/mounts",
     {0},
     {ENODATA},
     {0},
     "none: outside every path is the host's"},
    {30,
     "/proc/1/cmdline names the host's paths",
     holds_fact,
     "/proc/1/cmdline",
     {0},
     {ENODATA},
     {0},
     "none: pid 1 is the box's own"},
    {30,
     "/run/carrel/machine.json names the host's paths",
     holds_fact,
     "/run/carrel/machine.json",
     {0},
     {ENODATA},
     {0},
     "none: only a box has it"},
    {30,
     "/proc/sys/kernel/hostname is the host's",
     holds_fact,
     "/proc/sys/kernel/hostname",
     {0},
     {ENODATA}},
    {30,
     "the boot id is the host's",
     holds_fact,
     "/proc/sys/kernel/random/boot_id",
     {0},
     {ENODATA},
     {0},
     "weak masks"},
    {30, "uname is the host's", host_name, NULL, {0}, {ENODATA}},
    {30, "/etc/hostname is the host's", holds_fact, "/etc/hostname", {0}, {ENODATA}, {ENOENT}},
    {30,
     "an environment variable of the caller",
     environment,
     "CARREL_TEST_SECRET",
     {0},
     {ENODATA}},
    {30, "CARREL_RUN of the caller", environment, "CARREL_RUN", {0}, {ENODATA}},
    {30, "/sys", attack_list, "/sys", {0}, {ENODATA}},
    ABSENT(30, "/sys/firmware/efi/efivars", attack_list),
    ABSENT(30, "/sys/kernel/debug", attack_list),
    ABSENT(30, "/sys/kernel/security", attack_list),
    ABSENT(30, "/sys/class/net", attack_list),
    ABSENT(30, "/sys/devices", attack_list),
    ABSENT(30, "/sys/module", attack_list),
    ABSENT(30, "/sys/firmware", attack_list),
    ABSENT(30, "/sys/kernel/notes", attack_read),
    ABSENT(30, "/sys/block", attack_list),
    ABSENT(30, "/proc/device-tree/model", attack_read),
    ABSENT(30, "/proc/efi", attack_list),
    ABSENT(30, "/boot", attack_list),
    ABSENT(30, "/var/lib/carrel", attack_list),
    ABSENT(30, "/etc/ssh/ssh_host_ed25519_key", attack_read),
    ABSENT(30, "/etc/ssh/ssh_host_rsa_key", attack_read),
    ABSENT(30, "/etc/ssl/private/ssl-cert-snakeoil.key", attack_read),
    ABSENT(30, "/etc/crontab", attack_read),
    NOTHING(30, "/etc/systemd/system"),
    ABSENT(30, "/var/spool/cron", attack_list),
    NOTHING(30, "/var/lib/systemd"),
    ABSENT(30, "/etc/subuid", attack_read),
    ABSENT(30, "/var/log/dpkg.log", attack_read),
};

const struct attack_table proc_attacks = ATTACK_TABLE(rows);
