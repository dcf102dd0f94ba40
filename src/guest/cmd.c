#include "guest/cmd.h"

#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/defer.h"
#include "base/err.h"
#include "guest/cmd_inner.h"
#include "guest/conn.h"
#include "guest/files.h"
#include "guest/log.h"
#include "guest/pause.h"
#include "guest/relay.h"
#include "guest/start.h"
#include "guest/stdio.h"
#include "guest/stream.h"
#include "guest/sys.h"
#include "guest/tool.h"
#include "guest/tree.h"
#include "guest/warm.h"

#define KILL_AGAIN_NS 10000000 /* delay before a killed process tree is checked again */
#define COPY_AGAIN_NS 10000000 /* delay before output is copied that there was no memory for */
/* how long an EXEC (request to start a command) waits for a spare cgroup */
#define STALL_MAX_NS 10000000000
#define SPARES_ASK 4u
#define ASK_AGAIN_NS 200000000
/* how long the first commands run before the guest asks for more spare cgroups */
#define ASK_LATER_NS 20000000

/* Table of commands. */

struct cmd *cmd_find(struct guest *g, uint32_t id) {
    for (uint32_t i = 0; id && i < g->cmd_end; i++)
        if (g->cmds[i].id == id && !g->cmds[i].is_nobodys)
            return &g->cmds[i];
    return NULL;
}

static struct cmd *cmd_find_pid(struct guest *g, pid_t pid) {
    for (uint32_t i = 0; i < g->cmd_end; i++)
        if (g->cmds[i].id && g->cmds[i].state == MSG_STATE_RUNNING && g->cmds[i].pid == pid)
            return &g->cmds[i];
    return NULL;
}

/*
 * Returns an empty slot of the table of commands. The slot belongs to the table only once
 * cmd_begin() has set its id.
 */
static struct cmd *cmd_new(struct guest *g) {
    for (uint32_t i = 0; i < CMD_MAX; i++) {
        struct cmd *cmd = &g->cmds[i];
        if (cmd->id)
            continue;
        memset(cmd, 0, sizeof(*cmd));
        cmd->in.src.fd = cmd->out[0].src.fd = cmd->out[1].src.fd = cmd->log.fd = -1;
        cmd->out[0].copy.fd = cmd->out[1].copy.fd = -1;
        cmd->meter = cmd->control.fd = -1;
        return cmd;
    }
    return NULL;
}

static void cmd_free(struct guest *g, struct cmd *cmd) {
    stream_in_close(g, &cmd->in);
    stream_out_close(g, &cmd->out[0]);
    stream_out_close(g, &cmd->out[1]);
    log_close(&cmd->log);
    close_fd(&cmd->meter);
    source_close(g, &cmd->control);
    if (cmd->tree) {
        cmd->tree->used = false;
        g->ask_ns = 0;
    }
    cmd->id = 0;
    while (g->cmd_end > 0 && g->cmds[g->cmd_end - 1].id == 0)
        g->cmd_end--;
}

static bool stream_is_over(const struct stream_out *s) {
    return s->size == 0 || (s->src.fd < 0 && (s->eof_sent || s->log));
}

/*
 * Frees a command whose exit was acknowledged, if its streams have ended and no process of it is
 * left.
 */
void cmd_settle(struct guest *g, struct cmd *cmd) {
    if (cmd_is_left(cmd) && stream_is_over(&cmd->out[0]) && stream_is_over(&cmd->out[1]) &&
        cmd->log.wait_tag == 0 && tree_is_empty(g, cmd->tree))
        cmd_free(g, cmd);
}

/* Frees finished commands. This costs a system call per process tree, so call it only if needed. */
void cmd_sweep(struct guest *g) {
    for (uint32_t i = g->cmd_end; i-- > 0;)
        if (g->cmds[i].id)
            cmd_settle(g, &g->cmds[i]);
}

void cmd_kill_tree(struct guest *g, struct cmd *cmd) {
    cmd->killing = !tree_kill(g, cmd->tree, cmd->pid);
    g->has_timers = g->has_timers || cmd->killing;
}

void cmd_note_news(struct cmd *cmd) {
    if (cmd->conn)
        cmd->conn->has_work = true;
}

/* Events of streams. */

static void in_ready(struct guest *g, struct source *src, uint32_t events) {
    (void)events;
    struct cmd *cmd = src->owner;
    stream_in_push(g, &cmd->in);
    cmd_note_news(cmd);
}

