/* Standard streams of a new command: its log, and pipes of the caller. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "service/exec/inner.h"

/*
 * Splits the space of a log: stdout gets three quarters, stderr one. Half of each is for the first
 * bytes of the stream (head), half for the last bytes (tail).
 */
static struct outlog_caps log_caps(uint64_t bytes, bool terminal) {
    const uint64_t part = bytes / 8 & ~(uint64_t)(OUTLOG_PAGE - 1);
    if (terminal)
        return (struct outlog_caps){{4 * part, 0}, {4 * part, OUTLOG_TAIL_MIN}};
    return (struct outlog_caps){{3 * part, part}, {3 * part, part}};
}

void exec_make_spare(void *service) {
    struct service *s = service;
    const struct outlog_caps caps = log_caps(s->conf->log_bytes, false);
    struct err err; /* ignored: a command without a spare log makes its own and reports it */
    if (s->execs->spare_log.fd < 0)
        (void)!outlog_fd_make(&s->execs->spare_log, &caps, &err);
}

static struct outlog_fd outlog_fd_take(struct outlog_fd *from) {
    struct outlog_fd log = *from;
    *from = OUTLOG_FD_NONE;
    return log;
}

/* Gives the command a log, whose descriptor is the last one of the request to the guest. */
static int streams_add_log(struct exec *x, bool terminal, struct msg_exec *exec,
                           struct exec_fds *ret, struct err *err) {
    const struct outlog_caps caps = log_caps(x->service->conf->log_bytes, terminal);
    struct outlog_fd *spare = &x->service->execs->spare_log;
    exec->flags |= MSG_EXEC_LOG;
    if (!terminal && spare->fd >= 0)
        x->log = outlog_fd_take(spare);
    else if (outlog_fd_make(&x->log, &caps, err) < 0)
        return -1;
    ret->v[ret->count++] = x->log.fd;
    return 0;
}

int exec_make_log(struct exec *x, struct err *err) {
    const struct outlog_caps caps = log_caps(x->service->conf->log_bytes, false);
    return outlog_fd_make(&x->log, &caps, err);
}

int exec_streams_own(struct exec *x, const struct exec_request *r, struct msg_exec *exec,
                     struct exec_fds *ret, struct err *err) {
    exec->stdio[0] = r->terminal                 ? MSG_STDIO_PTY
                     : x->input || r->stdin_open ? MSG_STDIO_PIPE
                                                 : MSG_STDIO_NULL;
    exec->stdio[1] = exec->stdio[2] = r->terminal ? MSG_STDIO_PTY : MSG_STDIO_PIPE;
    return streams_add_log(x, r->terminal, exec, ret, err);
}

/* ---- field 'stdio' ---- */

static int stream_mode(const char *word, uint8_t *ret, struct err *err) {
    bool passed = strcmp(word, "fd") == 0;
    if (!passed && strcmp(word, "null") != 0)
        return err_set(err, ERR_INVALID, "field 'stdio' must contain null or fd, not '%.20s'",
                       word);
    *ret = passed ? MSG_STDIO_FD : MSG_STDIO_NULL;
    return 0;
}

/* Only pipes may enter a machine, never a file or socket of the host. */
static int check_pipes(const int *fds, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstat(fds[i], &st) < 0 || !S_ISFIFO(st.st_mode))
            return err_set(err, ERR_DENIED, "descriptor %zu of the request is not a pipe", i);
    }
    return 0;
}

static bool is_same_pipe(int a, int b) {
    struct stat one, other;
    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_dev == other.st_dev &&
           one.st_ino == other.st_ino;
}

static int check_stdio(const struct exec *x, const struct caller *who, const struct exec_request *r,
                       const struct exec_fds *fds, struct msg_exec *exec, struct err *err) {
    size_t wanted = 0;
    if (!who->local || r->stdio.count != 3 || r->terminal || x->input || r->stdin_open)
        return err_set(
            err, ERR_INVALID,
            "field 'stdio' must have three values, null or fd; it requires the unix socket, "
            "and excludes stdin and terminal");
    for (size_t i = 0; i < 3; i++) {
        if (stream_mode(r->stdio.v[i], &exec->stdio[i], err) < 0)
            return -1;
        wanted += exec->stdio[i] == MSG_STDIO_FD;
    }
    if (wanted != fds->count)
        return err_set(err, ERR_INVALID,
                       "the request passes %u descriptors for %zu streams in field 'stdio'",
                       fds->count, wanted);
    return check_pipes(fds->v, fds->count, err);
}

/* Output goes to the log, and to the caller's pipes as long as the command runs. */
static int streams_copied(struct exec *x, bool has_copies, struct msg_exec *exec,
                          struct exec_fds *fds, struct err *err) {
    for (size_t i = 1; i < 3; i++) {
        x->copied |= exec->stdio[i] == MSG_STDIO_FD && has_copies;
        if (exec->stdio[i] == MSG_STDIO_NULL)
            exec->stdio[i] = MSG_STDIO_PIPE; /* kept, though the caller does not want it */
    }
    if (x->copied)
        exec->flags |= MSG_EXEC_COPY;
    /* If stdout and stderr are one pipe, so they are for the command: that keeps their order. */
    if (x->copied && exec->stdio[1] == exec->stdio[2] &&
        is_same_pipe(fds->v[fds->count - 1], fds->v[fds->count - 2])) {
        exec->stdio[2] = MSG_STDIO_SAME;
        fds->count--;
    }
    return streams_add_log(x, false, exec, fds, err);
}

/*
 * A command whose processes all end with it gets the caller's pipes. Any other command may leave
 * background processes, which must be able to write after the caller has left: the guest copies
 * its output. An older guest cannot, and gives the pipes to the command.
 */
int exec_streams_handed(struct exec *x, const struct live *l, const struct exec_request *r,
                        struct msg_exec *exec, struct exec_fds *fds, struct err *err) {
    if (fds->count && guest_keeps_logs(l->machine->guest))
        return err_set(err, ERR_UNSUPPORTED, "a vm takes no descriptors: leave out field 'stdio'");
    if (check_stdio(x, &x->who, r, fds, exec, err) < 0)
        return -1;
    return r->kill_left ? 0
                        : streams_copied(x, guest_has_copies(l->machine->guest), exec, fds, err);
}
