/* Attaches connections to commands that run or have ended, and lists the commands. */
#include <string.h>
#include <sys/epoll.h>

#include "base/err.h"
#include "guest/cmd.h"
#include "guest/cmd_inner.h"
#include "guest/conn.h"
#include "guest/files.h"
#include "guest/log.h"
#include "guest/pause.h"
#include "guest/scratch.h"
#include "guest/stream.h"
#include "guest/sys.h"

static void rewind_streams(struct cmd *cmd) {
    for (int i = 0; i < 2; i++) {
        cmd->out[i].sent = cmd->out[i].consumed;
        cmd->out[i].eof_sent = false;
    }
    cmd->exit_sent = false;
    cmd->in.reported = 0;
}

static struct cmd *find_logged(struct guest *g, struct conn *c, const struct frame *f) {
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (cmd && cmd->log.fd >= 0)
        return cmd;
    guest_conn_refuse(c, f, ERR_NOT_FOUND, "the command has no output log");
    return NULL;
}

void cmd_answer_wait(struct cmd *cmd) {
    struct frame_head head = {.type = MSG_LOG_GREW, .id = cmd->id, .tag = cmd->log.wait_tag};
    struct msg_log state = log_state(&cmd->log);
    if (cmd->log.wait_tag && cmd->conn && conn_has_room(cmd->conn))
        guest_conn_send(cmd->conn, &head, &state);
    cmd->log.wait_tag = 0;
}

enum serve_result cmd_log_wait(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_log seen;
    SERVE_GET(log_wait, f, &seen);
    if (f->head.tag == 0)
        return SERVE_BROKEN;
    struct cmd *cmd = find_logged(g, c, f);
    if (!cmd)
        return SERVE_DONE;
    if (cmd->conn != c) {
        guest_conn_refuse(c, f, ERR_BUSY,
                          "cannot wait for output: this connection is not attached to the command");
        return SERVE_DONE;
    }
    cmd_answer_wait(cmd);
    cmd->log.wait_tag = f->head.tag;
    cmd->log.seen = seen;
    cmd_note_news(cmd);
    return SERVE_DONE;
}

enum serve_result cmd_log_open(struct guest *g, struct conn *c, const struct frame *f) {
    if (f->head.tag == 0)
        return SERVE_BROKEN;
    struct cmd *cmd = find_logged(g, c, f);
    if (cmd && c->serial)
        guest_conn_refuse(
            c, f, ERR_UNSUPPORTED,
            "cannot pass the output log: this connection cannot pass file descriptors");
    else if (cmd && !conn_ok_with_fd(c, f, cmd->log.fd))
        conn_fail(c, f, errno, "cannot pass the output log of the command");
    return SERVE_DONE;
}

enum serve_result cmd_log_read(struct guest *g, struct conn *c, const struct frame *f) {
    static uint8_t bytes[MSG_CHUNK_MAX] SCRATCH;
    struct msg_log_read m;
    struct msg_log_data data;
    SERVE_GET(log_read, f, &m);
    bool is_sound = m.bytes <= sizeof(bytes) && m.offset <= INT64_MAX && f->head.tag != 0;
    if ((m.stream != 1 && m.stream != 2) || !is_sound)
        return SERVE_BROKEN;
    struct cmd *cmd = find_logged(g, c, f);
    if (!cmd)
        return SERVE_DONE;
    if (log_fetch(&cmd->log, m.stream - 1, m.offset, bytes, m.bytes, &data) < 0) {
        conn_fail(c, f, errno, "cannot read the output log of the command");
        return SERVE_DONE;
    }
    struct frame_head head = {.type = MSG_LOG_DATA, .id = f->head.id, .tag = f->head.tag};
    guest_conn_send(c, &head, &data);
    return SERVE_DONE;
}

/* Attaching: a connection takes over a command, or reads its output again from an offset. */