static void out_ready(struct guest *g, struct source *src, uint32_t events) {
    struct cmd *cmd = src->owner;
    struct stream_out *s = src == &cmd->out[0].src ? &cmd->out[0] : &cmd->out[1];
    s->readable = true;
    s->hung_up = s->hung_up || events & EPOLLHUP;
    stream_out_fill(g, s);
    cmd_note_news(cmd);
    cmd_settle(g, cmd);
}

/* The host's pipe that output is copied to has room again, or nobody reads it any more. */
static void copy_ready(struct guest *g, struct source *src, uint32_t events) {
    struct cmd *cmd = src->owner;
    struct stream_out *s = src == &cmd->out[0].copy ? &cmd->out[0] : &cmd->out[1];
    if (events & EPOLLERR)
        stream_out_copy_unread(g, s);
    stream_out_fill(g, s);
    cmd_note_news(cmd);
    cmd_settle(g, cmd);
}

/* Prepares the copy of an output stream to a pipe of the host. -1 with errno on failure. */
static int adopt_copy(struct guest *g, struct cmd *cmd, struct stream_out *out, int fd) {
    out->copy = (struct source){fd, copy_ready, cmd};
    out->spill = log_spill((size_t)(cmd - g->cmds), out->index);
    return relay_open(g) < 0 ? -1 : source_add(g, &out->copy, EPOLLOUT | EPOLLET);
}

/*
 * Adds the streams of a command to the event loop. They are edge-triggered, so a stream that is
 * full or empty wakes the loop only once.
 */
static int adopt_streams(struct guest *g, struct cmd *cmd, struct stdio *io, uint32_t window) {
    struct stream_in *in = &cmd->in;
    if (io->host[0] >= 0) {
        *in = (struct stream_in){.size = window, .is_terminal = io->is_terminal};
        in->src = (struct source){TAKE_FD(io->host[0]), in_ready, cmd};
        if (source_add(g, &in->src, EPOLLOUT | EPOLLET) < 0)
            return -1;
    }
    for (int i = 0; i < 2; i++) {
        if (io->host[1 + i] < 0) {
            log_end(&cmd->log, i);
            continue;
        }
        struct stream_out *out = &cmd->out[i];
        *out = (struct stream_out){
            .size = window, .index = i, .is_terminal = i == 0 && io->is_terminal};
        out->log = cmd->log.fd >= 0 ? &cmd->log : NULL;
        out->produced = out->copied = out->log ? out->log->w.produced[i] : 0;
        out->paced = out->log && cmd->flags & MSG_EXEC_PACED;
        out->may_reopen = out->is_terminal;
        out->src = (struct source){TAKE_FD(io->host[1 + i]), out_ready, cmd};
        out->copy.fd = -1;
        out->copy_end = UINT64_MAX;
        if (source_add(g, &out->src, EPOLLIN | EPOLLET) < 0 ||
            (io->copy[1 + i] >= 0 && adopt_copy(g, cmd, out, TAKE_FD(io->copy[1 + i])) < 0))
            return -1;
    }
    return 0;
}

/* Start of a command (EXEC). */

static struct conn *spawner(struct guest *g) {
    for (uint32_t i = 0; i < g->conn_end; i++)
        if (g->conns[i].src.fd >= 0 && g->conns[i].is_privileged && g->conns[i].greeted)
            return &g->conns[i];
    return NULL;
}

/* A guest in a vm makes its cgroups itself, and its host is the daemon, not the spawner. */
static void ask_for_spares(struct guest *g, uint8_t count, int64_t now) {
    struct conn *c = g->cgroups ? NULL : spawner(g);
    if (!c || !conn_has_room(c) || (g->asked_ns && now - g->asked_ns < ASK_AGAIN_NS))
        return;
    g->asked_ns = now;
    struct frame_head head = {.type = MSG_SPARES_WANT};
    guest_conn_send(c, &head, &(struct msg_spares){.count = count});
}

/*
 * Asks for more spare cgroups in a moment, if none is left then: most machines run one short
 * command after another, and cgroups take time and memory.
 */
static void ask_later(struct guest *g) {
    if (g->ask_ns || tree_spares(g) > 0)
        return;
    g->ask_ns = now_ns() + ASK_LATER_NS;
    g->has_timers = true;
}

