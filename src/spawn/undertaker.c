#include "spawn/undertaker.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/background.h"
#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/disk/btrfs.h"
#include "spawn/disk/merge.h"
#include "spawn/disk/wipe.h"

/*
 * The kinds of namespaces that are held. The network namespace is held too: otherwise the kernel
 * removes it at once, in the background.
 */
static const struct {
    const char *name;
    unsigned long by_pidfd;
} kinds[HELD_SPACES] = {[HELD_MOUNTS] = {"mnt", _IO(0xff, 3)}, /* from linux/pidfd.h */
                        [HELD_NET] = {"net", _IO(0xff, 4)}};

void spaces_hold(int pidfd, int proc, pid_t pid, int held[HELD_SPACES]) {
    char path[32];
    for (int i = 0; i < HELD_SPACES; i++) {
        held[i] = ioctl(pidfd, kinds[i].by_pidfd, 0);
        if (held[i] >= 0 || errno == ESRCH)
            continue;
        snprintf(path, sizeof(path), "%d/ns/%s", (int)pid, kinds[i].name);
        held[i] = openat(proc, path, O_RDONLY | O_CLOEXEC);
    }
}

bool spaces_held(const int held[HELD_SPACES]) {
    for (int i = 0; i < HELD_SPACES; i++)
        if (held[i] >= 0)
            return true;
    return false;
}

void spaces_close(int held[HELD_SPACES]) {
    for (int i = 0; i < HELD_SPACES; i++)
        close_fd(&held[i]);
}

enum { SOCKET = 3, CLOSED = 4, HANDS = 8, PAUSE_MS = 3, END_MS = 1000 };

enum task { TASK_CLOSE, TASK_WIPE, TASK_MERGE, TASK_DUPLICATE, TASK_SETTLE };

/* A request to the undertaker, which closes the received descriptors in any case. */
struct order {
    char id[ID_SIZE];
    enum task task;
    enum chore chore;
    struct merge_plan merge;
    struct duplicate_plan duplicate;
};

struct duplication {
    const struct duplicate_plan *plan;
    const int *fds;
    struct duplicated made;
    int result;
};

static void *duplicate_idly(void *arg) {
    struct duplication *d = arg;
    setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), BACKGROUND_NICE);
    d->result = duplicate_layer(d->fds[0], d->fds[1], d->plan, &d->made);
    return NULL;
}

/*
 * Copies a layer. Nobody waits for a layer to be saved, so that runs with low priority, in a thread
 * of its own, because only root may raise the priority of a thread again.
 */
static int duplicate(const struct order *order, const int fds[2], struct duplicated *ret) {
    struct duplication d = {.plan = &order->duplicate, .fds = fds};
    pthread_t thread;
    if (order->chore != CHORE_SAVE || pthread_create(&thread, NULL, duplicate_idly, &d) != 0)
        return duplicate_layer(fds[0], fds[1], d.plan, ret);
    pthread_join(thread, NULL);
    *ret = d.made;
    return d.result;
}

static void duplicate_told(const struct order *order, const int fds[2],
                           struct undertaker_word *word) {
    struct duplicated made = {DUPLICATE_COPY, 0};
    word->result = duplicate(order, fds, &made);
    word->way = made.way;
    word->generation = made.generation;
}

/*
 * Lets the spawner close its copies of the descriptors first: only the last close is slow, and the
 * spawner must not wait for it. For the namespaces of a box it says when it has closed them.
 */
static void await_sender(const struct order *order) {
    uint64_t one;
    if (order->id[0])
        (void)!read(CLOSED, &one, sizeof(one));
    else
        nanosleep(&(struct timespec){.tv_nsec = PAUSE_MS * 1000000l}, NULL);
}

static void *bury(void *arg) {
    for (;;) {
        struct order order;
        struct fd_message in = {0};
        if (recv_fds(SOCKET, &order, sizeof(order), &in) < 0 || in.len != sizeof(order))
            _exit(0);
        struct undertaker_word word = {.chore = order.chore};
        memcpy(word.id, order.id, sizeof(word.id));
        if (order.task == TASK_WIPE && in.nfds == 1)
            wipe_trash(in.fds[0]);
        if (order.task == TASK_MERGE && in.nfds == 1) {
            order.merge.disk = in.fds[0];
            word.result = merge_layers(&order.merge);
        }
        if (order.task == TASK_DUPLICATE && in.nfds == 2)
            duplicate_told(&order, in.fds, &word);
        if (order.task == TASK_SETTLE && in.nfds == 1) {
            word.result = btrfs_sync(in.fds[0]);
            word.generation = word.result == 0 ? btrfs_generation(in.fds[0]) : 0;
        }
        if (order.task == TASK_CLOSE)
            await_sender(&order);
        fd_message_close(&in);
        if (send(SOCKET, &word, sizeof(word), MSG_NOSIGNAL) < 0)
            _exit(0);
    }
    return arg;
}

/*
 * Runs in the undertaker process, which keeps only these descriptors open, so that no other
 * resource stays in use because of it. Most work is waiting for the kernel, so several threads wait
 * at the same time.
 */
