/* System calls a box has no business with: groups 3, 5, 6, 7, 8, 31, 38. */
#include <elf.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.h"

#define HIGH (1L << 32)

/* A directory of our own to mount on, removed with the mount namespace or the box. */
static const char *scratch(void) {
    static char path[] = "/tmp/attack-XXXXXX";
    return path[12] == 'X' && !mkdtemp(path) ? "/tmp" : path;
}

static int mount_type(const struct attack *a) {
    const char *at = scratch();
    int r = mount("none", at, a->path, (unsigned long)a->n[0],
                  strcmp(a->path, "overlay") == 0 ? "lowerdir=/usr:/etc" : NULL);
    int e = attack_outcome(r);
    if (r == 0)
        umount2(at, MNT_DETACH);
    rmdir(at);
    return e;
}

static int mount_bind(const struct attack *a) {
    const char *at = scratch();
    int e = attack_outcome(mount(a->path, at, NULL, MS_BIND | (unsigned long)a->n[0], NULL));
    umount2(at, MNT_DETACH);
    rmdir(at);
    return e;
}

static int remount(const struct attack *a) {
    return attack_outcome(
        mount(NULL, a->path, NULL, MS_REMOUNT | MS_BIND | (unsigned long)a->n[0], NULL));
}

static int fs_context(const struct attack *a) {
    return attack_outcome(syscall(SYS_fsopen, a->path, 0));
}

static int tree_clone(const struct attack *a) {
    return attack_outcome(syscall(SYS_open_tree, AT_FDCWD, a->path, a->n[0]));
}

static int make_child(void) {
    pid_t pid = fork();
    if (pid == 0) {
        pause();
        _exit(0);
    }
    return pid;
}

/* clone with a namespace flag; the child only says it was born. */
static int clone_flag(const struct attack *a) {
    long pid = syscall(SYS_clone, a->n[0] | SIGCHLD, 0L, 0L, 0L, 0L);
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return attack_outcome(pid);
}