/* Returns when the loop must go on: at once after a question, because it sends only then. */
static int64_t tick_spares(struct guest *g, int64_t now) {
    if (!g->ask_ns || now < g->ask_ns)
        return g->ask_ns ? g->ask_ns : INT64_MAX;
    g->ask_ns = 0;
    if (tree_spares(g) > 0)
        return INT64_MAX;
    /* As many as are in use: a machine with several commands at a time soon starts more. */
    ask_for_spares(g, g->tree_end < SPARES_ASK ? (uint8_t)g->tree_end : SPARES_ASK, now);
    return now;
}

/*
 * Takes a spare cgroup for a new command. NULL with *ret_wait set: the spawner may send one later;
 * else none will come.
 */
static struct tree *take_tree(struct guest *g, struct conn *c, bool *ret_wait) {
    struct tree *tree = tree_take(g);
    if (!tree) {
        cmd_sweep(g);
        tree = tree_take(g);
    }
    int64_t now = tree ? 0 : now_ns();
    if (!tree)
        ask_for_spares(g, SPARES_ASK, now);
    else
        ask_later(g);
    /* A dead spawner is started again by the next client that needs it, so waiting can succeed. */
    *ret_wait = spawner(g) != c && (!c->stalled_ns || now - c->stalled_ns < STALL_MAX_NS);
    return tree;
}

static bool exec_is_sound(const struct frame *f, const struct msg_exec *e, bool is_serial) {
    uint32_t fds = f->head.flags & FRAME_FDS_MASK;
    /* Over a serial port the guest makes the log: see stdio_needs_fds(). */
    uint32_t with_fd = is_serial ? MSG_EXEC_WITH_FD & ~MSG_EXEC_LOG : MSG_EXEC_WITH_FD;
    uint32_t more = (uint32_t)__builtin_popcount(e->flags & with_fd);
    bool has_name = !(e->flags & MSG_EXEC_NAMED) || (e->env.count > 0 && e->cwd.n > 0);
    bool has_log = e->flags & MSG_EXEC_LOG || !(e->flags & MSG_EXEC_COPY);
    return f->head.id != 0 && e->argv.count > 0 && has_name && has_log &&
           stdio_is_sound(e->stdio) && fds == stdio_count_fds(e->stdio) + more &&
           (e->window == 0 || (e->window >= MSG_WINDOW_MIN && e->window <= MSG_WINDOW_MAX));
}

static void say_failed(struct conn *c, const struct frame *f, int number, enum msg_step step) {
    struct frame_head head = {.type = MSG_EXEC_FAILED, .id = f->head.id, .tag = f->head.tag};
    guest_conn_send(c, &head, &(struct msg_exec_failed){(uint32_t)number, step});
}

static void cmd_begin(struct guest *g, struct cmd *cmd, struct conn *c, const struct frame *f,
                      const struct msg_exec *e) {
    uint32_t end = (uint32_t)(cmd - g->cmds) + 1;
    g->cmd_end = g->cmd_end < end ? end : g->cmd_end;
    cmd->id = f->head.id;
    cmd->state = MSG_STATE_RUNNING;
    cmd->flags = e->flags;
    cmd->conn = c;
    cmd->started_ns = now_ns();
    memcpy(cmd->stdio, e->stdio, sizeof(cmd->stdio));
    uint64_t most_ms = (uint64_t)(INT64_MAX - cmd->started_ns) / 1000000;
    if (e->timeout_ms && e->timeout_ms <= most_ms)
        cmd->deadline_ns = cmd->started_ns + (int64_t)e->timeout_ms * 1000000;
}

/*
 * Opens the log of the command and the guest's ends of its pipes and terminal. -1 with errno on
 * failure.
 */
static int cmd_open(struct guest *g, struct cmd *cmd, struct stdio *io, const struct msg_exec *e,
                    uint32_t window) {
    int *fds = cmd->conn->fds;
    int log = -1;
    if (e->flags & MSG_EXEC_LOG)
        log = cmd->conn->serial ? log_make(e->stdio) : TAKE_FD(fds[stdio_count_fds(e->stdio)]);
    if (e->flags & MSG_EXEC_LOG && log_open(&cmd->log, log, e->flags & MSG_EXEC_STATE) < 0)
        return -1;
    return stdio_open(io, e, fds, g->null) < 0 ? -1 : adopt_streams(g, cmd, io, window);
}

