#include "io/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/secret.h"

/* Our end of a pipe to the child process, and the bytes that go through it. */
struct stream {
    int fd;
    struct loop_watch *watch;
    struct buf bytes;
    size_t at; /* stdin only: number of bytes sent */
    bool cut;
};

struct child {
    pid_t pid;
    int pidfd;
    struct loop_watch *ended;
    struct loop_timer *limit;
    struct stream in, out, said;
    bool late;
    child_fn *done;
    void *arg;
};

/* ---- streams of the child ---- */

static void stream_close(struct stream *t) {
    loop_watch_free(TAKE(t->watch));
    close_fd(&t->fd);
}

static void take_output(struct stream *t) {
    char piece[16384];
    ssize_t n;
    while ((n = read(t->fd, piece, sizeof(piece))) > 0)
        t->cut |= !buf_add(&t->bytes, piece, (size_t)n);
    if (n == 0 || (errno != EAGAIN && errno != EINTR))
        stream_close(t);
}

static void output_ready(void *arg, unsigned events) {
    (void)events;
    take_output(arg);
}

static void input_ready(void *arg, unsigned events) {
    struct stream *t = arg;
    (void)events;
    while (t->at < t->bytes.len) {
        ssize_t n = write(t->fd, t->bytes.data + t->at, t->bytes.len - t->at);
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
            return;
        if (n < 0)
            break; /* the child closed its stdin */
        t->at += (size_t)n;
    }
    stream_close(t);
}

static void child_free(struct child *c) {
    stream_close(&c->in);
    stream_close(&c->out);
    stream_close(&c->said);
    secret_wipe(&c->in.bytes);
    buf_done(&c->out.bytes);
    buf_done(&c->said.bytes);
    loop_watch_free(c->ended);
    loop_timer_free(c->limit);
    close_fd(&c->pidfd);
    free(c);
}

/* ---- end of the child ---- */

static void has_ended(void *arg, unsigned events) {
    struct child *c = arg;
    int status;
    (void)events;
    if (waitpid(c->pid, &status, WNOHANG) != c->pid)
        return;
    if (c->out.fd >= 0)
        take_output(&c->out);
    if (c->said.fd >= 0)
        take_output(&c->said);
    const struct child_end end = {.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                                  .late = c->late,
                                  .cut = c->out.cut,
                                  .out = c->out.bytes.data ? c->out.bytes.data : "",
                                  .out_bytes = c->out.bytes.len,
                                  .said = c->said.bytes.data ? c->said.bytes.data : ""};
    c->done(c->arg, &end);
    child_free(c);
}

void child_kill(struct child *c) {
    kill(-c->pid, SIGKILL); /* the pid is still that of the child: only has_ended() reaps it */
}

void child_drop(struct child *c) {
    if (!c)
        return;
    child_kill(c);
    waitpid(c->pid, NULL, 0); /* returns soon: the child was just killed */
    child_free(c);
}

static void too_late(void *arg) {
    struct child *c = arg;
    c->late = true;
    child_kill(c);
}

/* ---- start of the child ---- */

/* ours[] are our ends of the pipes: [0] writes stdin of the child, [1] and [2] read its output. */
static int spawn_with(const struct child_order *o, int ours[3], pid_t *ret) {
    int theirs[3] = {-1, -1, -1}, r = 0;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    for (int i = 0; i < 3 && r == 0; i++) {
        int ends[2];
        if (pipe2(ends, O_CLOEXEC) < 0)
            r = errno;
        else {
            theirs[i] = ends[i == 0 ? 0 : 1];
            ours[i] = ends[i == 0 ? 1 : 0];
        }
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attr, &all);
    for (int i = 0; i < 3; i++)
        posix_spawn_file_actions_adddup2(&actions, theirs[i], i);
    for (size_t i = 0; i < o->fd_count; i++)
        posix_spawn_file_actions_adddup2(&actions, o->fds[i], (int)i + 3);
    static char *const no_env[] = {NULL};
    if (r == 0)
        r = posix_spawn(ret, o->path, &actions, &attr, (char *const *)o->argv, no_env);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    for (int i = 0; i < 3; i++)
        close_fd(&theirs[i]);
    return -r;
}

static int child_watch(struct loop *loop, struct stream *t, int fd, unsigned events,
                       loop_watch_fn *fn, struct err *err) {
    t->fd = fd;
    return loop_watch_new(loop, fd, events, fn, t, &t->watch, err);
}

static int listen_to(struct child *c, struct loop *loop, int ours[3], uint64_t limit_ms,
                     struct err *err) {
    c->pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0);
    if (c->pidfd < 0)
        return err_sys(err, "cannot watch a child process");
    fcntl(c->pidfd, F_SETFD, FD_CLOEXEC);
    if (child_watch(loop, &c->in, TAKE_FD(ours[0]), LOOP_WRITE, input_ready, err) < 0 ||
        child_watch(loop, &c->out, TAKE_FD(ours[1]), LOOP_READ, output_ready, err) < 0 ||
        child_watch(loop, &c->said, TAKE_FD(ours[2]), LOOP_READ, output_ready, err) < 0 ||
        loop_watch_new(loop, c->pidfd, LOOP_READ, has_ended, c, &c->ended, err) < 0)
        return -1;
    c->limit = loop_timer_new(loop, too_late, c);
    loop_timer_start(c->limit, limit_ms, 0);
    return 0;
}

struct child *child_start(struct loop *loop, const struct child_order *o, child_fn *done, void *arg,
                          struct err *err) {
    struct child *c = xnew(struct child);
    int ours[3] = {-1, -1, -1};
    *c = (struct child){.pidfd = -1, .done = done, .arg = arg};
    c->in = (struct stream){.fd = -1, .bytes = BUF(o->input_bytes + 1)};
    c->out = (struct stream){.fd = -1, .bytes = BUF(o->out_max)};
    c->said = (struct stream){.fd = -1, .bytes = BUF(o->said_max)};
    int failed =
        buf_add(&c->in.bytes, o->input, o->input_bytes) ? spawn_with(o, ours, &c->pid) : -ENOMEM;
    int n = failed < 0 ? err_num(err, failed, "cannot run program '%s'", o->path)
                       : listen_to(c, loop, ours, o->limit_ms, err);
    for (int i = 0; i < 3; i++)
        close_fd(&ours[i]);
    if (n == 0)
        return c;
    if (c->pid > 0)
        child_drop(c);
    else
        child_free(c);
    return NULL;
}
