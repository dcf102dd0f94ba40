#include "guest/pause.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "base/cell_command.h"
#include "base/err.h"
#include "guest/cmd_inner.h"
#include "guest/conn.h"
#include "guest/log.h"
#include "guest/stream.h"
#include "guest/sys.h"

/* The worker. */

static void control_ready(struct guest *g, struct source *src, uint32_t events) {
    struct cmd *cmd = src->owner;
    struct cell_control m;
    ssize_t n;
    (void)events;
    while ((n = recv(src->fd, &m, sizeof(m), MSG_DONTWAIT)) == sizeof(m)) {
        if (cmd->pause != PAUSE_ASKED)
            continue; /* it was given up, and the worker did not know that yet */
        cmd->pause = m.kind == CELL_STORED ? PAUSE_STORED : PAUSE_REFUSED;
        cmd_note_news(cmd);
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    source_close(g, src);
    if (cmd->pause_tag) {
        cmd->pause = PAUSE_REFUSED;
        cmd_note_news(cmd);
    }
}

int worker_open(struct guest *g, struct cmd *cmd, int *ret) {
    int ends[2];
    if (g->worker < 0 || cmd->flags & MSG_EXEC_TOOL)
        return 0;
    cmd->meter = memfd_create("meter", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (cmd->meter < 0 || ftruncate(cmd->meter, sizeof(cmd->fuel)) < 0 ||
        fcntl(cmd->meter, F_ADD_SEALS, F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return -1;
    *ret = ends[1];
    cmd->control = (struct source){ends[0], control_ready, cmd};
    return source_add(g, &cmd->control, EPOLLIN);
}

void worker_read_fuel(struct cmd *cmd) {
    if (cmd->meter >= 0 && pread(cmd->meter, &cmd->fuel, sizeof(cmd->fuel), 0) != 8)
        cmd->fuel = 0;
}

static bool control_send(const struct cmd *cmd, const struct cell_control *m, int fd) {
    char room[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec v = {(void *)m, sizeof(*m)};
    struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
    if (fd >= 0) {
        h.msg_control = room;
        h.msg_controllen = sizeof(room);
        struct cmsghdr *c = CMSG_FIRSTHDR(&h);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &fd, sizeof(fd));
    }
    return cmd->control.fd >= 0 &&
           sendmsg(cmd->control.fd, &h, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof(*m);
}

static void control_go_on(struct cmd *cmd) {
    const struct cell_control m = {.kind = CELL_GO_ON};
    control_send(cmd, &m, -1);
    cmd->pause = PAUSE_NONE;
}

/* A pause. */

static struct cmd *find_worker(struct guest *g, struct conn *c, const struct frame *f) {
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (cmd && cmd->state == MSG_STATE_RUNNING && cmd->control.fd >= 0)
        return cmd;
    guest_conn_refuse(c, f, cmd ? ERR_GONE : ERR_NOT_FOUND, "the command does not run");
    return NULL;
}

/*
 * Input that the pipe has no room for cannot be stored. The worker takes what is in the pipe; the
 * host sends no more until it has the answer.
 */
enum serve_result cmd_put_away(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_pause m;
    SERVE_GET(pause, f, &m);
    if ((f->head.flags & FRAME_FDS_MASK) != 1 || f->head.tag == 0)
        return SERVE_BROKEN;
    struct cmd *cmd = find_worker(g, c, f);
    if (!cmd)
        return SERVE_DONE;
    const struct cell_control ask = {.kind = CELL_PAUSE, .max = m.max};
    if (cmd->conn != c || cmd->pause != PAUSE_NONE) {
        guest_conn_refuse(c, f, ERR_BUSY, "the command is being stored already");
    } else if (cmd->in.written < cmd->in.received) {
        guest_conn_refuse(c, f, ERR_BUSY, "the command has much input that it did not read");
    } else if (!control_send(cmd, &ask, c->fds[0])) {
        conn_fail(c, f, errno, "cannot ask the command to store itself");
    } else {
        cmd->pause = PAUSE_ASKED;
        cmd->pause_tag = f->head.tag;
    }
    return SERVE_DONE;
}

static bool is_drained(const struct stream_out *s) {
    int unread = 0;
    if (s->src.fd < 0)
        return true;
    return ioctl(s->src.fd, FIONREAD, &unread) == 0 && unread == 0 &&
           (s->copy.fd < 0 || s->copied == s->produced);
}

bool pause_has_news(const struct cmd *cmd) {
    if (cmd->pause_tag == 0)
        return false;
    return cmd->pause == PAUSE_REFUSED ||
           (cmd->pause == PAUSE_STORED && is_drained(&cmd->out[0]) && is_drained(&cmd->out[1]));
}

void pause_answer(struct conn *c, struct cmd *cmd) {
    static const char why[] = "the program cannot be stored now";
    struct frame_head head = {.type = MSG_OK, .id = cmd->id, .tag = cmd->pause_tag};
    cmd->pause_tag = 0;
    if (cmd->pause == PAUSE_STORED) {
        guest_conn_send(c, &head, &(struct msg_ok){0});
        return;
    }
    cmd->pause = PAUSE_NONE;
    head.type = MSG_ERROR;
    guest_conn_send(c, &head,
                    &(struct msg_error){.code = ERR_BUSY, .text = {why, sizeof(why) - 1}});
}

void pause_forget(struct cmd *cmd) {
    if (cmd->pause_tag)
        control_go_on(cmd);
    cmd->pause_tag = 0;
}

enum serve_result cmd_go_on(struct guest *g, struct conn *c, const struct frame *f) {
    struct cmd *cmd = find_worker(g, c, f);
    if (!cmd)
        return SERVE_DONE;
    control_go_on(cmd);
    if (cmd->pause_tag) {
        cmd->pause = PAUSE_REFUSED;
        cmd_note_news(cmd);
    }
    conn_ok(c, f, 0);
    return SERVE_DONE;
}

/* The host has the log, and goes on with it: it has not ended. */
enum serve_result cmd_leave(struct guest *g, struct conn *c, const struct frame *f) {
    struct cmd *cmd = find_worker(g, c, f);
    if (!cmd)
        return SERVE_DONE;
    if (cmd->pause != PAUSE_STORED) {
        guest_conn_refuse(c, f, ERR_BUSY, "the command is not stored");
        return SERVE_DONE;
    }
    cmd_answer_wait(cmd);
    for (int i = 0; i < 2; i++) {
        cmd->out[i].log = NULL;
        stream_out_close(g, &cmd->out[i]);
        cmd->out[i] = (struct stream_out){.src.fd = -1, .copy.fd = -1};
    }
    log_close(&cmd->log);
    stream_in_close(g, &cmd->in);
    source_close(g, &cmd->control);
    cmd->state = MSG_STATE_LEFT;
    cmd->deadline_ns = 0;
    cmd_kill_tree(g, cmd);
    cmd_settle(g, cmd);
    conn_ok(c, f, 0);
    return SERVE_DONE;
}