/* Takes the last of the descriptors up to *end, if the command has it. */
static int take_last(int **end, bool has) {
    *end -= has;
    return has ? TAKE_FD(**end) : -1;
}

/* Starts a command that is in the table. On failure it sends the reply and frees the slot. */
static void cmd_start(struct guest *g, struct cmd *cmd, const struct frame *f,
                      const struct msg_exec *e) {
    struct conn *c = cmd->conn;
    struct stdio io DEFER(stdio_done) = STDIO_NONE;
    int *end = c->fds + (f->head.flags & FRAME_FDS_MASK); /* enough of them: exec_is_sound() */
    int state DEFER_CLOSE = take_last(&end, e->flags & MSG_EXEC_STATE);
    int dump DEFER_CLOSE = take_last(&end, e->flags & MSG_EXEC_DUMP);
    int asks DEFER_CLOSE = take_last(&end, e->flags & MSG_EXEC_ASKS);
    int control DEFER_CLOSE = -1;
    struct start s = {.exec = e,
                      .asks = asks,
                      .dump = dump,
                      .state = state,
                      .files = g->command_files,
                      .procs = cmd->tree ? cmd->tree->procs : -1,
                      .deadline_ns = cmd->deadline_ns,
                      .worker = g->worker,
                      .is_session = e->stdio[0] == MSG_STDIO_PTY};
    uint32_t window = e->window ? e->window : MSG_WINDOW_DEFAULT;
    if (cmd_open(g, cmd, &io, e, window) < 0 || worker_open(g, cmd, &control) < 0) {
        say_failed(c, f, errno, MSG_STEP_STDIO);
        cmd_free(g, cmd);
        return;
    }
    s.tool = e->flags & MSG_EXEC_TOOL ? guest_tool_find(e->argv.s) : NULL;
    if (e->flags & MSG_EXEC_TOOL && !s.tool) {
        say_failed(c, f, ENOENT, MSG_STEP_EXEC);
        cmd_free(g, cmd);
        return;
    }
    memcpy(s.stdio, io.child, sizeof(s.stdio));
    s.meter = cmd->meter;
    s.control = control;
    start_process(&s);
    g->is_childless = g->is_childless && s.failed_errno;
    if (s.failed_errno) {
        if (s.failed_step == MSG_STEP_CGROUP) {
            tree_drop(cmd->tree);
            cmd->tree = NULL;
        }
        say_failed(c, f, s.failed_errno, s.failed_step);
        cmd_free(g, cmd);
        return;
    }
    cmd->pid = s.pid;
    if (cmd->deadline_ns && now_ns() >= cmd->deadline_ns)
        /* start_process() may have killed the command at its deadline */
        cmd->exit.flags |= MSG_EXIT_TIMED_OUT;
    g->has_timers = g->has_timers || cmd->deadline_ns;
    if (e->flags & MSG_EXEC_QUIET)
        return;
    struct frame_head head = {.type = MSG_EXEC_STARTED, .id = cmd->id, .tag = f->head.tag};
    guest_conn_send(c, &head, &(struct msg_started){(uint32_t)s.pid, window});
}

static bool id_is_taken(struct guest *g, uint32_t id) {
    if (!cmd_find(g, id))
        return false;
    cmd_sweep(g);
    return cmd_find(g, id);
}

enum serve_result cmd_take_exec(struct guest *g, struct conn *c, const struct frame *f) {
    static struct msg_exec e;
    SERVE_GET(exec, f, &e);
    if (c->serial && stdio_needs_fds(&e)) {
        guest_conn_refuse(c, f, ERR_UNSUPPORTED,
                          "a serial port cannot pass the file descriptors of the command");
        return SERVE_DONE;
    }
    if (!exec_is_sound(f, &e, c->serial))
        return SERVE_BROKEN;
    if (id_is_taken(g, f->head.id)) {
        guest_conn_refuse(c, f, ERR_EXISTS,
                          "the id of the new command is already in use in the machine");
        return SERVE_DONE;
    }
    struct cmd *cmd = cmd_new(g);
    bool can_wait = false;
    struct tree *tree = g->has_trees && cmd ? take_tree(g, c, &can_wait) : NULL;
    if (!cmd || (g->has_trees && !tree)) {
        if (cmd && can_wait) {
            c->stalled_ns = c->stalled_ns ? c->stalled_ns : now_ns();
            g->has_timers = true;
            return SERVE_STALLED;
        }
        guest_conn_refuse(c, f, ERR_LIMIT,
                          cmd ? "cannot start another command: the machine has no free cgroup"
                              : "too many commands run in the machine");
        return SERVE_DONE;
    }
    cmd->tree = tree;
    warm_remember(e.argv.s);
    cmd_begin(g, cmd, c, f, &e);
    cmd_start(g, cmd, f, &e);
    return SERVE_DONE;
}