enum serve_result cmd_attach(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_attach m;
    SERVE_GET(attach, f, &m);
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (!cmd) {
        guest_conn_refuse(c, f, ERR_NOT_FOUND,
                          "cannot attach to the command: the guest does not know it");
        return SERVE_DONE;
    }
    for (int i = 0; i < 2; i++) {
        struct stream_out *s = &cmd->out[i];
        if (m.consumed[i] == UINT64_MAX || s->log)
            continue;
        if (m.consumed[i] < s->consumed || m.consumed[i] > s->produced) {
            guest_conn_refuse(
                c, f, ERR_INVALID,
                "cannot attach to the command: the requested part of its output was dropped");
            return SERVE_DONE;
        }
    }
    for (int i = 0; i < 2; i++)
        if (m.consumed[i] != UINT64_MAX && !cmd->out[i].log)
            cmd->out[i].consumed = m.consumed[i];
    /* the answer may go to another connection */
    g->has_backlog = g->has_backlog || cmd->log.wait_tag;
    cmd_answer_wait(cmd);
    pause_forget(cmd);
    cmd->conn = c;
    rewind_streams(cmd);
    conn_ok(c, f, cmd->in.received);
    for (int i = 0; i < 2; i++)
        stream_out_fill(g, &cmd->out[i]);
    cmd_note_news(cmd);
    return SERVE_DONE;
}

void cmd_detach_all(struct guest *g, struct conn *c) {
    for (uint32_t i = 0; i < g->cmd_end; i++) {
        if (g->cmds[i].conn != c)
            continue;
        pause_forget(&g->cmds[i]);
        g->cmds[i].conn = NULL;
        g->cmds[i].log.wait_tag = 0;
        rewind_streams(&g->cmds[i]);
        for (int n = 0; n < 2; n++)
            stream_out_fill(g, &g->cmds[i].out[n]);
    }
    files_forget(g, c);
}

/* State of the commands. */

/* A daemon that was killed leaves its commands paced: the next one must know which they are. */
static bool cmd_is_paced(const struct cmd *cmd) {
    return cmd->out[0].paced || cmd->out[1].paced;
}

static struct msg_row row_of(const struct cmd *cmd, const struct conn *c) {
    struct msg_row row = {
        .id = cmd->id,
        .state = cmd->state,
        .attached = !cmd->conn       ? 0
                    : cmd->conn == c ? 1
                                     : 2,
        .flags = cmd_is_paced(cmd) ? cmd->flags | MSG_EXEC_PACED : cmd->flags & ~MSG_EXEC_PACED,
        .pid = (uint32_t)cmd->pid,
        .age_us = (uint64_t)(now_ns() - cmd->started_ns) / 1000,
        .stdin_received = cmd->in.received,
        .consumed = {cmd->out[0].consumed, cmd->out[1].consumed},
        .produced = {cmd->out[0].produced, cmd->out[1].produced},
        .exit = cmd->exit,
    };
    memcpy(row.stdio, cmd->stdio, sizeof(row.stdio));
    return row;
}

enum serve_result cmd_table(struct guest *g, struct conn *c, const struct frame *f) {
    static uint8_t page[MSG_CHUNK_MAX] SCRATCH;
    cmd_sweep(g);
    struct msg_rows rows = {.rows.p = page};
    for (uint32_t i = 0; i < g->cmd_end; i++) {
        if (!g->cmds[i].id || g->cmds[i].is_nobodys)
            continue;
        struct msg_row row = row_of(&g->cmds[i], c);
        rows.rows.n += (uint32_t)msg_row_put(page + rows.rows.n, sizeof(page) - rows.rows.n, &row);
        rows.count++;
    }
    struct frame_head head = {.type = MSG_TABLE_ROWS, .tag = f->head.tag};
    guest_conn_send(c, &head, &rows);
    return SERVE_DONE;
}

/* Every process of the machine is a descendant of pid 1, so without children nothing runs. */
enum serve_result cmd_busy(struct guest *g, struct conn *c, const struct frame *f) {
    cmd_reap(g);
    struct msg_busy_state state = {.busy = !g->is_childless};
    for (uint32_t i = 0; i < g->cmd_end; i++) {
        state.commands += g->cmds[i].id && g->cmds[i].state == MSG_STATE_RUNNING;
        state.unacked += g->cmds[i].id && g->cmds[i].state == MSG_STATE_EXITED;
        state.terminals +=
            g->cmds[i].id && g->cmds[i].state == MSG_STATE_RUNNING && g->cmds[i].out[0].is_terminal;
    }
    struct frame_head head = {.type = MSG_BUSY_STATE, .tag = f->head.tag};
    guest_conn_send(c, &head, &state);
    return SERVE_DONE;
}

void cmd_leave_all(struct guest *g) {
    for (uint32_t i = 0; i < g->cmd_end; i++) {
        struct cmd *cmd = &g->cmds[i];
        if (!cmd->id)
            continue;
        cmd->is_nobodys = true;
        cmd->conn = NULL;
        cmd->log.wait_tag = cmd->pause_tag = 0;
        cmd->out[0].paced = cmd->out[1].paced = false;
    }
    cmd_sweep(g);
}