static void work(int socket, int closed, pid_t spawner) {
    pthread_t thread;
    /*
     * During long work the socket is not read. Without this signal, the next spawner's undertaker
     * would do the same work at the same time.
     */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != spawner)
        _exit(0);
    prctl(PR_SET_NAME, "carrel-bury");
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    /* First to numbers above both, because one may have the number of the other. */
    socket = fcntl(socket, F_DUPFD_CLOEXEC, CLOSED + 1);
    closed = fcntl(closed, F_DUPFD_CLOEXEC, CLOSED + 1);
    if (dup3(socket, SOCKET, O_CLOEXEC) < 0 || dup3(closed, CLOSED, O_CLOEXEC) < 0)
        _exit(1);
    close_range(CLOSED + 1, ~0u, 0);
    for (int i = 1; i < HANDS; i++)
        pthread_create(&thread, NULL, bury, NULL);
    bury(NULL);
}

int undertaker_open(struct undertaker *u) {
    int ends[2];
    if (u->pid)
        return 0;
    int closed DEFER_CLOSE = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
    if (closed < 0 || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    pid_t spawner = getpid(), pid = fork();
    if (pid == 0)
        work(ends[1], closed, spawner);
    close(ends[1]);
    if (pid < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
        close(ends[0]);
        return -errno;
    }
    *u = (struct undertaker){pid, ends[0], TAKE_FD(closed)};
    return 0;
}

static void undertaker_kill(struct undertaker *u) {
    close(u->socket);
    close(u->closed);
    kill(u->pid, SIGKILL);
}

void undertaker_close(struct undertaker *u) {
    if (!u->pid)
        return;
    undertaker_kill(u);
    while (waitpid(u->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *u = UNDERTAKER_NONE;
}

void undertaker_leave(struct undertaker *u) {
    if (!u->pid)
        return;
    undertaker_kill(u);
    int fd DEFER_CLOSE = pidfd_open(u->pid, 0);
    struct pollfd p = {.fd = fd, .events = POLLIN};
    if (fd >= 0)
        poll(&p, 1, END_MS);
    waitpid(u->pid, NULL, WNOHANG);
    *u = UNDERTAKER_NONE;
}

bool undertaker_take(struct undertaker *u, const char *id, int held[HELD_SPACES]) {
    int fds[HELD_SPACES];
    size_t n = 0;
    for (int i = 0; i < HELD_SPACES; i++)
        if (held[i] >= 0)
            fds[n++] = held[i];
    struct order order = {.task = TASK_CLOSE};
    snprintf(order.id, sizeof(order.id), "%s", id);
    if (!u->pid || send_fds(u->socket, &order, sizeof(order), fds, n) < 0)
        return false;
    spaces_close(held);
    (void)!write(u->closed, &(uint64_t){1}, sizeof(uint64_t));
    return true;
}

static bool undertaker_ask(struct undertaker *u, const struct order *order, int fd) {
    return u->pid && send_fds(u->socket, order, sizeof(*order), &fd, 1) == 0;
}

bool undertaker_close_for(struct undertaker *u, int fd) {
    return undertaker_ask(u, &(struct order){.task = TASK_CLOSE}, fd);
}

bool undertaker_close_all(struct undertaker *u, const int *fds, size_t count) {
    const struct order order = {.task = TASK_CLOSE};
    return u->pid && send_fds(u->socket, &order, sizeof(order), fds, count) == 0;
}

bool undertaker_wipe(struct undertaker *u, int disk) {
    return undertaker_ask(u, &(struct order){.task = TASK_WIPE}, disk);
}

bool undertaker_merge(struct undertaker *u, const char *id, const struct merge_plan *plan) {
    struct order order = {.task = TASK_MERGE, .chore = CHORE_MERGE, .merge = *plan};
    snprintf(order.id, sizeof(order.id), "%s", id);
    return undertaker_ask(u, &order, plan->disk);
}

bool undertaker_duplicate(struct undertaker *u, const char *id, enum chore chore, int from, int to,
                          const struct duplicate_plan *plan) {
    struct order order = {.task = TASK_DUPLICATE, .chore = chore, .duplicate = *plan};
    const int fds[] = {from, to};
    snprintf(order.id, sizeof(order.id), "%s", id);
    return u->pid && send_fds(u->socket, &order, sizeof(order), fds, 2) == 0;
}

bool undertaker_settle(struct undertaker *u, const char *id, int disk) {
    struct order order = {.task = TASK_SETTLE, .chore = CHORE_COPY};
    snprintf(order.id, sizeof(order.id), "%s", id);
    return undertaker_ask(u, &order, disk);
}

int undertaker_next(struct undertaker *u, struct undertaker_word *ret) {
    ssize_t n = recv(u->socket, ret, sizeof(*ret), 0);
    if (n == sizeof(*ret) && ret->id[ID_SIZE - 1] == '\0' && ret->chore < CHORES)
        return 1;
    return n < 0 && errno == EAGAIN ? 0 : -1;
}
