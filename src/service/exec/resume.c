/* Resumes stored commands (exec/stored.h), also those of an earlier daemon. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/capability.h"
#include "base/cell_command.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/asks.h"
#include "service/exec/inner.h"
#include "service/exec/logs.h"
#include "service/exec/stored.h"

enum { RESUME_AGAIN_MS = 50, RESUME_TRIES = 200 };

bool execs_are_stored(const struct live *l) {
    for (const struct exec *x = l->execs->first; x; x = x->next)
        if (x->is_stored)
            return true;
    return false;
}

bool exec_is_stored(const struct live *l, uint32_t number) {
    for (const struct exec *x = l->execs->first; x; x = x->next)
        if (x->row.number == number)
            return x->is_stored;
    return false;
}

/* ---- commands that end without a process ---- */

/* The outcome is told after its commit, as always. The file is removed then (exec_over()). */
static void end_stored(struct exec *x, enum exec_state state, int number, enum exec_end end,
                       const char *reason) {
    struct exec_row *row = exec_decide(x);
    if (!row)
        return;
    x->lost = true; /* no more output comes */
    row->signal = (uint32_t)number;
    if (state == EXEC_EXITED)
        exec_row_set_end(row, end);
    else
        row->state = state;
    if (reason)
        snprintf(row->reason, sizeof(row->reason), "%s", reason);
    exec_conclude(x);
}

void execs_end_stored(struct live *l) {
    for (struct exec *x = l->execs->first, *next; x; x = next) {
        next = x->next;
        if (x->is_stored)
            end_stored(x, EXEC_EXITED, SIGKILL, EXEC_END_SIGNAL, NULL);
    }
}

void exec_end_stored(struct exec *x, int number, bool is_kill) {
    end_stored(x, EXEC_EXITED, number, is_kill ? EXEC_END_KILLED : EXEC_END_SIGNAL, NULL);
}

static void resume_failed(struct exec *x, const char *why) {
    char reason[STORE_REASON_SIZE];
    snprintf(reason, sizeof(reason), "the stored command cannot be resumed: %.200s", why);
    end_stored(x, EXEC_UNKNOWN, 0, EXEC_END_NONE, reason);
}

/* ---- resuming ---- */

static int write_resumed(void *arg, struct err *err) {
    const struct exec *x = arg;
    struct stored_mark m = {.stdin_at = x->stdin_base};
    if (x->time_left_ms) {
        uint64_t ran = loop_now_ms(x->service->loop) - x->resumed_ms;
        m.left_ms = (uint64_t)wall_ms() + x->time_left_ms - ran;
    }
    char mark[STORE_STORED_SIZE];
    stored_print(&m, mark);
    return store_exec_store(x->service->store, x->row.id, mark, err);
}

/* The row says that the command is not stored: now the worker may go on. */
static void resumed_written(void *arg, const struct err *failed) {
    struct exec *x = arg;
    if (failed)
        log_line(LOG_ERROR, "service", "resume a command: %s exec=%s", failed->text, x->row.id);
    x->is_stored = x->resuming = false;
    if (x->live && x->live->machine && x->sent && x->phase == EXEC_OPEN)
        guest_tell(x->live->machine->guest,
                   (struct frame_head){.type = MSG_GO_ON, .id = x->row.number}, NULL, NULL);
    stored_remove(x->service->place->home, x->row.machine, x->row.id);
    exec_feed(x);
    exec_tell(x); /* writers of input go on */
    exec_unref(x);
}

void exec_resumed(struct exec *x) {
    exec_ref(x);
    const struct commit commit = {write_resumed, resumed_written, NULL, x};
    commit_run(x->service->commits, &x->live->lane, &commit);
}

static void resume_again(void *arg) {
    struct exec *x = arg;
    loop_timer_free(TAKE(x->again));
    /* After a new connection it was sent already. */
    if (x->live && x->live->machine && x->is_stored && !x->sent && x->phase == EXEC_OPEN) {
        x->resuming = false;
        exec_resume(x);
    }
    exec_unref(x);
}

/* The process that was stored may still be exiting, or is left over from an earlier daemon. */
bool exec_resume_refused(struct exec *x, const struct err *why) {
    struct guest *guest = x->live->machine->guest;
    x->sent = false;
    exec_becomes_stored(x);
    if (why->code != ERR_EXISTS || x->tries++ >= RESUME_TRIES) {
        resume_failed(x, why->text);
        return true;
    }
    guest_tell(guest, (struct frame_head){.type = MSG_KILL, .id = x->row.number}, NULL, NULL);
    guest_tell(guest, (struct frame_head){.type = MSG_EXIT_ACK, .id = x->row.number}, NULL, NULL);
    if (x->again)
        return true;
    exec_ref(x);
    x->again = loop_timer_new(x->service->loop, resume_again, x);
    loop_timer_start(x->again, RESUME_AGAIN_MS, 0);
    return true;
}

/* Sets streams and descriptors as at the start. Without the caller's pipes, the log has all output.
 */
static void resume_streams(struct exec *x, struct msg_exec *exec, struct exec_fds *fds) {
    for (int i = 0; i < 3; i++) {
        exec->stdio[i] = x->stdio[i];
        if (x->stdio[i] == MSG_STDIO_FD && x->handed[i] < 0)
            exec->stdio[i] = i ? MSG_STDIO_PIPE : MSG_STDIO_NULL;
        if (exec->stdio[i] != MSG_STDIO_FD)
            continue;
        fds->v[fds->count++] = x->handed[i];
        if (i)
            exec->flags |= MSG_EXEC_COPY;
    }
    x->copied = exec->flags & MSG_EXEC_COPY;
    fds->v[fds->count++] = x->log.fd;
}

