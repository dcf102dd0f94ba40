#include "spawn/disk/disk_job.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/err.h"
#include "base/fdio.h"
#include "spawn/disk/disk.h"

enum { SOCKET = 3, STORE = 4 };

/* Runs in the new process, which keeps no other descriptor of the spawner: boxes end meanwhile. */
static void make_disk(int socket, int store, uint64_t bytes, pid_t spawner) {
    struct err err;
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != spawner)
        _exit(0);
    prctl(PR_SET_NAME, "carrel-disk");
    /* First to numbers above both, because one may have the number of the other. */
    socket = fcntl(socket, F_DUPFD_CLOEXEC, STORE + 1);
    store = fcntl(store, F_DUPFD_CLOEXEC, STORE + 1);
    if (dup3(socket, SOCKET, O_CLOEXEC) < 0 || dup3(store, STORE, O_CLOEXEC) < 0)
        _exit(1);
    close_range(STORE + 1, ~0u, 0);
    int disk = disk_new(STORE, DISK_BTRFS, bytes, 0, &err);
    _exit(disk < 0 || send_fds(SOCKET, "d", 1, &disk, 1) < 0);
}

int disk_job_start(struct disk_job *job, int store, uint64_t bytes) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -errno;
    pid_t spawner = getpid(), pid = fork();
    if (pid == 0)
        make_disk(ends[1], store, bytes, spawner);
    int failed = errno;
    close(ends[1]);
    if (pid < 0) {
        close(ends[0]);
        return -failed;
    }
    *job = (struct disk_job){.pid = pid, .socket = ends[0], .bytes = bytes};
    return 0;
}

static void disk_job_end(struct disk_job *job) {
    while (waitpid(job->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close_fd(&job->socket);
    *job = DISK_JOB_NONE;
}

int disk_job_take(struct disk_job *job) {
    struct fd_message in = {0};
    char said;
    int disk = -1;
    if (recv_fds(job->socket, &said, 1, &in) == 0 && in.nfds == 1) {
        disk = in.fds[0];
        in.nfds = 0;
    }
    fd_message_close(&in);
    disk_job_end(job);
    return disk;
}

void disk_job_cancel(struct disk_job *job) {
    if (!job->pid)
        return;
    kill(job->pid, SIGKILL);
    disk_job_end(job);
}