static int clone3_flag(const struct attack *a) {
    struct clone_args args = {.flags = (uint64_t)a->n[0], .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        _exit(0);
    if (pid > 0)
        waitpid((pid_t)pid, NULL, 0);
    return attack_outcome(pid);
}

static int enter_namespace(const struct attack *a) {
    int fd = open(a->path, O_RDONLY | O_CLOEXEC);
    /* What cannot be opened is tried with a descriptor that is none of that. */
    return attack_outcome(syscall(SYS_setns, fd < 0 ? STDIN_FILENO : fd, a->n[0]));
}

/* Throws the pages of another process out of memory. */
static int advise_child(const struct attack *a) {
    (void)a;
    static char page[4096] __attribute__((aligned(4096)));
    page[0] = 1;
    pid_t child = make_child();
    struct iovec there = {page, sizeof(page)};
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    int e = pidfd < 0
                ? errno
                : attack_outcome(syscall(SYS_process_madvise, pidfd, &there, 1L, MADV_PAGEOUT, 0L));
    kill(child, SIGKILL);
    return e;
}

static int take_descriptor(const struct attack *a) {
    (void)a;
    pid_t child = make_child();
    int pidfd = (int)syscall(SYS_pidfd_open, child, 0);
    int e = pidfd < 0 ? errno : attack_outcome(syscall(SYS_pidfd_getfd, pidfd, 0, 0));
    kill(child, SIGKILL);
    return e;
}

static pid_t host_process(void) {
    const char *fact = attack_fact("pid");
    return fact ? (pid_t)strtol(fact, NULL, 10) : 1 << 22;
}

static int signal_host(const struct attack *a) {
    (void)a;
    return attack_outcome(kill(host_process(), 0));
}

static int see_host_process(const struct attack *a) {
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", (int)host_process(), a->path);
    return attack_outcome(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
}

static int pidfd_host(const struct attack *a) {
    (void)a;
    return attack_outcome(syscall(SYS_pidfd_open, host_process(), 0));
}

static int compare_processes(const struct attack *a) {
    (void)a;
    return attack_outcome(syscall(SYS_kcmp, getpid(), getpid(), 1L, 0L, 0L));
}

static int bpf_map(const struct attack *a) {
    union bpf_attr attr = {
        .map_type = (uint32_t)a->n[1], .key_size = 4, .value_size = 4, .max_entries = 1};
    return attack_outcome(syscall(SYS_bpf, a->n[0], &attr, sizeof(attr)));
}

static int perf_event(const struct attack *a) {
    struct perf_event_attr attr = {
        .type = (uint32_t)a->n[0], .size = sizeof(attr), .exclude_kernel = 1};
    return attack_outcome(syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0));
}

static int ring_setup(const struct attack *a) {
    (void)a;
    char params[120] = {0};
    return attack_outcome(syscall(SYS_io_uring_setup, 1, params));
}

static int new_key(const struct attack *a) {
    return attack_outcome(
        syscall(SYS_add_key, a->path, "carrel-attack", "x", 1L, KEY_SPEC_PROCESS_KEYRING));
}

static int want_key(const struct attack *a) {
    (void)a;
    return attack_outcome(syscall(SYS_request_key, "user", "carrel-no-such-key", NULL, 0L));
}

static int handle_of(const struct attack *a) {
    struct {
        struct file_handle head;
        unsigned char bytes[128];
    } h = {.head = {.handle_bytes = 128}};
    int id;
    int r = name_to_handle_at(AT_FDCWD, a->path, &h.head, &id, 0);
    if (!a->n[0])
        return attack_outcome(r);
    /* The shocker: a made-up handle of inode 2, the root of most filesystems. */
    if (r < 0) {
        h.head = (struct file_handle){.handle_bytes = 8, .handle_type = 1};
        memcpy(h.bytes, "\2\0\0\0\0\0\0\0", 8);
    }
    int mount = open(a->path, O_RDONLY | O_CLOEXEC);
    return attack_outcome(open_by_handle_at(mount, &h.head, O_RDONLY));
}

static int adjust_clock(const struct attack *a) {
    struct timex t = {0};
    return attack_outcome(a->n[0] ? syscall(SYS_clock_adjtime, 0L, &t) : syscall(SYS_adjtimex, &t));
}

static int set_clock(const struct attack *a) {
    struct timespec bad = {.tv_sec = 1, .tv_nsec = -1};
    return attack_outcome(a->n[0] ? syscall(SYS_settimeofday, &bad, NULL)
                                  : syscall(SYS_clock_settime, 0L, &bad));
}

static int load_module(const struct attack *a) {
    return attack_outcome(a->n[0] ? syscall(SYS_finit_module, STDIN_FILENO, "", 4096L)
                                  : syscall(SYS_init_module, "carrel", 6L, ""));
}

static int policy(const struct attack *a) {
    unsigned long nodes = 1;
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    switch (a->n[0]) {
    case SYS_mbind:
        return attack_outcome(syscall(SYS_mbind, page, 4096L, 2L, &nodes, 8L, 0L));
    case SYS_set_mempolicy:
        return attack_outcome(syscall(SYS_set_mempolicy, 2L, &nodes, 8L));
    case SYS_migrate_pages:
        return attack_outcome(syscall(SYS_migrate_pages, 0L, 8L, &nodes, &nodes));
    default:
        return attack_outcome(syscall(SYS_move_pages, 0L, 0L, NULL, NULL, NULL, 0L));
    }
}

static int secret_memory(const struct attack *a) {
    (void)a;
    return attack_outcome(syscall(447L, 0L));
}

static int with_pointer(const struct attack *a) {
    char text[256] = "carrel-attack";
    return attack_outcome(syscall(a->n[0], text, a->n[1], a->n[2], a->n[3]));
}

/* A 32-bit program whose first call is exit(42). Where the processor cannot run it: ENOEXEC. */
static int run_compat(const struct attack *a) {
    (void)a;
#if defined(__x86_64__)
    static const unsigned char code[] = {0xb8, 1, 0, 0, 0, 0xbb, 42, 0, 0, 0, 0xcd, 0x80};
    const uint16_t machine = EM_386;
#else
    static const unsigned char code[] = {0x01, 0x70, 0xa0, 0xe3, 0x2a, 0x00,
                                         0xa0, 0xe3, 0,    0,    0,    0xef};
    const uint16_t machine = EM_ARM;
#endif
    struct {
        Elf32_Ehdr e;
        Elf32_Phdr p;
        unsigned char code[sizeof(code)];
    } file = {.e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS32, ELFDATA2LSB, EV_CURRENT},
                    .e_type = ET_EXEC,
                    .e_machine = machine,
                    .e_version = 1,
                    .e_entry = 0x10000 + sizeof(Elf32_Ehdr) + sizeof(Elf32_Phdr),
                    .e_phoff = sizeof(Elf32_Ehdr),
                    .e_flags = machine == EM_ARM ? 0x5000200 : 0,
                    .e_ehsize = sizeof(Elf32_Ehdr),
                    .e_phentsize = sizeof(Elf32_Phdr),
                    .e_phnum = 1},
              .p = {.p_type = PT_LOAD,
                    .p_vaddr = 0x10000,
                    .p_paddr = 0x10000,
                    .p_filesz = sizeof(file),
                    .p_memsz = sizeof(file),
                    .p_flags = PF_R | PF_X,
                    .p_align = 0x10000}};
    memcpy(file.code, code, sizeof(code));
    int fd = memfd_create("compat", MFD_CLOEXEC);
    if (fd < 0 || write(fd, &file, sizeof(file)) != sizeof(file))
        return errno;
    pid_t pid = fork();
    if (pid == 0) {
        char *argv[] = {(char *)"compat", NULL};
        fexecve(fd, argv, argv + 1);
        _exit(errno == ENOEXEC ? 100 : 101);
    }
    int status;
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status))
        return ATTACK_KILLED + WTERMSIG(status);
    return WEXITSTATUS(status) == 42 ? 0 : WEXITSTATUS(status) == 100 ? ENOEXEC : EINVAL;
}

