#include "spawn/make/child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/err.h"
#include "base/fdio.h"
#include "base/image_id.h"
#include "base/limits.h"
#include "base/wire/msg.h"
#include "spawn/make/filter.h"
#include "spawn/make/mounts.h"
#include "spawn/make/userns.h"
#include "spawn/weaken.h"

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80 /* from linux/sched.h */
#endif

#define PIDFD_TIME_FOR_CHILDREN _IO(0xff, 8) /* from linux/pidfd.h */

#define SECOND_NS 1000000000

/* Capabilities of root in a box, inside its own user namespace (ARCHITECTURE section 6). */
static const unsigned kept[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_KILL,    CAP_SETGID,
    CAP_SETUID, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SETFCAP,
};

/*
 * Resource limits of a box. They are only lowered: raising one requires a capability that the
 * spawner may lack.
 */
static const struct {
    int resource;
    rlim_t soft, hard;
} rlimits[] = {
    {RLIMIT_CORE, 0, 0},
    {RLIMIT_NOFILE, 1024, 1 << 16},
    {RLIMIT_MEMLOCK, 64 << 20, 64 << 20},
    {RLIMIT_MSGQUEUE, 819200, 819200},
    {RLIMIT_SIGPENDING, 4096, 4096},
    {RLIMIT_RTPRIO, 0, 0},
    {RLIMIT_NICE, 0, 0},
};

/*
 * The descriptors that the guest program receives are consecutive from FIRST_FD; all others are
 * closed.
 */
enum { FIRST_FD = 3, FD_MAX = 48, HIGH_FD = 64 };

/* Files of /proc that show limits and use of the box: guest/covers.h. */
enum { COVER_STAT, COVER_CPUINFO, COVER_LOADAVG, COVER_UPTIME, COVER_MEMINFO, COVERS };

static const char *const cover_names[COVERS] = {"stat", "cpuinfo", "loadavg", "uptime", "meminfo"};

/* Input of the set-up: the parts of the berth, and the plan once it has arrived. */
struct setup {
    const struct child *c;
    /* this process's copy of the struct, because the descriptors in it get new numbers */
    struct rootfs *root;
    struct plan plan;
    struct fd_message fds;
    int proc;
    int covers[COVERS]; /* files that the guest writes; -1: this file of /proc is the host's */
    int processors;     /* the host's /proc/cpuinfo; -1: there are no covers */
};

static void child_refuse(const struct setup *s, enum err_code code, const char *text, int error) {
    uint8_t frame[512];
    if (s->fds.nfds <= ORDER_CONTROL)
        /*
         * no plan was received, so no creator waits for an error: the spawner only sees the process
         * end
         */
        _exit(1);
    struct msg_error m = {
        .code = code, .number = (uint32_t)error, .text = {text, (uint32_t)strlen(text)}};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_ERROR}, &m);
    if (n)
        (void)!write(s->fds.fds[ORDER_CONTROL], frame, n);
    _exit(1);
}

static void child_give_up(const struct setup *s, const char *step, int error) {
    char text[256];
    snprintf(text, sizeof(text), "cannot start machine '%s': cannot %s: %s", s->plan.id, step,
             strerror(error));
    child_refuse(s, ERR_INTERNAL, text, error);
}

/* Runs one step of the set-up. A failed step ends the process; there is nothing to undo. */
#define STEP(name, call)                   \
    do {                                   \
        if ((call) < 0)                    \
            child_give_up(s, name, errno); \
    } while (0)

/* Like STEP(), for functions that return -errno. */
#define TRY(name, call)                      \
    do {                                     \
        int tried_ = (call);                 \
        if (tried_ < 0)                      \
            child_give_up(s, name, -tried_); \
    } while (0)

