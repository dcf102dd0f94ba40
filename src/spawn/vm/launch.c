#include "spawn/vm/launch.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "base/wire/vm_address.h"
#include "base/wire/vm_programs.h"
#include "spawn/inside.h"
#include "spawn/make/dev.h"
#include "spawn/make/filter.h"
#include "spawn/make/mountinfo.h"
#include "spawn/make/mounts.h"

#if defined(__x86_64__)
/* Without the pit and the pic: their calibration hangs on a busy host. */
#define QEMU_MACHINE "microvm,x-option-roms=off,pit=off,pic=off,rtc=on,memory-backend=mem"
#elif defined(__aarch64__)
#define QEMU_MACHINE "virt,gic-version=3,memory-backend=mem"
#else
#error "QEMU has no known machine for this architecture"
#endif

enum {
    PARTS_MAX = 3 + PLAN_MAX_GRANTS,
    MOUNTS_SIZE = 1 << 18,
    NOBODY = 65534,
    OPEN_FILES = 1 << 19, /* the server keeps one for each file that the guest knows */
    ARGS_MAX = 80,
    ARG_SIZE = 2304,
};

#define KVM_NUMBER makedev(10, 232) /* of the device, on every Linux */

/* Descriptors of the two programs; all others are closed. */
enum {
    SERVER_FD = 3,
    LIFE_FD,
    CONTROL_FD,
    KEPT_CONTROL_FD, /* the other end, which the server keeps for the spawner */
    TABLE_FD,
    RELAY_FD = 3, /* and the next one */
    KERNEL_FD = 3,
    INITRD_FD,
    PORT_FD,
    FILES_FD,
    RAM_FD = VM_LAUNCH_RAM,
    WORD_FD,
    QMP_FD,
    STATE_FD,
    KEPT_FD, /* and the next one: the other ends of WORD_FD and QMP_FD */
    SERIAL_FD = KEPT_FD + 2,
    LIBRARY_FD,
    FDS_MAX = LIBRARY_FD + 1 - KERNEL_FD,
    HIGH_FD = 64,
};

/* A mount below the root of the machine that the guest is to see. */
struct part {
    int mount;
    char path[PLAN_PATH_SIZE]; /* relative to the root */
};

struct jail {
    const struct spawner *s;
    const struct vm_launch *launch;
    int usr, tree, proc, dev, root; /* mounts */
    int pidns, ipcns, utsns, userns;
    int program;    /* this one, which serves the files, too */
    int files[2];   /* connects QEMU to the server */
    int serial[2];  /* connects QEMU to the process that keeps its serial console */
    int control[2]; /* to the server, for the spawner */
    int life[2];    /* pipe that only tells QEMU that the server has ended */
    struct part parts[PARTS_MAX];
    size_t part_count;
};

static void __attribute__((noreturn)) jail_fail(const struct jail *j, const char *step, int error) {
    char text[256];
    int n = snprintf(text, sizeof(text), "cannot %s: %s", step, strerror(error));
    (void)!write(j->launch->report, text, (size_t)n);
    _exit(1);
}

/* Runs one step of the set-up. A failed step ends the process; there is nothing to undo. */
#define STEP(name, call)               \
    do {                               \
        if ((call) < 0)                \
            jail_fail(j, name, errno); \
    } while (0)

/* Like STEP(), for functions that return -errno. */
#define TRY(name, call)                  \
    do {                                 \
        int tried_ = (call);             \
        if (tried_ < 0)                  \
            jail_fail(j, name, -tried_); \
    } while (0)

/* ---- collecting the mounts ---- */

static int jail_open_space(const struct jail *j, const struct box *box, const char *name) {
    char path[32];
    snprintf(path, sizeof(path), "%d/ns/%s", (int)box->pid, name);
    int fd = openat(j->s->proc, path, O_RDONLY | O_CLOEXEC);
    STEP("open a namespace of the machine", fd);
    return fd;
}

