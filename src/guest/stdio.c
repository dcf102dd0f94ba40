#include "guest/stdio.h"

#include <sys/ioctl.h>
#include <sys/stat.h>

#include "guest/sys.h"

#ifndef TIOCGPTPEER
#define TIOCGPTPEER 0x5441
#endif

bool stdio_is_sound(const uint8_t modes[3]) {
    bool has_terminal = false;
    for (int i = 0; i < 3; i++) {
        if (modes[i] > (i == 2 ? MSG_STDIO_SAME : MSG_STDIO_PTY))
            return false;
        has_terminal = has_terminal || modes[i] == MSG_STDIO_PTY;
    }
    return !has_terminal || modes[1] == MSG_STDIO_PTY;
}

uint32_t stdio_count_fds(const uint8_t modes[3]) {
    uint32_t n = 0;
    for (int i = 0; i < 3; i++)
        n += modes[i] == MSG_STDIO_FD;
    return n;
}

/*
 * Makes the command's user the owner of a pipe or terminal, so that the command may open
 * /dev/stdout.
 */
static void give_to(int fd, const struct msg_exec *e) {
    if (e->uid != MSG_ID_NONE)
        (void)!fchown(fd, e->uid, (gid_t)-1);
}

static int open_pipe(struct stdio *io, int i, const struct msg_exec *e) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    io->child[i] = i == 0 ? ends[0] : ends[1];
    io->host[i] = i == 0 ? ends[1] : ends[0];
    io->is_ours[i] = true;
    give_to(ends[0], e);
    /* after su or sudo the command may open it, too: only who has a pipe can find it in /proc */
    (void)!fchmod(ends[0], 0666);
    return fcntl(io->host[i], F_SETFL, O_NONBLOCK);
}

/*
 * Opens a new terminal. The slave side is opened through the master: a path in /dev/pts could be
 * another terminal.
 */
static int open_terminal(struct stdio *io, const struct msg_exec *e) {
    int flags = O_RDWR | O_NOCTTY | O_CLOEXEC;
    int unlock = 0;
    io->is_terminal = true;
    io->host[1] = open("/dev/pts/ptmx", flags | O_NONBLOCK);
    if (io->host[1] < 0)
        io->host[1] = open("/dev/ptmx", flags | O_NONBLOCK);
    if (io->host[1] < 0 || ioctl(io->host[1], TIOCSPTLCK, &unlock) < 0)
        return -1;
    io->child[1] = ioctl(io->host[1], TIOCGPTPEER, flags);
    if (io->child[1] < 0)
        return -1;
    io->is_ours[1] = true;
    give_to(io->child[1], e);
    return stdio_resize(io->host[1], e->rows ? e->rows : 24, e->cols ? e->cols : 80);
}

static int open_one(struct stdio *io, int i, const struct msg_exec *e, int null) {
    switch (e->stdio[i]) {
    case MSG_STDIO_NULL:
        io->child[i] = null;
        return 0;
    case MSG_STDIO_PIPE:
        return open_pipe(io, i, e);
    case MSG_STDIO_PTY:
        io->child[i] = io->child[1];
        if (i == 0)
            io->host[0] = fcntl(io->host[1], F_DUPFD_CLOEXEC, 3);
        return i == 0 && io->host[0] < 0 ? -1 : 0;
    case MSG_STDIO_SAME:
        io->child[i] = io->child[1];
        return 0;
    default: /* MSG_STDIO_FD: stdio_open() sets this descriptor, unless it is a copy */
        return io->copy[i] >= 0 ? open_pipe(io, i, e) : 0;
    }
}

bool stdio_needs_fds(const struct msg_exec *e) {
    return stdio_count_fds(e->stdio) || e->flags & MSG_EXEC_COPY ||
           e->flags & (MSG_EXEC_WITH_FD & ~MSG_EXEC_LOG);
}

int stdio_open(struct stdio *io, const struct msg_exec *e, int *fds, int null) {
    for (int i = 0; i < 3; i++) {
        if (e->stdio[i] != MSG_STDIO_FD)
            continue;
        if (i > 0 && e->flags & MSG_EXEC_COPY)
            io->copy[i] = TAKE_FD(*fds);
        else
            io->child[i] = *fds;
        fds++;
    }
    if (e->stdio[1] == MSG_STDIO_PTY && open_terminal(io, e) < 0)
        return -1;
    for (int i = 0; i < 3; i++)
        if (open_one(io, i, e, null) < 0)
            return -1;
    return 0;
}

void stdio_done(struct stdio *io) {
    for (int i = 0; i < 3; i++) {
        if (io->is_ours[i])
            close_fd(&io->child[i]);
        close_fd(&io->host[i]);
        close_fd(&io->copy[i]);
    }
}

int stdio_resize(int master, uint16_t rows, uint16_t cols) {
    struct winsize size = {.ws_row = rows, .ws_col = cols};
    return ioctl(master, TIOCSWINSZ, &size);
}

pid_t stdio_foreground(int master, pid_t otherwise) {
    pid_t group = 0;
    return ioctl(master, TIOCGPGRP, &group) == 0 && group > 1 ? group : otherwise;
}