/* Prints the offset of a clock that is to show `shown` now: seconds, rounded down, and the rest. */
static int print_offset(const char *clock, int64_t now_ns, int64_t shown_ns, char *ret,
                        size_t size) {
    int64_t by = shown_ns - now_ns, seconds = by / SECOND_NS, rest = by % SECOND_NS;
    if (rest < 0) {
        seconds--;
        rest += SECOND_NS;
    }
    return snprintf(ret, size, "%s %" PRId64 " %" PRId64 "\n", clock, seconds, rest);
}

static int64_t clock_now_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

/*
 * Opens the time namespace of unshare(). The pidfd leads there without entries in /proc, which the
 * death of the process would have to remove. Kernels before 6.11 cannot do that.
 */
static int open_new_time(const struct setup *s) {
    int self DEFER_CLOSE = pidfd_open(getpid(), 0);
    int space = self < 0 ? -1 : ioctl(self, PIDFD_TIME_FOR_CHILDREN, 0);
    return space >= 0 ? space : openat(s->proc, "self/ns/time_for_children", O_RDONLY | O_CLOEXEC);
}

/*
 * Enters a time namespace whose clocks began with this process, so that the uptime and the start
 * times of processes count from the start of pid 1. Before that no process of the box exists: a
 * start time would be negative. If the kernel refuses, the box shows the host's uptime.
 */
static void start_clocks(const struct setup *s) {
    char text[128];
    const int64_t tick = SECOND_NS / sysconf(_SC_CLK_TCK);
    int64_t began = s->c->began_ns / tick * tick; /* the unit of start times */
    if (unshare(CLONE_NEWTIME) < 0)
        return;
    /* Without root, a process that is not dumpable may not open this file. */
    bool is_dumpable = prctl(PR_GET_DUMPABLE) == 1;
    prctl(PR_SET_DUMPABLE, 1);
    int offsets DEFER_CLOSE = openat(s->proc, "self/timens_offsets", O_WRONLY | O_CLOEXEC);
    prctl(PR_SET_DUMPABLE, is_dumpable);
    int space DEFER_CLOSE = open_new_time(s);
    int64_t boot = clock_now_ns(CLOCK_BOOTTIME), age = boot - began;
    int n = print_offset("boottime", boot, age, text, sizeof(text));
    n += print_offset("monotonic", clock_now_ns(CLOCK_MONOTONIC), age, text + n,
                      sizeof(text) - (size_t)n);
    if (offsets >= 0 && space >= 0 && write(offsets, text, (size_t)n) == n)
        setns(space, CLONE_NEWTIME);
}

/*
 * Runs before the box has a plan, still with rights on the host: enters the network namespace and
 * the cgroup, and mounts proc for the new pid namespace. Later no other mount of proc is visible,
 * and then the kernel refuses to mount one.
 */
