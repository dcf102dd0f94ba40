#include "spawn/child.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/err.h"
#include "base/msg.h"
#include "spawn/filter.h"
#include "spawn/mounts.h"
#include "spawn/weaken.h"

/* What root of a box may do, inside its own user namespace (ARCHITECTURE section 6). */
static const unsigned kept[] = {
    CAP_CHOWN,  CAP_DAC_OVERRIDE, CAP_FOWNER,           CAP_FSETID,     CAP_KILL,    CAP_SETGID,
    CAP_SETUID, CAP_SETPCAP,      CAP_NET_BIND_SERVICE, CAP_SYS_CHROOT, CAP_SETFCAP,
};

/* Limits are only ever lowered: raising one needs a capability the spawner may not have. */
static const struct {
    int resource;
    rlim_t limit;
} rlimits[] = {
    {RLIMIT_CORE, 0}, {RLIMIT_NOFILE, 1 << 16}, {RLIMIT_MEMLOCK, 64 << 20}, {RLIMIT_MSGQUEUE, 819200},
    {RLIMIT_SIGPENDING, 4096}, {RLIMIT_RTPRIO, 0}, {RLIMIT_NICE, 0},
};

static void give_up(const struct child *c, const char *step, int error) {
    uint8_t frame[512];
    char text[256];
    snprintf(text, sizeof(text), "start machine '%s': %s: %s", c->plan->id, step, strerror(error));
    struct msg_error m = {.code = ERR_INTERNAL, .number = (uint32_t)error,
                          .text = {text, (uint32_t)strlen(text)}};
    size_t n = msg_encode(frame, sizeof(frame), &(struct frame_head){.type = MSG_ERROR}, &m);
    if (n)
        (void)!write(c->control, frame, n);
    _exit(1);
}

/* Every step stops the set-up when it fails; there is nothing to undo, the process is all there is. */
#define STEP(name, call)                   \
    do {                                   \
        if ((call) < 0)                    \
            give_up(c, name, errno);       \
    } while (0)

/* For our own wrappers, which return -errno. */
#define TRY(name, call)                    \
    do {                                   \
        int tried_ = (call);               \
        if (tried_ < 0)                    \
            give_up(c, name, -tried_);     \
    } while (0)

/*
 * While still privileged on the host: the network namespace, the name, the cgroup, and proc for
 * our new pid namespace, which no box could mount once no other proc is in sight.
 */