/*
 * Messages about one command. Input and credit (confirmed output) for a command that has ended are
 * ignored: they may arrive late.
 */

enum serve_result cmd_stdin(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_data data;
    SERVE_GET(input, f, &data);
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (!cmd || cmd->conn != c || cmd->in.size == 0)
        return SERVE_DONE;
    if (!stream_in_add(g, &cmd->in, &data, f->head.flags & FRAME_EOF))
        return SERVE_BROKEN;
    cmd_note_news(cmd);
    return SERVE_DONE;
}

enum serve_result cmd_credit(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_credit credit;
    SERVE_GET(credit, f, &credit);
    if (credit.stream != 1 && credit.stream != 2)
        return SERVE_BROKEN;
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (!cmd || cmd->conn != c || cmd->out[credit.stream - 1].size == 0)
        return SERVE_DONE;
    struct stream_out *s = &cmd->out[credit.stream - 1];
    if (!stream_out_credit(s, credit.consumed))
        return SERVE_BROKEN;
    stream_out_fill(g, s);
    cmd_note_news(cmd);
    return SERVE_DONE;
}

enum serve_result cmd_exit_ack(struct guest *g, struct conn *c, const struct frame *f) {
    (void)c;
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (cmd && cmd->state == MSG_STATE_EXITED) {
        cmd->state = MSG_STATE_LEFT;
        cmd_settle(g, cmd);
    }
    conn_ok(c, f, 0);
    return SERVE_DONE;
}

enum serve_result cmd_signal(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_signal m;
    SERVE_GET(signal, f, &m);
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (!cmd || cmd->state != MSG_STATE_RUNNING) {
        guest_conn_refuse(c, f, cmd ? ERR_GONE : ERR_NOT_FOUND,
                          "cannot send a signal: the command does not run");
        return SERVE_DONE;
    }
    pid_t to = cmd->pid;
    if (m.group)
        to = -(cmd->out[0].is_terminal ? stdio_foreground(cmd->out[0].src.fd, cmd->pid) : cmd->pid);
    if (m.number > 64 || kill(to, (int)m.number) < 0)
        conn_fail(c, f, m.number > 64 ? EINVAL : errno, "cannot send a signal to the command");
    else
        conn_ok(c, f, 0);
    return SERVE_DONE;
}

/*
 * Kills all processes of a command. If its exit was acknowledged, this also closes its streams,
 * which nobody will read.
 */
enum serve_result cmd_kill(struct guest *g, struct conn *c, const struct frame *f) {
    if (f->head.id == MSG_KILL_ALL) {
        /* kills all processes of the machine; it fails if there is none, which is fine */
        kill(-1, SIGKILL);
        conn_ok(c, f, 0);
        return SERVE_DONE;
    }
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (!cmd) {
        guest_conn_refuse(c, f, ERR_NOT_FOUND,
                          "cannot kill the command: the guest does not know it");
        return SERVE_DONE;
    }
    cmd->exit.flags |= cmd->state == MSG_STATE_RUNNING ? MSG_EXIT_KILLED : 0;
    cmd_kill_tree(g, cmd);
    for (int i = 0; cmd->state == MSG_STATE_LEFT && i < 2; i++) {
        stream_out_close(g, &cmd->out[i]);
        cmd->out[i] = (struct stream_out){.src.fd = -1, .copy.fd = -1};
    }
    cmd_note_news(cmd);
    cmd_settle(g, cmd);
    conn_ok(c, f, 0);
    return SERVE_DONE;
}

enum serve_result cmd_resize(struct guest *g, struct conn *c, const struct frame *f) {
    struct msg_resize m;
    SERVE_GET(resize, f, &m);
    struct cmd *cmd = cmd_find(g, f->head.id);
    if (!cmd || !cmd->out[0].is_terminal)
        guest_conn_refuse(c, f, cmd ? ERR_INVALID : ERR_NOT_FOUND,
                          "cannot resize the terminal: the command is unknown or has none");
    else if (stdio_resize(cmd->out[0].src.fd, m.rows, m.cols) < 0)
        conn_fail(c, f, errno, "cannot resize the terminal of the command");
    else
        conn_ok(c, f, 0);
    return SERVE_DONE;
}