static void jail_add_part(struct jail *j, const char *full, const char *path) {
    if (j->part_count == PARTS_MAX)
        jail_fail(j, "serve all directories that are mounted in the machine", E2BIG);
    struct part *p = &j->parts[j->part_count++];
    p->mount = mount_clone(AT_FDCWD, full);
    TRY("clone a mount of the machine", p->mount);
    snprintf(p->path, sizeof(p->path), "%s", path);
}

/*
 * Takes the mounts in the root that hold files of the machine: /usr, /run/carrel and the granted
 * directories, but not those that every box has, such as /proc. The table lists a mount before
 * those inside it.
 */
static void jail_find_parts(struct jail *j, const char *side) {
    static struct mount_line line;
    char *text = malloc(MOUNTS_SIZE);
    ssize_t n = text ? read_file_at(j->s->proc, "self/mountinfo", text, MOUNTS_SIZE) : -ENOMEM;
    size_t skip = strlen(side);
    if (n < 0 || n >= MOUNTS_SIZE - 1)
        jail_fail(j, "read the mounts of the machine", n < 0 ? (int)-n : EFBIG);
    for (const char *at = text; mountinfo_next(&at, &line);) {
        const char *path = line.path + skip;
        if (strncmp(line.path, side, skip) == 0 && *path == '/' &&
            (strcmp(path, "/usr") == 0 || strcmp(path, "/run/carrel") == 0 || !lend_is_own(path)))
            jail_add_part(j, line.path, path + 1);
    }
    free(text);
}

/*
 * /dev with a node of KVM, which the machine does not see. QEMU opens it by this path, as a user
 * who may not open the host's. Made before all rights on the host are given up.
 */
