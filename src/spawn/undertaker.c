#include "spawn/undertaker.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/fdio.h"
#include "spawn/wipe.h"

/* The network's is taken down by the kernel in the background, but at once, if we do not hold it.
 */
static const struct {
    const char *name;
    unsigned long by_pidfd;
} kinds[HELD_SPACES] = {{"mnt", _IO(0xff, 3)}, {"net", _IO(0xff, 4)}}; /* from linux/pidfd.h */

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

enum { SOCKET = 3, HANDS = 8 };

/* Names that are nobody's id: what else it may be asked for. */
static const char close_word[ID_SIZE] = "close", wipe_word[ID_SIZE] = "wipe";

static void *bury(void *arg) {
    for (;;) {
        char id[ID_SIZE];
        struct fd_message in = {0};
        if (recv_fds(SOCKET, id, sizeof(id), &in) < 0 || in.len != sizeof(id))
            _exit(0);
        if (memcmp(id, wipe_word, ID_SIZE) == 0 && in.nfds == 1)
            wipe_trash(in.fds[0]);
        fd_message_close(&in);
        if (send(SOCKET, id, sizeof(id), MSG_NOSIGNAL) < 0)
            _exit(0);
    }
    return arg;
}

/*
 * In the fork: nothing of the spawner's but this socket, so that it keeps nothing else alive. Most
 * of the work is waiting, and those who wait together wait once.
 */
static void work(int socket) {
    pthread_t thread;
    prctl(PR_SET_NAME, "carrel-bury");
    signal(SIGTERM, SIG_DFL);
    signal(SIGINT, SIG_DFL);
    if (socket != SOCKET && dup3(socket, SOCKET, O_CLOEXEC) < 0)
        _exit(1);
    close_range(SOCKET + 1, ~0u, 0);
    for (int i = 1; i < HANDS; i++)
        pthread_create(&thread, NULL, bury, NULL);
    bury(NULL);
}

int undertaker_open(struct undertaker *u) {
    int ends[2];
    if (u->pid)
        return 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    pid_t pid = fork();
    if (pid == 0)
        work(ends[1]);
    close(ends[1]);
    if (pid < 0 || fcntl(ends[0], F_SETFL, O_NONBLOCK) < 0) {
        close(ends[0]);
        return -errno;
    }
    *u = (struct undertaker){pid, ends[0]};
    return 0;
}

void undertaker_close(struct undertaker *u) {
    if (!u->pid)
        return;
    close(u->socket);
    kill(u->pid, SIGKILL);
    while (waitpid(u->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    *u = UNDERTAKER_NONE;
}

bool undertaker_take(struct undertaker *u, const char *id, int held[HELD_SPACES]) {
    int fds[HELD_SPACES];
    size_t n = 0;
    for (int i = 0; i < HELD_SPACES; i++)
        if (held[i] >= 0)
            fds[n++] = held[i];
    if (!u->pid || send_fds(u->socket, id, ID_SIZE, fds, n) < 0)
        return false;
    spaces_close(held);
    return true;
}

bool undertaker_close_for(struct undertaker *u, int fd) {
    return u->pid && send_fds(u->socket, close_word, ID_SIZE, &fd, 1) == 0;
}

bool undertaker_wipe(struct undertaker *u, int disk) {
    return u->pid && send_fds(u->socket, wipe_word, ID_SIZE, &disk, 1) == 0;
}

int undertaker_next(struct undertaker *u, char id[ID_SIZE]) {
    ssize_t n = recv(u->socket, id, ID_SIZE, 0);
    if (n == ID_SIZE && id[ID_SIZE - 1] == '\0')
        return 1;
    return n < 0 && errno == EAGAIN ? 0 : -1;
}