/* Messages to the host. */

static void send_chunk(struct conn *c, struct cmd *cmd, int i) {
    struct stream_out *s = &cmd->out[i];
    if (!stream_out_has_news(s))
        return;
    uint64_t left = s->produced - s->sent;
    uint32_t n = left < MSG_CHUNK_MAX ? (uint32_t)left : MSG_CHUNK_MAX;
    bool is_last = s->eof && n == left;
    struct frame_head head = {
        .type = i == 0 ? MSG_STDOUT : MSG_STDERR, .flags = is_last ? FRAME_EOF : 0, .id = cmd->id};
    uint8_t *at = conn_tail(c, &head, &(struct msg_data){.offset = s->sent}, n);
    stream_out_take(s, at, n);
    s->eof_sent = is_last;
}

static void send_credit(struct conn *c, struct cmd *cmd) {
    if (cmd->in.size == 0 || !stream_in_owes_credit(&cmd->in))
        return;
    cmd->in.reported = cmd->in.written;
    struct frame_head head = {.type = MSG_CREDIT, .id = cmd->id};
    guest_conn_send(c, &head, &(struct msg_credit){.stream = 0, .consumed = cmd->in.written});
}

static void send_exit(struct conn *c, struct cmd *cmd) {
    struct frame_head head = {.type = MSG_FUEL, .id = cmd->id};
    if (cmd->meter >= 0)
        guest_conn_send(c, &head, &(struct msg_fuel){cmd->fuel});
    head.type = MSG_EXIT;
    guest_conn_send(c, &head, &cmd->exit);
    cmd->exit_sent = true;
}

/* Sends one chunk of each output stream of the command, and its exit status if it has exited. */
static void cmd_say(struct guest *g, struct conn *c, struct cmd *cmd) {
    send_credit(c, cmd);
    for (int i = 0; i < 2; i++)
        if (conn_has_room(c))
            send_chunk(c, cmd, i);
    if (log_has_news(&cmd->log) && conn_has_room(c))
        cmd_answer_wait(cmd);
    if (pause_has_news(cmd) && conn_has_room(c))
        pause_answer(c, cmd);
    if (cmd->state == MSG_STATE_EXITED && !cmd->exit_sent && conn_has_room(c))
        send_exit(c, cmd);
    cmd_settle(g, cmd);
}

static bool cmd_has_news(const struct cmd *cmd) {
    return stream_out_has_news(&cmd->out[0]) || stream_out_has_news(&cmd->out[1]) ||
           (cmd->state == MSG_STATE_EXITED && !cmd->exit_sent) ||
           (cmd->in.size && stream_in_owes_credit(&cmd->in)) || log_has_news(&cmd->log) ||
           pause_has_news(cmd);
}

/*
 * Each command in turn sends one chunk per stream, so that a command with much output cannot block
 * others.
 */
void cmd_pump(struct guest *g, struct conn *c) {
    for (bool any = true; any;) {
        any = false;
        uint32_t n = g->cmd_end;
        for (uint32_t k = 0; k < n; k++) {
            struct cmd *cmd = &g->cmds[(g->pump_from + k) % n];
            if (!cmd->id || cmd->conn != c || !cmd_has_news(cmd))
                continue;
            if (!conn_has_room(c)) {
                g->pump_from = (uint32_t)(cmd - g->cmds);
                return;
            }
            cmd_say(g, c, cmd);
            any = true;
        }
    }
    c->has_work = false;
}

/* Exit and timeout of a command. */