static int resume_asks(struct exec *x) {
    struct err err;
    return asks_are_allowed(x->live, CAPABILITY_ALL) ? asks_open(x->live, CAPABILITY_ALL, &err)
                                                     : -1;
}

/* Input goes on where it was: offsets of the guest begin with 0 again. */
static void resume_input(struct exec *x) {
    x->stdin_base = x->stdin_consumed = x->stdin_sent;
    if (x->stdio[0] != MSG_STDIO_PIPE || !x->stdin_ended)
        return;
    struct frame_head head = {.type = MSG_STDIN, .id = x->row.number, .flags = FRAME_EOF};
    guest_tell(x->live->machine->guest, head, &(struct msg_data){0}, NULL);
}

void exec_resume(struct exec *x) {
    static const char *const words[] = {CELL_RESUME_NAME, NULL};
    struct live *l = x->live;
    struct exec_fds fds = {0};
    struct err err;
    int state DEFER_CLOSE = stored_open(x->service->place->home, l->row.id, x->row.id, &err);
    if (state < 0 || x->log.fd < 0 || !guest_stores_commands(l->machine->guest)) {
        if (state >= 0)
            err_set(&err, ERR_UNSUPPORTED, "its output or its guest is missing");
        resume_failed(x, err.text);
        return;
    }
    struct msg_exec exec = {.flags = MSG_EXEC_LOG | MSG_EXEC_STATE,
                            .uid = 0,
                            .gid = 0,
                            .groups = {.count = 1, .v = {0}},
                            .timeout_ms = x->time_left_ms,
                            .cwd = {.s = "/", .n = 1},
                            .argv = {.v = words}};
    resume_streams(x, &exec, &fds);
    int asks DEFER_CLOSE = resume_asks(x);
    if (asks >= 0) {
        exec.flags |= MSG_EXEC_ASKS;
        fds.v[fds.count++] = asks;
    }
    fds.v[fds.count++] = state;
    x->resuming = x->sent = true;
    x->resumed_ms = loop_now_ms(x->service->loop);
    exec_counts_as_running(x);
    exec_prepare(x);
    guest_exec(l->machine->guest, &x->command, &exec, fds.v, fds.count);
    resume_input(x);
    exec_listen(x);
    exec_pace(x, true);
}

void execs_resume(struct live *l) {
    for (struct exec *x = l->execs->first, *next; x && l->machine; x = next) {
        next = x->next;
        if (x->is_stored && !x->resuming && x->phase == EXEC_OPEN)
            exec_resume(x);
    }
}

/* ---- the next daemon ---- */

/* Makes a log that holds the saved output, for the guest to go on with. */
static int restore_log(struct exec *x, struct err *err) {
    int file DEFER_CLOSE = logs_open(x->service->place->home, x->row.machine, x->row.id);
    if (file < 0)
        return exec_make_log(x, err);
    return outlog_fd_restore(&x->log, file, &x->kept_so_far, err);
}

static void adopt_stored(struct live *l, struct exec_row *row, const struct stored_mark *m) {
    struct exec *x = exec_new(l->service);
    struct err err;
    x->row = *row;
    row->argv = row->cwd = NULL;
    snprintf(x->who.owner, sizeof(x->who.owner), "%s", x->row.owner);
    exec_link(x, l);
    exec_count(x);
    memcpy(x->stdio, m->stdio, sizeof(x->stdio));
    x->time_left_ms = m->left_ms;
    x->stdin_sent = x->stdin_consumed = m->stdin_at;
    x->stdin_ended = m->stdin_ended;
    x->is_stored = true;
    if (x->row.state == EXEC_STARTING)
        x->row.state = EXEC_RUNNING;
    if (restore_log(x, &err) < 0)
        log_line(LOG_WARN, "service", "open the output of a stored command: %s exec=%s", err.text,
                 x->row.id);
    exec_unref(x);
}

static bool keeps_stored(void *arg, const char *exec) {
    const struct live *l = arg;
    for (const struct exec *x = l->execs->first; x; x = x->next)
        if (x->is_stored && strcmp(x->row.id, exec) == 0)
            return true;
    return false;
}

static int adopt_page(struct live *l, uint32_t *last, struct err *err) {
    struct exec_list list DEFER(exec_list_done) = {0};
    struct exec_filter filter = {.machine = l->row.id,
                                 .limit = STORE_PAGE_MAX,
                                 .before = *last,
                                 .states = 1u << EXEC_STARTING | 1u << EXEC_RUNNING};
    if (store_exec_list(l->service->store, &filter, &list, err) < 0)
        return -1;
    for (size_t i = 0; i < list.count; i++) {
        struct stored_mark m;
        *last = list.rows[i].number;
        if (stored_parse(list.rows[i].stored, &m) && m.is_stored &&
            !exec_is_listed(l, list.rows[i].number))
            adopt_stored(l, &list.rows[i], &m);
    }
    return list.count == STORE_PAGE_MAX;
}

int execs_adopt_stored(struct live *l, struct err *err) {
    uint32_t last = 0;
    int more;
    while ((more = adopt_page(l, &last, err)) > 0)
        ;
    if (more == 0)
        stored_drop(l->service->place->home, l->row.id, keeps_stored, l);
    return more;
}