static void jail_make_dev(struct jail *j) {
    const struct mount_option options[] = {{"size", "64k"}, {"mode", "0755"}};
    j->dev = mount_new("tmpfs", options, 2, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    TRY("create a /dev with KVM", j->dev);
    TRY("create a /dev with KVM", dev_fill(j->dev, j->s->host));
    STEP("create the node of KVM", mknodat(j->dev, "kvm", S_IFCHR, KVM_NUMBER));
    STEP("create the node of KVM", fchmodat(j->dev, "kvm", 0666, 0));
    TRY("protect /dev", mount_read_only(j->dev));
}

static void jail_collect(struct jail *j, const struct box *box) {
    const char *side = box_side_path(box->side);
    char path[16];
    int mnt = jail_open_space(j, box, "mnt");
    j->pidns = jail_open_space(j, box, "pid");
    j->ipcns = jail_open_space(j, box, "ipc");
    j->utsns = jail_open_space(j, box, "uts");
    j->userns = jail_open_space(j, box, "user");
    j->program = openat(j->s->proc, "self/exe", O_PATH | O_CLOEXEC);
    STEP("open the program that serves files", j->program);
    j->usr = mount_clone(j->s->host, "usr");
    TRY("clone the host's /usr", j->usr);
    TRY("protect the host's /usr", mount_harden(j->usr));
    TRY("protect the host's /usr", mount_read_only(j->usr));
    STEP("enter the mount namespace of the machine", setns(mnt, CLONE_NEWNS));
    j->tree = mount_clone(AT_FDCWD, side);
    TRY("clone the root of the machine", j->tree);
    jail_find_parts(j, side);
    snprintf(path, sizeof(path), "%s/proc", side);
    j->proc = mount_clone(AT_FDCWD, path);
    TRY("clone /proc of the machine", j->proc);
    if (j->launch->has_kvm)
        return; /* jail_make_dev() */
    snprintf(path, sizeof(path), "%s/dev", side);
    j->dev = mount_clone(AT_FDCWD, path);
    TRY("clone /dev of the machine", j->dev);
}

/* ---- entering ---- */

/* As child_leave() for a box. The user namespace comes last: it gives up all rights on the host. */
static void jail_leave(const struct jail *j) {
    STEP("enter the empty mount namespace (anchor)", setns(j->s->anchor_ns, CLONE_NEWNS));
    STEP("enter the process namespace of the machine", setns(j->pidns, CLONE_NEWPID));
    STEP("enter the IPC namespace of the machine", setns(j->ipcns, CLONE_NEWIPC));
    STEP("enter the UTS namespace of the machine", setns(j->utsns, CLONE_NEWUTS));
    STEP("enter the user namespace of the machine", setns(j->userns, CLONE_NEWUSER));
    STEP("create namespaces", unshare(CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWCGROUP));
    STEP("become root of the machine", (int)syscall(SYS_setresgid, 0, 0, 0));
    STEP("become root of the machine", (int)syscall(SYS_setgroups, 0, NULL));
    STEP("become root of the machine", (int)syscall(SYS_setresuid, 0, 0, 0));
}

static void jail_attach(const struct jail *j, int mount, const char *name) {
    STEP("create a directory of the jail", mkdirat(j->root, name, 0755));
    TRY("attach a mount in the jail", mount_attach(mount, j->root, name));
}

static void jail_build(struct jail *j) {
    static const char *const links[] = {"bin", "sbin", "lib", "lib32", "lib64"};
    const struct mount_option options[] = {{"mode", "0755"}, {"size", "64k"}, {"nr_inodes", "64"}};
    umask(022);
    j->root = mount_new("tmpfs", options, sizeof(options) / sizeof(*options), 0);
    TRY("create the root of the jail", j->root);
    STEP("attach the root of the jail",
         move_mount(j->root, "", AT_FDCWD, "/a", MOVE_MOUNT_F_EMPTY_PATH));
    for (size_t i = 0; i < sizeof(links) / sizeof(*links); i++) {
        char to[16];
        snprintf(to, sizeof(to), "usr/%s", links[i]);
        STEP("create a link of the jail", symlinkat(to, j->root, links[i]));
    }
    jail_attach(j, j->usr, "usr");
    jail_attach(j, j->proc, "proc");
    jail_attach(j, j->dev, "dev");
    jail_attach(j, j->tree, "tree");
    for (size_t i = 0; i < j->part_count; i++)
        TRY("attach a directory of the machine in the jail",
            mount_attach(j->parts[i].mount, j->tree, j->parts[i].path));
    TRY("protect the root of the jail", mount_shelve(j->root));
    STEP("enter the jail", fchdir(j->root));
    STEP("enter the jail", chroot("."));
}

/* ---- the two programs ---- */

static void jail_drop_capabilities(const struct jail *j, const unsigned *kept, size_t count) {
    uint64_t keep = 0;
    for (size_t i = 0; i < count; i++)
        keep |= 1ull << kept[i];
    for (unsigned cap = 0; cap <= 63; cap++)
        if (!(keep & 1ull << cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* this kernel has no more capabilities */
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{(uint32_t)keep, (uint32_t)keep, 0},
                                             {(uint32_t)(keep >> 32), (uint32_t)(keep >> 32), 0}};
    STEP("drop capabilities", (int)syscall(SYS_capset, &header, data));
}

/* Moves descriptors to the consecutive numbers from 3 on, and closes all others at exec. */
static void jail_arrange(const struct jail *j, const int *fds, int count) {
    int high[FDS_MAX];
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            STEP("arrange descriptors", high[i] = fcntl(fds[i], F_DUPFD_CLOEXEC, HIGH_FD));
    int report = fcntl(j->launch->report, F_DUPFD_CLOEXEC, HIGH_FD);
    STEP("arrange descriptors", report);
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            STEP("arrange descriptors", dup3(high[i], 3 + i, O_CLOEXEC));
    close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
    for (int i = 0; i < count; i++)
        if (fds[i] >= 0)
            fcntl(3 + i, F_SETFD, 0);
}

_Static_assert(STATE_FD == 11, "its number is in VM_LAUNCH_CLONE");
_Static_assert((int)KEPT_FD + 1 == (int)VM_LAUNCH_MONITOR,
               "the spawner finds the monitor by this number");

struct args {
    char text[ARGS_MAX][ARG_SIZE];
    char *v[ARGS_MAX + 1];
    size_t count;
};

static void args_add(struct args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void args_add(struct args *a, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(a->text[a->count], ARG_SIZE, fmt, ap);
    va_end(ap);
    a->v[a->count] = a->text[a->count];
    a->count++;
}

static void args_add_words(struct args *a, const char *const *words, size_t count) {
    for (size_t i = 0; i < count; i++)
        args_add(a, "%s", words[i]);
}

/* Its connections, and the memory of the guest. */
static void jail_list_own(const struct vm_launch *l, struct args *a) {
    args_add(a, "-chardev");
    args_add(a, "socket,id=port,fd=%d,server=on,wait=off", PORT_FD);
    args_add(a, "-chardev");
    args_add(a, "socket,id=files,fd=%d", FILES_FD);
    args_add(a, "-chardev");
    args_add(a, "socket,id=word,fd=%d", WORD_FD);
    args_add(a, "-chardev");
    args_add(a, "socket,id=qmp,fd=%d", QMP_FD);
    args_add(a, "-chardev");
    args_add(a, "socket,id=serial,fd=%d", SERIAL_FD);
    args_add(a, "-object");
    args_add(a, "memory-backend-file,id=mem,mem-path=/proc/self/fd/%d,share=%s,size=%" PRIu64,
             RAM_FD, l->is_clone ? "off" : "on", l->mem_bytes);
    if (l->state >= 0) {
        args_add(a, "-incoming");
        args_add(a, "defer");
    }
}

/* What saved memory can be loaded into. */
static const char *const devices[] = {
    "-machine", QEMU_MACHINE,
    "-global",  "virtio-mmio.force-legacy=false",
    "-cpu",     "max",
    "-serial",  "chardev:serial",
    "-device",  "virtio-serial-device",
    "-device",  ("virtserialport,chardev=port,name=" VM_PORT),
    "-device",  ("virtserialport,chardev=files,name=" VM_FILES_PORT),
    "-device",  ("virtserialport,chardev=word,name=" VM_WAKE_PORT),
    "-device",  "virtio-rng-device",
};

static const char net_device[] = "virtio-net-device,netdev=net,mac=" VM_MAC;

void vm_launch_hash_devices(struct sha256 *to) {
    for (size_t i = 0; i < sizeof(devices) / sizeof(*devices); i++)
        sha256_add(to, devices[i], strlen(devices[i]) + 1);
    sha256_add(to, net_device, sizeof(net_device));
}

static void jail_list_qemu(const struct jail *j, struct args *a) {
    static const char *const fixed[] = {
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        "-monitor",
        "none",
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-mon",
        "chardev=qmp,mode=control",
    };
    const struct vm_launch *l = j->launch;
    args_add(a, VM_QEMU);
    jail_list_own(l, a);
    args_add(a, "-name");
    args_add(a, "%s", l->name);
    args_add(a, "-m");
    args_add(a, "size=%" PRIu64 "k", l->mem_bytes >> 10);
    args_add(a, "-smp");
    args_add(a, "%u", l->cpus);
    args_add(a, "-kernel");
    args_add(a, "/proc/self/fd/%d", KERNEL_FD);
    args_add(a, "-initrd");
    args_add(a, "/proc/self/fd/%d", INITRD_FD);
    args_add(a, "-append");
    /* They are for the processor that runs the guest's code. Translated, they only cost time. */
    args_add(a, "%s%s", l->line, l->has_kvm ? "" : " mitigations=off");
    args_add_words(a, fixed, sizeof(fixed) / sizeof(*fixed));
    args_add_words(a, devices, sizeof(devices) / sizeof(*devices));
    args_add(a, "-accel");
    /* The code cache is most of what QEMU needs besides the memory of the guest. */
    args_add(a, "%s", l->has_kvm ? VM_ACCEL_KVM : VM_ACCEL_TCG ",tb-size=64");
    if (l->tap < 0)
        return;
    args_add(a, "-netdev");
    args_add(a, "tap,id=net,fd=%d", VM_LAUNCH_TAP);
    args_add(a, "-device");
    args_add(a, "%s", net_device);
}

/* A file with the library that the QEMU of a clone loads; -1: of another vm, which loads none. */
static int jail_open_library(const struct jail *j) {
    static const uint8_t library[] = {
#include "spawn/qemu_memory.inc"
    };
    if (!j->launch->is_clone)
        return -1;
    int fd = memfd_create("qemu-memory", MFD_CLOEXEC);
    STEP("create the library of QEMU", fd);
    TRY("create the library of QEMU", write_all(fd, library, sizeof(library)));
    return fd;
}

static void jail_standard_streams(const struct jail *j) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    STEP("open /dev/null", null);
    STEP("open /dev/null", dup2(null, 0));
    STEP("open /dev/null", dup2(null, 1));
    STEP("arrange descriptors", dup2(j->launch->console, 2));
}

/*
 * When the server of the files ends, the other end of `life` is closed, and the kernel kills QEMU.
 * A parent-death signal would not be delivered, because QEMU is another user.
 */
static void jail_die_with_server(const struct jail *j) {
    close(j->life[1]);
    STEP("tie QEMU to the server of its files", dup2(j->life[0], 0));
    STEP("tie QEMU to the server of its files", fcntl(0, F_SETSIG, SIGKILL));
    STEP("tie QEMU to the server of its files", fcntl(0, F_SETOWN, getpid()));
    STEP("tie QEMU to the server of its files", fcntl(0, F_SETFL, O_ASYNC | O_NONBLOCK));
}

/* QEMU touches no file but the two that it gets, so it runs as a user without any. */
static void jail_be_nobody(const struct jail *j) {
    STEP("change to the user of QEMU", (int)syscall(SYS_setresgid, NOBODY, NOBODY, NOBODY));
    jail_drop_capabilities(j, (const unsigned[]){CAP_SETUID}, 1);
    STEP("change to the user of QEMU", (int)syscall(SYS_setresuid, NOBODY, NOBODY, NOBODY));
}

static void __attribute__((noreturn)) jail_run_qemu(const struct jail *j) {
    static struct args a;
    const struct vm_launch *l = j->launch;
    char preload[64];
    int library = jail_open_library(j);
    const int fds[FDS_MAX] = {l->kernel, l->initrd,    l->port,   j->files[0], l->tap,
                              l->ram,    l->word[1],   l->qmp[1], l->state,    l->word[0],
                              l->qmp[0], j->serial[0], library};
    char *const env[] = {l->is_clone ? preload : NULL, NULL};
    _Static_assert(FILES_FD + 1 == VM_LAUNCH_TAP, "the tap comes after the files");
    jail_list_qemu(j, &a);
    jail_be_nobody(j);
    jail_die_with_server(j);
    jail_arrange(j, fds, FDS_MAX);
    snprintf(preload, sizeof(preload), "LD_PRELOAD=/proc/self/fd/%d", LIBRARY_FD);
    execve(a.v[0], a.v, env);
    jail_fail(j, a.v[0], errno);
}

/* This program once more, with these descriptors from 3 on; -1: this number is closed. */
static void __attribute__((noreturn)) jail_run_own(const struct jail *j, const char *const *words,
                                                   size_t count, const int *fds, int fd_count) {
    static struct args a;
    char *const env[] = {NULL};
    args_add_words(&a, words, count);
    int program = fcntl(j->program, F_DUPFD_CLOEXEC, HIGH_FD);
    STEP("arrange descriptors", program);
    jail_arrange(j, fds, fd_count);
    syscall(SYS_execveat, program, "", a.v, env, AT_EMPTY_PATH);
    jail_fail(j, words[1], errno);
}

/* Keeps the serial console: spawn/vm/serial.h. It ends with QEMU. */
static void __attribute__((noreturn)) jail_run_serial(const struct jail *j) {
    static const char *const words[] = {"carrel-serial", "--serve-serial", "3", "4"};
    _Static_assert(RELAY_FD == 3, "its number is in the arguments");
    jail_be_nobody(j);
    jail_run_own(j, words, sizeof(words) / sizeof(*words),
                 (const int[]){j->serial[1], j->launch->serial}, 2);
}

/* Serves the files of the machine to the guest: spawn/fuse/server.h. */
static void __attribute__((noreturn)) jail_run_server(const struct jail *j) {
    static const unsigned kept[] = {CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,     CAP_FSETID,
                                    CAP_SETGID, CAP_SETUID,       CAP_SYS_CHROOT, CAP_SETFCAP};
    static const char *const words[] = {"carrel-files", "--serve-files", "/tree", "3", "5", "7"};
    const int fds[] = {j->files[1], j->life[1], j->control[0], j->control[1], j->launch->table};
    _Static_assert(SERVER_FD == 3 && CONTROL_FD == 5 && TABLE_FD == 7, "they are in the arguments");
    _Static_assert((int)KEPT_CONTROL_FD == (int)VM_LAUNCH_CONTROL,
                   "the spawner finds it by this number");
    jail_drop_capabilities(j, kept, sizeof(kept) / sizeof(*kept));
    jail_run_own(j, words, sizeof(words) / sizeof(*words) - (j->launch->table < 0), fds,
                 sizeof(fds) / sizeof(*fds));
}

static void jail_limit(void) {
    struct rlimit core = {0, 0}, files;
    setrlimit(RLIMIT_CORE, &core);
    if (getrlimit(RLIMIT_NOFILE, &files) < 0)
        return;
    files.rlim_cur = files.rlim_max < OPEN_FILES ? files.rlim_max : OPEN_FILES;
    files.rlim_max = files.rlim_cur;
    setrlimit(RLIMIT_NOFILE, &files);
}

static void __attribute__((noreturn)) jail_start(struct jail *j) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    jail_limit();
    jail_standard_streams(j);
    STEP("connect QEMU to its files", socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, j->files));
    STEP("connect the serial console",
         socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, j->serial));
    STEP("forbid new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    TRY("load the seccomp filter", filter_load(&j->s->filter));
    pid_t pid = fork();
    STEP("start the serial console", pid);
    if (pid == 0)
        jail_run_serial(j);
    STEP("tie QEMU to the server of its files", pipe2(j->life, O_CLOEXEC));
    STEP("open the control socket of the server",
         socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, j->control));
    pid = fork();
    STEP("start QEMU", pid);
    if (pid == 0)
        jail_run_qemu(j);
    jail_run_server(j);
}

bool vm_launch_has_kvm(const struct spawner *s) {
    struct stat st;
    return s->maker.has_nodes && fstatat(s->host, "dev/kvm", &st, 0) == 0 && S_ISCHR(st.st_mode) &&
           st.st_rdev == KVM_NUMBER;
}

void vm_launch_main(const struct spawner *s, const struct box *box, const struct vm_launch *l) {
    static struct jail jail;
    struct jail *j = &jail;
    *j = (struct jail){.s = s, .launch = l};
    prctl(PR_SET_DUMPABLE, 0);
    for (size_t i = 0; i < sizeof(l->cgroup) / sizeof(*l->cgroup); i++)
        if (l->cgroup[i] >= 0)
            STEP("join the cgroup of the machine", (int)write(l->cgroup[i], "0", 1));
    if (l->has_kvm)
        jail_make_dev(j);
    jail_collect(j, box);
    jail_leave(j);
    jail_build(j);
    /*
     * The first child is in the process namespace of the machine. Its child belongs to pid 1 there
     * once it has ended.
     */
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        STEP("start QEMU", pid);
        if (pid > 0)
            _exit(0);
    }
    jail_start(j);
}