static uint64_t us_of(const struct timeval *t) {
    return (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_usec;
}

static void cmd_exited(struct guest *g, struct cmd *cmd, int status, const struct rusage *usage) {
    struct msg_exit *e = &cmd->exit;
    if (WIFSIGNALED(status))
        e->flags |= MSG_EXIT_SIGNALED | (WCOREDUMP(status) ? MSG_EXIT_CORE : 0);
    e->status = (uint32_t)(WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    e->user_us = us_of(&usage->ru_utime);
    e->system_us = us_of(&usage->ru_stime);
    e->max_rss_kb = (uint64_t)usage->ru_maxrss;
    e->wall_us = (uint64_t)(now_ns() - cmd->started_ns) / 1000;
    cmd->state = MSG_STATE_EXITED;
    worker_read_fuel(cmd);
    cmd->deadline_ns = 0;
    cmd->out[0].may_reopen = false;
    for (int i = 0; i < 2; i++) {
        cmd->out[i].readable = cmd->out[i].src.fd >= 0;
        /* the command has exited: read its output until the end of the pipe */
        cmd->out[i].hung_up |= cmd->out[i].log != NULL;
        stream_out_copy_stop(&cmd->out[i]);
        stream_out_fill(g, &cmd->out[i]);
    }
    if (cmd->flags & MSG_EXEC_KILL_LEFT)
        cmd_kill_tree(g, cmd);
    cmd_note_news(cmd);
}

/* Processes are left after the commands that just ended: their exit messages say so. */
static void note_beside(struct guest *g) {
    for (uint32_t i = 0; i < g->cmd_end; i++)
        if (g->cmds[i].id && g->cmds[i].state == MSG_STATE_EXITED && !g->cmds[i].exit_sent)
            g->cmds[i].exit.flags |= MSG_EXIT_BESIDE;
}

/*
 * Ends the tracing of a command that asked its parent, the guest, to trace it (PTRACE_TRACEME): the
 * guest is no debugger, and the command has stopped, not exited. SIGTRAP only reports an exec.
 */
static void cmd_untrace(pid_t pid, int status) {
    int number = WSTOPSIG(status) == SIGTRAP ? 0 : WSTOPSIG(status);
    ptrace(PTRACE_DETACH, pid, NULL, (void *)(intptr_t)number);
}

void cmd_reap(struct guest *g) {
    struct rusage usage;
    int status;
    pid_t pid;
    bool any = false;
    while ((pid = wait4(-1, &status, WNOHANG | __WALL, &usage)) > 0) {
        if (WIFSTOPPED(status)) {
            cmd_untrace(pid, status);
            continue;
        }
        struct cmd *cmd = cmd_find_pid(g, pid);
        any |= cmd != NULL;
        if (cmd)
            cmd_exited(g, cmd, status, &usage);
        else
            files_child_ended(g, pid, status);
    }
    bool was_childless = g->is_childless;
    g->is_childless = pid < 0 && errno == ECHILD;
    if (g->is_childless && !was_childless)
        cmd_sweep(g);
    if (any && !g->is_childless)
        note_beside(g);
}

static int64_t earlier(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* Copies output that there was no memory for. True: there is still none. */
static bool tick_copies(struct guest *g, struct cmd *cmd) {
    for (int i = 0; i < 2; i++) {
        if (!cmd->out[i].is_starved)
            continue;
        cmd->out[i].is_starved = false;
        stream_out_fill(g, &cmd->out[i]);
        cmd_note_news(cmd);
    }
    return cmd->out[0].is_starved || cmd->out[1].is_starved;
}

static int64_t tick_one(struct guest *g, struct cmd *cmd, int64_t now) {
    if (cmd->deadline_ns && now >= cmd->deadline_ns) {
        cmd->deadline_ns = 0;
        cmd->exit.flags |= MSG_EXIT_TIMED_OUT;
        cmd_kill_tree(g, cmd);
    } else if (cmd->killing) {
        cmd_kill_tree(g, cmd);
        cmd_settle(g, cmd);
        if (!cmd->id)
            return INT64_MAX;
    }
    int64_t next = cmd->deadline_ns ? cmd->deadline_ns : INT64_MAX;
    if (tick_copies(g, cmd))
        next = earlier(next, now + COPY_AGAIN_NS);
    return cmd->killing ? earlier(next, now + KILL_AGAIN_NS) : next;
}

int64_t cmd_tick(struct guest *g, int64_t now) {
    int64_t next = tick_spares(g, now);
    for (uint32_t i = 0; i < g->cmd_end; i++)
        if (g->cmds[i].id)
            next = earlier(next, tick_one(g, &g->cmds[i], now));
    for (uint32_t i = 0; i < g->conn_end; i++)
        if (g->conns[i].src.fd >= 0 && g->conns[i].stalled_ns)
            next = earlier(next, now + ASK_AGAIN_NS); /* ask again: the spawner may have died */
    return next;
}