static int before_leaving(const struct child *c) {
    if (!weakened("netns"))
        STEP("enter network namespace", setns(c->netns, CLONE_NEWNET));
    const char *name = c->plan->hostname[0] ? c->plan->hostname : "carrel";
    STEP("set host name", sethostname(name, strlen(name)));
    if (c->cgroup->guest_procs >= 0)
        STEP("join cgroup", (int)write(c->cgroup->guest_procs, "0", 1));
    int proc = mount_new("proc", NULL, 0, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
    TRY("mount proc", proc);
    return proc;
}

/*
 * The user namespace was made with its map; joining it leaves every power over the host behind.
 * The mount namespace starts as a copy of the anchor: one empty read-only directory.
 */
static void leave(const struct child *c) {
    STEP("enter anchor", setns(c->anchor_ns, CLONE_NEWNS));
    STEP("enter user namespace", setns(c->root->userns, CLONE_NEWUSER));
    STEP("new mount namespace", unshare(CLONE_NEWNS | CLONE_NEWCGROUP));
    STEP("become root of the box", (int)syscall(SYS_setresgid, 0, 0, 0));
    STEP("become root of the box", (int)syscall(SYS_setgroups, 0, NULL));
    STEP("become root of the box", (int)syscall(SYS_setresuid, 0, 0, 0));
}

/*
 * Covers come from the anchor, which is still the root here. The old mount call, because it is
 * one call where the new ones are five; proc is fresh, so these paths hold no links.
 */
static void hide(const struct child *c) {
    for (const struct mask *mask = c->masks; mask->name; mask++) {
        char path[64];
        snprintf(path, sizeof(path), "/a/proc/%s", mask->name);
        STEP("hide part of proc", mount(mask->is_dir ? "/dir" : "/file", path, NULL, MS_BIND, NULL));
    }
}

static void mount_dev(const struct child *c, int root) {
    char size[24];
    snprintf(size, sizeof(size), "%" PRIu64, c->shm_bytes);
    const struct mount_option pts[] = {
        {"newinstance", NULL}, {"ptmxmode", "0666"}, {"mode", "0620"}, {"gid", "5"}};
    const struct mount_option shm[] = {{"size", size}, {"mode", "1777"}, {"nr_inodes", "65536"}};
    TRY("attach /dev", mount_attach(c->dev, root, "dev"));
    int fd = mount_new("devpts", pts, 4, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
    TRY("mount /dev/pts", fd);
    TRY("attach /dev/pts", mount_attach(fd, root, "dev/pts"));
    close(fd);
    fd = mount_new("tmpfs", shm, 3, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
    TRY("mount /dev/shm", fd);
    TRY("attach /dev/shm", mount_attach(fd, root, "dev/shm"));
    close(fd);
}

/* mkdir -p below the new root, where no link is followed; then the mount on top of it. */
static void mount_grant(const struct child *c, int root, unsigned i) {
    char path[PLAN_PATH_SIZE];
    snprintf(path, sizeof(path), "%s", c->plan->grants[i].path);
    for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
        *slash = '\0';
        mkdirat(root, path + 1, 0755);
        *slash = '/';
    }
    mkdirat(root, path + 1, 0755);
    TRY("attach granted directory", mount_attach(c->grants[i], root, path + 1));
}

static void build_root(const struct child *c, int proc) {
    int root = c->root->root;
    STEP("attach root", move_mount(root, "", AT_FDCWD, "/a", MOVE_MOUNT_F_EMPTY_PATH));
    TRY("attach /usr", mount_attach(c->root->usr, root, "usr"));
    TRY("attach /proc", mount_attach(proc, root, "proc"));
    if (!weakened("masks"))
        hide(c);
    mount_dev(c, root);
    TRY("attach /run/carrel", mount_attach(c->root->meta, root, "run/carrel"));
    for (unsigned i = 0; i < c->plan->grant_count; i++)
        mount_grant(c, root, i);
    STEP("enter root", fchdir(root));
    STEP("enter root", chroot("."));
}

static void drop_capabilities(const struct child *c) {
    uint64_t keep = 0;
    for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++)
        keep |= 1ull << kept[i];
    for (unsigned cap = 0; cap <= 63; cap++)
        if (!(keep & 1ull << cap) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
            break; /* past the last one this kernel knows */
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {
        {(uint32_t)keep, (uint32_t)keep, 0}, {(uint32_t)(keep >> 32), (uint32_t)(keep >> 32), 0}};
    STEP("drop capabilities", (int)syscall(SYS_capset, &head, data));
}

static void lower_limits(void) {
    for (size_t i = 0; i < sizeof(rlimits) / sizeof(*rlimits); i++) {
        struct rlimit now;
        if (getrlimit(rlimits[i].resource, &now) < 0 || now.rlim_max <= rlimits[i].limit)
            continue;
        now.rlim_max = rlimits[i].limit;
        if (now.rlim_cur > now.rlim_max)
            now.rlim_cur = now.rlim_max;
        setrlimit(rlimits[i].resource, &now);
    }
}

/* The guest's descriptors, in one run from 3 on; all others are closed. */
enum { FIRST_FD = 3, FD_MAX = 48 };

struct handover {
    int from[FD_MAX];
    unsigned count;
    char args[16][160];
    char *argv[18];
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

static void list_arguments(const struct child *c, struct handover *h) {
    arg(h, "carrel-guest");
    arg(h, "ctl=%u", hand(h, c->control));
    arg(h, "listen=%u", hand(h, c->listener));
    arg(h, "spawn=%u", hand(h, c->spawner));
    if (c->root->lock >= 0)
        arg(h, "keep=%u", hand(h, c->root->lock));
    if (c->cgroup->tasks[0] >= 0 || c->cgroup->tasks[1] >= 0 || c->cgroup->tasks[2] >= 0) {
        char list[48] = "";
        size_t n = 0;
        for (int i = 0; i < CGROUP_TASKS; i++)
            if (c->cgroup->tasks[i] >= 0)
                n += (size_t)snprintf(list + n, sizeof(list) - n, "%s%u", n ? "," : "",
                                      hand(h, c->cgroup->tasks[i]));
        arg(h, "tasks=%s", list);
    }
    for (unsigned i = 0; i < c->cgroup->spare_count; i++) {
        const struct cgroup_spare *s = &c->cgroup->spares[i];
        unsigned procs = hand(h, s->procs), freeze = hand(h, s->freeze);
        if (s->kill >= 0)
            arg(h, "cg=%u:%u:%u", procs, freeze, hand(h, s->kill));
        else
            arg(h, "cg=%u:%u", procs, freeze);
    }
    arg(h, "deadline_ms=%" PRIu64, c->plan->deadline_ms);
    arg(h, "linger=%d", c->plan->linger ? 1 : 0);
    h->argv[h->argc] = NULL;
}

/*
 * Move every descriptor above the target range first, so that none is overwritten before its
 * turn; the guest's own file and the go pipe wait above them.
 */
static int arrange(const struct child *c, struct handover *h, int *ret_go) {
    for (unsigned i = 0; i < h->count; i++)
        STEP("arrange descriptors", h->from[i] = fcntl(h->from[i], F_DUPFD_CLOEXEC, 256));
    int guest = fcntl(c->guest, F_DUPFD_CLOEXEC, 256);
    *ret_go = fcntl(c->go, F_DUPFD_CLOEXEC, 256);
    STEP("arrange descriptors", guest);
    STEP("arrange descriptors", *ret_go);
    for (unsigned i = 0; i < h->count; i++)
        STEP("arrange descriptors", dup3(h->from[i], (int)(FIRST_FD + i), 0));
    close_range(FIRST_FD + h->count, 255, 0);
    if (!weakened("close_range"))
        close_range(256, ~0u, CLOSE_RANGE_CLOEXEC);
    return guest;
}

/* The spawner's own standard streams lead to the host. */
static void null_stdio(const struct child *c) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    STEP("open /dev/null", null);
    for (int fd = 0; fd < 3; fd++)
        STEP("open /dev/null", dup2(null, fd));
}

void child_main(const struct child *c) {
    struct handover h = {0};
    char go;
    int go_fd;
    setsid();
    weaken_plant();
    int proc = before_leaving(c);
    leave(c);
    build_root(c, proc);
    null_stdio(c);
    lower_limits();
    umask(022);
    list_arguments(c, &h);
    int guest = arrange(c, &h, &go_fd);
    if (!weakened("capabilities"))
        drop_capabilities(c);
    if (!weakened("no_new_privs"))
        STEP("no new privileges", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (!weakened("seccomp"))
        TRY("load seccomp filter", filter_load(c->filter));
    /* The spawner has written down that this box exists, or it is gone and so are we. */
    if (read(go_fd, &go, 1) != 1)
        _exit(1);
    char *const env[] = {NULL};
    syscall(SYS_execveat, guest, "", h.argv, env, AT_EMPTY_PATH);
    give_up(c, "run carrel-guest", errno);
    _exit(1);
}