static void child_settle(struct setup *s) {
    const struct child *c = s->c;
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    prctl(PR_SET_NAME, "carrel-berth");
    weaken_plant();
    if (!weakened("netns"))
        STEP("enter the network namespace of the machine", setns(c->netns, CLONE_NEWNET));
    if (c->cgroup->guest_procs >= 0)
        STEP("join the cgroup of the machine", (int)write(c->cgroup->guest_procs, "0", 1));
    s->proc = mount_new("proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    TRY("mount /proc", s->proc);
    start_clocks(s);
}

/*
 * Replaces the overlay mounts of the berth (the prepared box) by those that came with the plan, and
 * keeps the mounts of their disks.
 */
static void take_stack(struct setup *s) {
    struct rootfs *root = s->root;
    const int *fds = s->fds.fds + ORDER_GRANTS + s->plan.grant_count;
    size_t n = s->fds.nfds - ORDER_GRANTS - s->plan.grant_count;
    if (n == 0)
        return;
    size_t own = image_id_valid(s->plan.image) ? 1 : 2; /* an imported image contains /usr */
    if (n < own || n > own + LAYERS_DISKS_MAX)
        _exit(1);
    root->root = fds[0];
    root->usr = own == 2 ? fds[1] : -1;
    for (size_t i = own; i < n; i++)
        root->held[i - own + 1] = fds[i];
}

/*
 * Receives the plan of the machine with the descriptors of its channels and grants. If the spawner
 * is gone, the socket is closed and the process exits.
 */
static void take_orders(struct setup *s) {
    int r = recv_fds(s->c->orders, &s->plan, sizeof(s->plan), &s->fds);
    if (r < 0 || s->fds.len < offsetof(struct plan, grants) ||
        s->fds.nfds < ORDER_GRANTS + s->plan.grant_count)
        _exit(1);
    /* Descriptors 0 to 2 get higher numbers, so that null_stdio() does not close them later. */
    for (size_t i = 0; i < s->fds.nfds; i++)
        if (s->fds.fds[i] <= STDERR_FILENO)
            STEP("duplicate descriptors",
                 s->fds.fds[i] = fcntl(s->fds.fds[i], F_DUPFD_CLOEXEC, FIRST_FD));
    take_stack(s);
    const char *name = s->plan.hostname[0] ? s->plan.hostname : "carrel";
    STEP("set the host name", sethostname(name, strlen(name)));
}

/*
 * Joins the prepared user namespace, which gives up all rights on the host. The mount namespace
 * starts as a copy of the anchor: one empty, read-only directory.
 */
static void child_leave(const struct setup *s) {
    STEP("enter the empty mount namespace (anchor)", setns(s->c->anchor_ns, CLONE_NEWNS));
    STEP("enter the user namespace of the machine", setns(s->c->root->userns, CLONE_NEWUSER));
    STEP("create the mount namespace of the machine", unshare(CLONE_NEWNS | CLONE_NEWCGROUP));
    STEP("become root of the machine", (int)syscall(SYS_setresgid, 0, 0, 0));
    STEP("become root of the machine", (int)syscall(SYS_setgroups, 0, NULL));
    STEP("become root of the machine", (int)syscall(SYS_setresuid, 0, 0, 0));
}

/*
 * Hides files in /proc by mounting empty files of the anchor over them; the anchor is still the
 * root directory here. mount() is one call, where the new mount API needs five. /proc was just
 * mounted, so these paths contain no links.
 */
static void hide(const struct setup *s) {
    for (const struct mask *mask = s->c->masks; mask->name; mask++) {
        char path[64];
        snprintf(path, sizeof(path), "/a/proc/%s", mask->name);
        STEP("hide a part of /proc",
             mount(mask->is_dir ? "/dir" : "/file", path, NULL, MS_BIND, NULL));
    }
}

/* Creates the file of a cover on the tmpfs at /b. Its owner is root of the box, like the guest. */
static int make_cover(const struct setup *s, const char *name) {
    char path[32];
    snprintf(path, sizeof(path), "/b/%s", name);
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    STEP("create a file that covers a part of /proc", fd);
    STEP("create a file that covers a part of /proc", fchmod(fd, 0444));
    return fd;
}

static bool can_lease(int fd) {
    return fcntl(fd, F_SETLEASE, F_WRLCK) == 0 && fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

static void mount_cover(const struct setup *s, const char *name) {
    const unsigned long flags = MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC;
    char from[32], path[32];
    snprintf(from, sizeof(from), "/b/%s", name);
    snprintf(path, sizeof(path), "/a/proc/%s", name);
    STEP("cover a part of /proc", mount(from, path, NULL, MS_BIND, NULL));
    STEP("cover a part of /proc", mount(NULL, path, NULL, MS_REMOUNT | flags, NULL));
}

/*
 * Mounts files over those of /proc that show limits and use, read-only; the guest keeps descriptors
 * to write them (guest/covers.h). The tmpfs is made at /b, which is unused until the root is first
 * switched. Where the host gives no memory limit, /proc/meminfo stays the host's. False: this host
 * has no leases.
 */
static bool cover_proc(struct setup *s) {
    STEP("mount a tmpfs for files that cover parts of /proc",
         mount("none", "/b", "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC,
               "size=2m,nr_inodes=16,mode=0555"));
    int processors = open("/a/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    STEP("open /proc/cpuinfo", processors);
    s->covers[COVER_STAT] = make_cover(s, cover_names[COVER_STAT]);
    bool leases = can_lease(s->covers[COVER_STAT]);
    for (int i = 0; i < COVERS && leases; i++) {
        if (i == COVER_MEMINFO && s->c->cgroup->memory[0] < 0)
            continue;
        if (s->covers[i] < 0)
            s->covers[i] = make_cover(s, cover_names[i]);
        mount_cover(s, cover_names[i]);
    }
    STEP("detach the tmpfs of files that cover parts of /proc", umount2("/b", MNT_DETACH));
    s->processors = leases ? processors : -1;
    return leases;
}

/* Replaces files in /proc that programs need but whose content would describe the host. */
static void replace(struct setup *s) {
    const struct rootfs *r = s->c->root;
    if (!cover_proc(s))
        STEP("replace /proc/stat", mount("/stat", "/a/proc/stat", NULL, MS_BIND, NULL));
    int id = mount_clone(r->meta, "boot_id");
    TRY("clone the file with the machine's boot id", id);
    TRY("mount the machine's boot id in /proc",
        mount_attach(id, r->root, "proc/sys/kernel/random/boot_id"));
    close(id);
}

/*
 * Returns a mount for /dev/shm, of half the size of the machine's memory: a directory on the
 * filesystem of the disk if the disk is not larger, else a tmpfs of its own.
 */
static int open_shm(const struct setup *s) {
    uint64_t half = s->plan.mem_bytes / 2;
    uint64_t disk = s->plan.disk_bytes ? s->plan.disk_bytes : LIMIT_DISK;
    char size[24];
    if (s->c->root->shm >= 0 && disk <= half)
        return s->c->root->shm;
    snprintf(size, sizeof(size), "%" PRIu64, half);
    const struct mount_option shm[] = {{"size", size}, {"mode", "1777"}, {"nr_inodes", "65536"}};
    return mount_new("tmpfs", shm, 3, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

static void mount_dev(const struct setup *s, int root) {
    /* The host has only a few thousand terminals, so their number is limited in each box. */
    const struct mount_option pts[] = {{"newinstance", NULL},
                                       {"ptmxmode", "0666"},
                                       {"mode", "0620"},
                                       {"gid", "5"},
                                       {"max", "256"}};
    TRY("attach /dev", mount_attach(s->c->dev, root, "dev"));
    int fd = mount_new("devpts", pts, 5, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    TRY("mount /dev/pts", fd);
    TRY("attach /dev/pts", mount_attach(fd, root, "dev/pts"));
    close(fd);
    fd = open_shm(s);
    TRY("mount /dev/shm", fd);
    TRY("attach /dev/shm", mount_attach(fd, root, "dev/shm"));
    close(fd);
}

/*
 * Creates a mount point, if it is missing. Inside another grant root of the box may have no id on
 * the disk (see granted_lower() in rootfs.c), but `user` has one. Returns 0 or an errno.
 */
static int make_place(int root, const char *path) {
    if (mkdirat(root, path, 0755) == 0 || errno == EEXIST)
        return 0;
    if (errno != EOVERFLOW)
        return errno;
    setfsgid(ID_BOX_USER);
    setfsuid(ID_BOX_USER);
    int failed = mkdirat(root, path, 0755) < 0 ? errno : 0;
    setfsuid(0);
    setfsgid(0);
    return failed;
}

static void refuse_grant(const struct setup *s, const char *path, int made, int error) {
    char text[400];
    snprintf(text, sizeof(text),
             "cannot mount the granted directory at '%.200s' in the machine: %s", path,
             error == ENOENT && made ? strerror(made)
             : error == ELOOP        ? "a part of this path is a symbolic link"
             : error == ENOTDIR || error == EINVAL
                 ? "this path, or a part of it, is not a directory"
                 : strerror(error));
    size_t n = strlen(text);
    snprintf(text + n, sizeof(text) - n, ": choose another path: --dir HOST:/GUEST");
    child_refuse(s, ERR_INVALID, text, error);
}

/*
 * Creates the mount point of a granted directory and its parents below the new root, without
 * following links, then mounts the directory there.
 */
static void mount_grant(const struct setup *s, int root, unsigned i) {
    char path[PLAN_PATH_SIZE];
    int made = 0;
    snprintf(path, sizeof(path), "%s", s->plan.grants[i].path);
    for (char *slash = path + 1; !made && (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        made = make_place(root, path + 1);
        *slash = '/';
    }
    if (!made)
        made = make_place(root, path + 1);
    int r = mount_attach(s->fds.fds[ORDER_GRANTS + i], root, path + 1);
    if (r < 0)
        refuse_grant(s, path, made, -r);
}

/* A directory is mounted before those inside it, which it would hide. Parents have shorter paths.
 */
static void mount_grants(const struct setup *s, int root) {
    unsigned order[PLAN_MAX_GRANTS];
    for (unsigned i = 0; i < s->plan.grant_count; i++) {
        size_t n = strlen(s->plan.grants[i].path);
        unsigned at = i;
        for (; at > 0 && strlen(s->plan.grants[order[at - 1]].path) > n; at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
    for (unsigned i = 0; i < s->plan.grant_count; i++)
        mount_grant(s, root, order[i]);
}

/*
 * Mounts the disks outside the box's root, so that the spawner can clone them later: see
 * hold_disk() in rootfs.c.
 */
static void hold_disks(const struct setup *s) {
    for (int i = 0; i < DISKS; i++) {
        char path[16];
        snprintf(path, sizeof(path), "/held/%d", i);
        if (s->c->root->held[i] >= 0)
            STEP("keep a mount of a disk",
                 move_mount(s->c->root->held[i], "", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH));
    }
    if (s->c->root->held_side >= 0)
        STEP("keep a mount of machine.json",
             move_mount(s->c->root->held_side, "", AT_FDCWD, "/held/m", MOVE_MOUNT_F_EMPTY_PATH));
}

/* The mounts that programs of a Linux userland need. A cell machine has only its own files. */
static void build_userland(struct setup *s) {
    const struct rootfs *r = s->c->root;
    if (r->usr >= 0)
        TRY("attach /usr", mount_attach(r->usr, r->root, "usr"));
    TRY("attach /proc", mount_attach(s->proc, r->root, "proc"));
    TRY("attach /run/carrel", mount_attach(r->meta, r->root, "run/carrel"));
    if (!weakened("masks")) {
        hide(s);
        replace(s);
    }
    mount_dev(s, r->root);
}

static void build_root(struct setup *s) {
    const struct rootfs *r = s->c->root;
    STEP("attach the root filesystem",
         move_mount(r->root, "", AT_FDCWD, "/a", MOVE_MOUNT_F_EMPTY_PATH));
    if (!s->plan.cell)
        build_userland(s);
    hold_disks(s);
    umask(022);
    mount_grants(s, r->root);
    STEP("enter the root filesystem", fchdir(r->root));
    STEP("enter the root filesystem", chroot("."));
}

static void drop_capabilities(const struct setup *s) {
    uint64_t keep = 0;
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        keep |= 1ull << kept[i];
    for (unsigned cap = 0; cap <= 63; cap++)
        if (!(keep & 1ull << cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* this kernel has no more capabilities */
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{(uint32_t)keep, (uint32_t)keep, 0},
                                             {(uint32_t)(keep >> 32), (uint32_t)(keep >> 32), 0}};
    STEP("drop capabilities", (int)syscall(SYS_capset, &header, data));
}

static void lower_limits(void) {
    for (size_t i = 0; i < sizeof(rlimits) / sizeof(*rlimits); i++) {
        struct rlimit now;
        if (getrlimit(rlimits[i].resource, &now) < 0)
            continue;
        if (now.rlim_max > rlimits[i].hard)
            now.rlim_max = rlimits[i].hard;
        if (now.rlim_cur > rlimits[i].soft)
            now.rlim_cur = rlimits[i].soft;
        setrlimit(rlimits[i].resource, &now);
    }
}

struct handover {
    int from[FD_MAX];
    unsigned count;
    char args[24][160];
    char *argv[26];
    unsigned argc;
};

static unsigned hand(struct handover *h, int fd) {
    h->from[h->count] = fd;
    return FIRST_FD + h->count++;
}

static void arg(struct handover *h, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void arg(struct handover *h, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(h->args[h->argc], sizeof(h->args[0]), fmt, ap);
    va_end(ap);
    h->argv[h->argc] = h->args[h->argc];
    h->argc++;
}

static void list_cgroups(const struct cgroup_set *set, struct handover *h) {
    char list[48] = "";
    size_t n = 0;
    for (int i = 0; i < CGROUP_TASKS; i++)
        if (set->tasks[i] >= 0)
            n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%u", n ? "," : "",
                                  hand(h, set->tasks[i]));
    if (n)
        arg(h, "tasks=%s", list);
    for (unsigned i = 0; i < set->spare_count; i++) {
        const struct cgroup_spare *spare = &set->spares[i];
        unsigned procs = hand(h, spare->procs), freeze = hand(h, spare->freeze);
        if (spare->kill >= 0)
            arg(h, "cg=%u:%u:%u", procs, freeze, hand(h, spare->kill));
        else
            arg(h, "cg=%u:%u", procs, freeze);
    }
}

static void list_files(struct handover *h, const char *key, const int *files, int count) {
    char list[48] = "";
    size_t n = 0;
    for (int i = 0; i < count && files[i] >= 0; i++)
        n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%u", n ? "," : "", hand(h, files[i]));
    if (n)
        arg(h, "%s=%s", key, list);
}

static void list_covers(const struct setup *s, struct handover *h) {
    const struct cgroup_set *set = s->c->cgroup;
    if (s->processors < 0)
        return;
    for (int i = 0; i < COVERS; i++)
        if (s->covers[i] >= 0)
            arg(h, "cover=%s:%u", cover_names[i], hand(h, s->covers[i]));
    list_files(h, "proc", (const int[]){s->proc, s->processors}, 2);
    list_files(h, "memory", set->memory, CGROUP_MEMORY_FILES);
    list_files(h, "quota", &set->cpu[0], 1);
    list_files(h, "cpu", &set->cpu[1], 1);
}

static void list_arguments(const struct setup *s, struct handover *h) {
    arg(h, "carrel-guest");
    arg(h, "ctl=%u", hand(h, s->fds.fds[ORDER_CONTROL]));
    arg(h, "listen=%u", hand(h, s->fds.fds[ORDER_LISTENER]));
    arg(h, "admin=%u", hand(h, s->fds.fds[ORDER_ADMIN]));
    arg(h, "spawn=%u", hand(h, s->fds.fds[ORDER_SPAWNER]));
    if (s->c->root->lock >= 0)
        arg(h, "keep=%u", hand(h, s->c->root->lock));
    list_cgroups(s->c->cgroup, h);
    list_covers(s, h);
    if (s->plan.cell) {
        arg(h, "cell=%u", hand(h, s->c->worker));
        arg(h, "proc=%u", hand(h, s->proc));
    }
    arg(h, "deadline_ms=%" PRIu64, s->plan.deadline_ms);
    arg(h, "linger=%d", s->plan.linger ? 1 : 0);
    arg(h, "clean=1");
    h->argv[h->argc] = NULL;
}

/* Moves the needed descriptors above HIGH_FD and closes all others. */
static void keep_own(struct setup *s, struct child *c, struct rootfs *root,
                     struct cgroup_set *set) {
    int *own[FD_MAX] = {&c->anchor_ns,  &c->guest,        &c->dev,    &c->orders,  &root->lock,
                        &root->userns,  &root->root,      &root->usr, &root->meta, &root->shm,
                        &root->held[0], &root->held_side, &s->proc,   &c->worker};
    unsigned n = 14;
    int last = HIGH_FD;
    for (int i = 0; i < CGROUP_TASKS; i++)
        own[n++] = &set->tasks[i];
    for (int i = 0; i < CGROUP_MEMORY_FILES; i++)
        own[n++] = &set->memory[i];
    for (int i = 0; i < CGROUP_CPU_FILES; i++)
        own[n++] = &set->cpu[i];
    for (unsigned i = 0; i < set->spare_count; i++) {
        own[n++] = &set->spares[i].procs;
        own[n++] = &set->spares[i].freeze;
        own[n++] = &set->spares[i].kill;
    }
    for (unsigned i = 0; i < n; i++)
        if (*own[i] >= 0) {
            STEP("duplicate descriptors", *own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, HIGH_FD));
            last = *own[i] > last ? *own[i] : last;
        }
    close_range(3, HIGH_FD - 1, 0);
    if (!weakened("close_range"))
        close_range((unsigned)last + 1, ~0u, 0);
}

/*
 * Moves the descriptors for the guest to the consecutive numbers from FIRST_FD on. All of them have
 * higher numbers before, so dup3() overwrites none that is still needed.
 */
static void arrange(const struct setup *s, struct handover *h) {
    for (unsigned i = 0; i < h->count; i++)
        if (h->from[i] < HIGH_FD)
            STEP("arrange descriptors", h->from[i] = fcntl(h->from[i], F_DUPFD_CLOEXEC, HIGH_FD));
    for (unsigned i = 0; i < h->count; i++)
        STEP("arrange descriptors", dup3(h->from[i], (int)(FIRST_FD + i), 0));
    close_range(FIRST_FD + h->count, HIGH_FD - 1, 0);
}

/*
 * Replaces the standard streams, which were inherited from the spawner and lead to the host, by
 * /dev/null.
 */
static void null_stdio(const struct setup *s) {
    int null = s->plan.cell ? openat(s->c->dev, "null", O_RDWR | O_CLOEXEC)
                            : open("/dev/null", O_RDWR | O_CLOEXEC);
    STEP("open /dev/null", null);
    for (int fd = 0; fd < 3; fd++)
        STEP("open /dev/null", dup2(null, fd));
}

/* Waits until the spawner has recorded the box; exits if the spawner is gone. */
static void await_word(const struct setup *s) {
    char go;
    if (read(s->c->orders, &go, 1) != 1)
        _exit(1);
}

void child_main(const struct child *spawners) {
    /* Local copies, because the descriptors in them get new numbers. */
    struct rootfs root = *spawners->root;
    struct cgroup_set set = *spawners->cgroup;
    struct child c = *spawners;
    c.root = &root;
    c.cgroup = &set;
    static struct setup setup;
    static struct handover h;
    struct setup *s = &setup;
    s->c = &c;
    s->root = &root;
    s->processors = -1;
    for (int i = 0; i < COVERS; i++)
        s->covers[i] = -1;

    child_settle(s);
    keep_own(s, &c, &root, &set);
    take_orders(s);
    child_leave(s);
    build_root(s);
    null_stdio(s);
    lower_limits();
    list_arguments(s, &h);
    arrange(s, &h);
    /*
     * With CAP_SYS_ADMIN in the box's user namespace the filter needs no no_new_privs, which would
     * keep sudo and su from working. The filter allows what follows.
     */
    if (!weakened("seccomp"))
        TRY("load the seccomp filter", filter_load(c.filter));
    if (!weakened("capabilities"))
        drop_capabilities(s);
    await_word(s);
    char *const env[] = {NULL};
    syscall(SYS_execveat, c.guest, "", h.argv, env, AT_EMPTY_PATH);
    child_give_up(s, "run carrel-guest", errno);
    _exit(1);
}