#if defined(__x86_64__)
static int interrupt_80(const struct attack *a) {
    (void)a;
    long pid;
    __asm__ volatile("int $0x80" : "=a"(pid) : "a"(20L) : "memory");
    return pid > 0 ? 0 : (int)-pid;
}
#endif

/* Every number from n[0] up to n[1] must be unknown. */
static int unknown_numbers(const struct attack *a) {
    for (long nr = a->n[0]; nr <= a->n[1]; nr++)
        if (syscall(nr, -1L, -1L, -1L, -1L, -1L, -1L) != -1 || errno != ENOSYS)
            return 0;
    return ENOSYS;
}

/* The call itself with arguments that are wrong on purpose: only its own checks say `shows`. */
#define CALL(group, name, shows, ...)                                             \
    {                                                                             \
        group, #name, attack_syscall, NULL, {SYS_##name, __VA_ARGS__}, {EPERM}, { \
            shows                                                                 \
        }                                                                         \
    }
#define NS(flag)                                                                                   \
    {6, "unshare " #flag, attack_syscall, NULL, {SYS_unshare, flag}, {EPERM}},                     \
        {6,       "unshare " #flag " with high bits", attack_syscall,                              \
         NULL,    {SYS_unshare, flag | HIGH},         {EPERM},                                     \
         {EINVAL}},                                                                                \
        {6, "clone " #flag, clone_flag, NULL, {flag}, {EPERM}},                                    \
        {6, "clone " #flag " with high bits", clone_flag, NULL, {flag | HIGH}, {EPERM}, {EINVAL}}, \
    {                                                                                              \
        6, "clone3 " #flag, clone3_flag, NULL, {flag}, {                                           \
            ENOSYS                                                                                 \
        }                                                                                          \
    }
#define ENTER(name, flag)                                           \
    {                                                               \
        6, "setns " name, enter_namespace, name, {flag}, {EPERM}, { \
            EINVAL, EBADF                                           \
        }                                                           \
    }
#define MOUNT(type)                                         \
    {                                                       \
        5, "mount " type, mount_type, type, {0}, {EPERM}, { \
            ENODEV, EINVAL, EBUSY                           \
        }                                                   \
    }
#define FSOPEN(type)                                         \
    {                                                        \
        5, "fsopen " type, fs_context, type, {0}, {EPERM}, { \
            ENODEV                                           \
        }                                                    \
    }

static const struct attack rows[] = {
    {3, "mount cgroup", mount_type, "cgroup", {0}, {EPERM}, {EBUSY, EINVAL}},
    {3, "mount cgroup2", mount_type, "cgroup2", {0}, {EPERM}, {EBUSY}},

    MOUNT("proc"),
    MOUNT("sysfs"),
    MOUNT("tmpfs"),
    MOUNT("devpts"),
    MOUNT("overlay"),
    MOUNT("mqueue"),
    MOUNT("securityfs"),
    MOUNT("debugfs"),
    MOUNT("tracefs"),
    MOUNT("bpf"),
    MOUNT("devtmpfs"),
    MOUNT("binfmt_misc"),
    {5, "bind /etc", mount_bind, "/etc", {0}, {EPERM}},
    {5, "bind / with all below", mount_bind, "/", {MS_REC}, {EPERM}},
    {5, "bind /proc/1/root", mount_bind, "/proc/1/root", {0}, {EPERM, EACCES}},
    {5, "remount /dev writable", remount, "/dev", {0}, {EPERM}, {EINVAL}},
    {5, "remount / with suid and devices", remount, "/", {0}, {EPERM}, {EINVAL}},
    {5, "remount /run/carrel writable", remount, "/run", {0}, {EPERM}, {EINVAL}},
    {5,
     "make / shared",
     attack_syscall,
     NULL,
     {SYS_mount, 0, (long)"/", 0, MS_SHARED | MS_REC, 0},
     {EPERM},
     {EFAULT, EINVAL}},
    CALL(5, umount2, EINVAL, -1L, 0x7fff0000L),
    FSOPEN("tmpfs"),
    FSOPEN("proc"),
    FSOPEN("overlay"),
    CALL(5, fsmount, EINVAL, -1L, 0x7000L),
    CALL(5, fsconfig, EINVAL, -1L, 99L),
    CALL(5, fspick, EINVAL, -1L, 0L, 0x7000L),
    {5, "open_tree /", tree_clone, "/", {0}, {EPERM}},
    {5, "open_tree clone of /", tree_clone, "/", {1}, {EPERM}},
    {5, "open_tree clone of /proc", tree_clone, "/proc", {1}, {EPERM}, {EINVAL}},
    CALL(5, move_mount, EINVAL, -1L, 0L, -1L, 0L, 0x70000000L),
    {5,
     "mount_setattr",
     attack_syscall,
     NULL,
     {SYS_mount_setattr, -1, 0, 0x7000, 0, 0},
     {EPERM},
     {EINVAL}},
    {5,
     "pivot_root",
     attack_syscall,
     NULL,
     {SYS_pivot_root, (long)".", (long)"."},
     {EPERM},
     {EFAULT, EINVAL, EBUSY}},

    NS(CLONE_NEWUSER),
    NS(CLONE_NEWNS),
    NS(CLONE_NEWPID),
    NS(CLONE_NEWNET),
    NS(CLONE_NEWIPC),
    NS(CLONE_NEWUTS),
    NS(CLONE_NEWCGROUP),
    {6, "unshare CLONE_NEWTIME", attack_syscall, NULL, {SYS_unshare, 0x80}, {EPERM}},
    {6, "clone3 CLONE_NEWTIME", clone3_flag, NULL, {0x80}, {ENOSYS}},
    {6, "clone3 without flags", clone3_flag, NULL, {0}, {ENOSYS}},
    {6, "clone3 CLONE_INTO_CGROUP", clone3_flag, NULL, {(long)0x200000000ULL}, {ENOSYS}, {EBADF}},
    {6, "unshare all but files", attack_syscall, NULL, {SYS_unshare, 0x7e020000}, {EPERM}},
    ENTER("/proc/self/ns/mnt", CLONE_NEWNS),
    ENTER("/proc/self/ns/net", CLONE_NEWNET),
    ENTER("/proc/self/ns/user", 0),
    ENTER("/proc/self/ns/pid", 0),
    ENTER("/proc/1/ns/mnt", 0),
    ENTER("/proc/1/ns/net", 0),
    ENTER("/proc/1/ns/ipc", 0),

    {7, "process_madvise", advise_child, NULL, {0}, {EPERM}},
    {7, "pidfd_getfd", take_descriptor, NULL, {0}, {EPERM}},
    {7, "kcmp", compare_processes, NULL, {0}, {EPERM}},
    {7, "signal a process of the host", signal_host, NULL, {0}, {ESRCH}},
    {7, "pidfd of a process of the host", pidfd_host, NULL, {0}, {ESRCH}},
    {7, "mem of a process of the host", see_host_process, "mem", {0}, {ENOENT}},
    {7, "environ of a process of the host", see_host_process, "environ", {0}, {ENOENT}},
    {7, "fd of a process of the host", see_host_process, "fd", {0}, {ENOENT}},

    {8, "bpf map", bpf_map, NULL, {BPF_MAP_CREATE, BPF_MAP_TYPE_ARRAY}, {EPERM}},
    {8, "bpf program", bpf_map, NULL, {BPF_PROG_LOAD, 1}, {EPERM}, {EINVAL, EFAULT}},
    {8, "bpf next id", bpf_map, NULL, {BPF_PROG_GET_NEXT_ID, 0}, {EPERM}, {EINVAL, ENOENT}},
    {8, "perf_event software", perf_event, NULL, {PERF_TYPE_SOFTWARE}, {EPERM}},
    {8,
     "perf_event hardware",
     perf_event,
     NULL,
     {PERF_TYPE_HARDWARE},
     {EPERM},
     {ENOENT, EOPNOTSUPP}},
    {8,
     "perf_event tracepoint",
     perf_event,
     NULL,
     {PERF_TYPE_TRACEPOINT},
     {EPERM},
     {ENOENT, EINVAL}},
    CALL(8, userfaultfd, 0, 0),
    CALL(8, userfaultfd, 0, 1),
    {8, "io_uring_setup", ring_setup, NULL, {0}, {ENOSYS}},
    {8,
     "io_uring_enter",
     attack_syscall,
     NULL,
     {SYS_io_uring_enter, -1, 0, 0, 0, 0},
     {ENOSYS},
     {EBADF}},
    {8,
     "io_uring_register",
     attack_syscall,
     NULL,
     {SYS_io_uring_register, -1, 0, 0, 0, 0},
     {ENOSYS},
     {EBADF, EINVAL}},
    {8, "io_setup", attack_syscall, NULL, {SYS_io_setup, 1, -8}, {ENOSYS}, {EFAULT}},
    {8, "add_key user", new_key, "user", {0}, {EPERM}},
    {8, "add_key keyring", new_key, "keyring", {0}, {EPERM}, {EINVAL}},
    {8, "request_key", want_key, NULL, {0}, {EPERM}, {ENOKEY, ENOENT}},
    {8,
     "keyctl session",
     attack_syscall,
     NULL,
     {SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0},
     {EPERM},
     {ENOKEY}},
    {8,
     "keyctl join session",
     attack_syscall,
     NULL,
     {SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, 0},
     {EPERM}},
    CALL(8, kexec_load, EINVAL, 0, 99999999L, 0, 0x7fL),
    CALL(8, kexec_file_load, EINVAL, -1L, -1L, 0, 0, 0x7000L),
    {8, "init_module", load_module, NULL, {0}, {EPERM}, {ENOEXEC}},
    {8, "finit_module", load_module, NULL, {1}, {EPERM}, {EINVAL}},
    {8, "delete_module", with_pointer, NULL, {SYS_delete_module, O_NONBLOCK}, {EPERM}, {ENOENT}},
    {8, "open_by_handle_at", handle_of, "/usr", {1}, {EPERM}, {ESTALE}},
    {8, "name_to_handle_at", handle_of, "/usr", {0}, {EPERM}},
    {8, "swapon", with_pointer, NULL, {SYS_swapon, 0}, {EPERM}, {ENOENT}},
    {8, "swapoff", with_pointer, NULL, {SYS_swapoff, 0}, {EPERM}, {ENOENT}},
    {8, "acct", with_pointer, NULL, {SYS_acct, 0}, {EPERM}, {ENOENT}},
    CALL(8, quotactl, EINVAL, -1L, -1L, 0, 0),
    {8, "quotactl_fd", attack_syscall, NULL, {443, -1, -1, 0, 0, 0}, {EPERM}, {EBADF, EINVAL}},
    CALL(8, syslog, 0, 10L, 0, 0),
    CALL(8, syslog, EINVAL, 3L, 0, 0),
    CALL(8, reboot, EINVAL, 1L, 2L, 3L, 0),
    {8, "settimeofday", set_clock, NULL, {1}, {EPERM}, {EINVAL}},
    {8, "clock_settime", set_clock, NULL, {0}, {EPERM}, {EINVAL}},
    {8, "adjtimex", adjust_clock, NULL, {0}, {EPERM}},
    {8, "clock_adjtime", adjust_clock, NULL, {1}, {EPERM}},
    CALL(8, fanotify_init, 0, 0, 0),
    CALL(8, fanotify_mark, EBADF, -1L, 1L, 1L, -1L, 0),
    CALL(8, lookup_dcookie, EINVAL, 0, 0, 0),
    CALL(8, vhangup, 0, 0),
    {8, "setdomainname", with_pointer, NULL, {SYS_setdomainname, 3}, {EPERM}},
    {8, "sethostname", with_pointer, NULL, {SYS_sethostname, 3}, {EPERM}},
    {8, "mbind", policy, NULL, {SYS_mbind}, {EPERM}},
    {8, "set_mempolicy", policy, NULL, {SYS_set_mempolicy}, {EPERM}},
    {8, "migrate_pages", policy, NULL, {SYS_migrate_pages}, {EPERM}},
    {8, "move_pages", policy, NULL, {SYS_move_pages}, {EPERM}},
#if defined(__x86_64__)
    CALL(8, ioperm, EINVAL, 0x70, 1, 99),
    CALL(8, iopl, EINVAL, 99),
    CALL(8, modify_ldt, 0, 0, 0, 0),
#endif

    {31,
     "personality ADDR_NO_RANDOMIZE and READ_IMPLIES_EXEC",
     attack_syscall,
     NULL,
     {SYS_personality, ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC},
     {EPERM}},
    {31,
     "personality READ_IMPLIES_EXEC",
     attack_syscall,
     NULL,
     {SYS_personality, READ_IMPLIES_EXEC},
     {EPERM}},
    {31,
     "personality MMAP_PAGE_ZERO",
     attack_syscall,
     NULL,
     {SYS_personality, MMAP_PAGE_ZERO},
     {EPERM}},
    {31, "personality PER_LINUX32", attack_syscall, NULL, {SYS_personality, 8}, {EPERM}, {EINVAL}},
    {31,
     "personality with high bits",
     attack_syscall,
     NULL,
     {SYS_personality, READ_IMPLIES_EXEC | HIGH},
     {EPERM}},
    {31, "a 32-bit program", run_compat, NULL, {0}, {ATTACK_KILLED + SIGSYS}},
    {31,
     "unshare by a number with high bits",
     attack_syscall,
     NULL,
     {SYS_unshare | HIGH, CLONE_NEWUSER},
     {EPERM, ENOSYS},
     {ENOSYS}},
    {31,
     "bpf by a number with high bits",
     attack_syscall,
     NULL,
     {SYS_bpf | HIGH, -1, 0, 0},
     {EPERM, ENOSYS},
     {EINVAL, E2BIG}},
#if defined(__x86_64__)
    {31, "int 0x80", interrupt_80, NULL, {0}, {ATTACK_KILLED + SIGSYS, ATTACK_KILLED + SIGSEGV}},
    {31,
     "an x32 call",
     attack_syscall,
     NULL,
     {0x40000000 | SYS_getpid},
     {ATTACK_KILLED + SIGSYS, ENOSYS},
     {ENOSYS}},
#else
    {31,
     "a number with bit 30",
     attack_syscall,
     NULL,
     {0x40000000 | SYS_getpid},
     {ENOSYS, ATTACK_KILLED + SIGSYS},
     {0},
     "none: this architecture has no such calls outside either"},
#endif
    {31,
     "a negative number",
     attack_syscall,
     NULL,
     {-2},
     {ENOSYS, ATTACK_KILLED + SIGSYS},
     {0},
     "none: there is no such call outside either"},

    {38, "memfd_secret", secret_memory, NULL, {0}, {ENOSYS}},
    {38, "cachestat", attack_syscall, NULL, {451, -1, 0, 0, 0}, {ENOSYS}, {EBADF, EFAULT}},
    {38, "map_shadow_stack", attack_syscall, NULL, {453, 0, 0, 0}, {ENOSYS}, {EINVAL, EOPNOTSUPP}},
    {38, "statmount", attack_syscall, NULL, {457, 0, 0, 0, 0}, {ENOSYS}, {EFAULT, EINVAL}},
    {38, "listmount", attack_syscall, NULL, {458, 0, 0, 0, 0}, {ENOSYS}, {EFAULT, EINVAL}},
    {38, "lsm_list_modules", attack_syscall, NULL, {461, 0, 0, 0}, {ENOSYS}, {EFAULT, EINVAL}},
    {38, "mseal", attack_syscall, NULL, {462, 0, 0, 1}, {ENOSYS}, {EINVAL}},
    {38,
     "open_tree_attr",
     attack_syscall,
     NULL,
     {467, -1, 0, 0, 0, 0},
     {ENOSYS},
     {EFAULT, EBADF, EINVAL}},

    {38, "every number from 463 to 1200", unknown_numbers, NULL, {463, 1200}, {ENOSYS}},
};

const struct attack_table call_attacks = ATTACK_TABLE(rows);
