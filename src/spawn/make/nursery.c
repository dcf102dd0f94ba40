#include "spawn/make/nursery.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/make/berth.h"
#include "spawn/make/child.h"
#include "spawn/spawner.h"

/*
 * The spawner's request for a new process: the parts of a berth. The receiver replaces the
 * descriptor numbers in it by those of the received descriptors.
 */
struct birth {
    struct rootfs root;
    struct cgroup_set cgroup;
    int netns, dev, orders;
};

enum { FIELD_MAX = 32 };

/* Lists every descriptor field of a request, in the same order for sender and receiver. */
static unsigned fields(struct birth *b, int *fds[FIELD_MAX]) {
    int *fixed[] = {&b->netns,       &b->dev,          &b->orders,         &b->root.lock,
                    &b->root.userns, &b->root.root,    &b->root.usr,       &b->root.meta,
                    &b->root.shm,    &b->root.held[0], &b->root.held_side, &b->cgroup.guest_procs};
    unsigned n = sizeof(fixed) / sizeof(*fixed);
    memcpy(fds, fixed, sizeof(fixed));
    for (int i = 0; i < CGROUP_TASKS; i++)
        fds[n++] = &b->cgroup.tasks[i];
    for (int i = 0; i < CGROUP_MEMORY_FILES; i++)
        fds[n++] = &b->cgroup.memory[i];
    for (int i = 0; i < CGROUP_CPU_FILES; i++)
        fds[n++] = &b->cgroup.cpu[i];
    for (unsigned i = 0; i < b->cgroup.spare_count; i++) {
        fds[n++] = &b->cgroup.spares[i].procs;
        fds[n++] = &b->cgroup.spares[i].freeze;
        fds[n++] = &b->cgroup.spares[i].kill;
    }
    return n;
}

/* Runs in the nursery: stores the received descriptors in the fields of the request. */
static bool adopt(struct birth *b, struct fd_message *in) {
    int *fds[FIELD_MAX];
    unsigned n = fields(b, fds);
    size_t next = 0;
    for (unsigned i = 0; i < n; i++)
        if (*fds[i] >= 0) {
            if (next == in->nfds)
                return false;
            *fds[i] = in->fds[next++];
        }
    return next == in->nfds;
}

/*
 * Forks the process of a berth. CLONE_PARENT makes it a child of the spawner, which waits for its
 * end.
 */
static pid_t bear(const struct spawner *s, const struct birth *b, int *ret_pidfd) {
    struct clone_args args = {
        .flags = CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_PIDFD | CLONE_PARENT,
        .pidfd = (uint64_t)(uintptr_t)ret_pidfd,
    };
    struct timespec now;
    clock_gettime(CLOCK_BOOTTIME, &now);
    pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0) {
        const struct child child = {
            .anchor_ns = s->anchor_ns,
            .guest = s->guest,
            .worker = s->worker,
            .masks = s->masks,
            .filter = &s->filter,
            .root = &b->root,
            .cgroup = &b->cgroup,
            .began_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec,
            .netns = b->netns,
            .dev = b->dev,
            .orders = b->orders,
        };
        child_main(&child);
    }
    return pid < 0 ? -errno : pid;
}

static void serve_one(const struct spawner *s, int socket) {
    struct birth birth;
    struct fd_message in DEFER(fd_message_close) = {0};
    int r = recv_fds(socket, &birth, sizeof(birth), &in);
    if (r < 0 || in.len != sizeof(birth) || birth.cgroup.spare_count > CGROUP_SPARES)
        _exit(0);
    int pidfd DEFER_CLOSE = -1;
    pid_t pid = adopt(&birth, &in) ? bear(s, &birth, &pidfd) : -EINVAL;
    if (send_fds(socket, &pid, sizeof(pid), &pidfd, pidfd >= 0) < 0)
        _exit(0);
}

/*
 * Resets all signals to their defaults, because boxes would inherit ignored ones. Uses the system
 * call, because libc reserves some signals.
 */
static void reset_signals(void) {
    static const char defaults[64]; /* all zero: SIG_DFL, no flags, empty mask */
    for (int i = 1; i <= 64; i++)
        syscall(SYS_rt_sigaction, i, defaults, NULL, 8);
}

/*
 * Runs in the nursery process: keeps only its socket and the descriptors that all boxes share. Each
 * box starts as a copy of this process. So what all boxes need is done once, here, and memory that
 * the spawner has freed is not kept.
 */
static void nursery_main(struct spawner *s, int socket) {
    int *own[] = {&socket, &s->anchor_ns, &s->guest, &s->worker};
    enum { HIGH = 512, OWN = sizeof(own) / sizeof(*own) };
    prctl(PR_SET_NAME, "carrel-nursery");
    reset_signals();
    malloc_trim(0);
    for (size_t i = 0; i < OWN; i++)
        *own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, HIGH);
    close_range(3, HIGH - 1, 0);
    for (size_t i = 0; i < OWN; i++)
        *own[i] = fcntl(*own[i], F_DUPFD_CLOEXEC, 3);
    close_range(HIGH, ~0u, 0);
    for (;;)
        serve_one(s, socket);
}

int nursery_open(struct spawner *s, struct err *err) {
    int ends[2];
    if (s->nursery.pid)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_sys(err, "cannot create the socket pair to the nursery process");
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        nursery_main(s, ends[1]);
        _exit(0);
    }
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return err_sys(err, "cannot start the nursery process");
    }
    s->nursery = (struct nursery){.pid = pid, .socket = ends[0]};
    return 0;
}

void nursery_close(struct nursery *n) {
    if (!n->pid)
        return;
    close(n->socket);
    kill(n->pid, SIGKILL);
    while (waitpid(n->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *n = (struct nursery){.socket = -1};
}

static int nursery_ask(const struct nursery *n, struct birth *birth, struct berth *b) {
    int *fds[FIELD_MAX], list[FIELD_MAX];
    struct fd_message out DEFER(fd_message_close) = {0};
    pid_t pid = -EIO;
    size_t count = 0;
    unsigned total = fields(birth, fds);
    for (unsigned i = 0; i < total; i++)
        if (*fds[i] >= 0)
            list[count++] = *fds[i];
    int r = send_fds(n->socket, birth, sizeof(*birth), list, count);
    if (r == 0)
        r = recv_fds(n->socket, &pid, sizeof(pid), &out);
    if (r < 0 || out.len != sizeof(pid))
        return r < 0 ? r : -EPIPE;
    if (pid > 0 && out.nfds == 1)
        b->pidfd = TAKE_FD(out.fds[0]);
    b->pid = pid > 0 ? pid : 0;
    return pid > 0 ? 0 : pid;
}

int nursery_bear(struct spawner *s, struct berth *b, int dev, int orders, struct err *err) {
    struct birth birth = {
        .root = b->root, .cgroup = b->cgroup, .netns = b->netns, .dev = dev, .orders = orders};
    int r = -EPIPE;
    /* The nursery process may have been killed: start a new one, once. */
    for (int attempt = 0; attempt < 2 && (r == -EPIPE || r == -ECONNRESET); attempt++) {
        if (attempt)
            nursery_close(&s->nursery);
        if (nursery_open(s, err) < 0)
            return -1;
        r = nursery_ask(&s->nursery, &birth, b);
    }
    if (r == 0)
        return 0;
    return err_num(err, r, "cannot start the process of a machine");
}
