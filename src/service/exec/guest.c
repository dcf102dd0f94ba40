/* Reports of a guest about its commands, and the queries after a new connection. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/inner.h"
#include "service/exec/stored.h"

enum { READER_BACK_MS = 10 * 1000 };

static int write_started(void *arg, struct err *err) {
    const struct exec *x = arg;
    char json[64];
    snprintf(json, sizeof(json), "{\"exec\":\"%s\"}", x->row.id);
    if (store_exec_started(x->service->store, x->row.id, x->started_ms, x->row.pid, err) < 0)
        return -1;
    return x->row.flags & EXEC_NO_STEP
               ? 0
               : event_put(x->service, x->row.owner, x->row.machine, "exec.started", json, err);
}

static void started_written(void *arg, const struct err *failed) {
    struct exec *x = arg;
    if (failed)
        log_line(LOG_ERROR, "service", "save the start of a command: %s exec=%s", failed->text,
                 x->row.id);
    if (!failed && x->row.state == EXEC_STARTING) {
        x->row.state = EXEC_RUNNING;
        x->row.started_ms = x->started_ms;
    }
    exec_start_done(x, NULL);
    exec_tell(x);
    exec_unref(x);
}

static void on_started(void *arg, const struct msg_started *m) {
    struct exec *x = arg;
    if (x->phase < EXEC_DECIDED)
        x->row.pid = m->pid;
    if (x->resuming) {
        exec_resumed(x);
        return;
    }
    if (x->phase >= EXEC_DECIDED || x->started_ms || x->row.state != EXEC_STARTING)
        return;
    x->started_ms = wall_ms();
    exec_ref(x);
    const struct commit commit = {write_started, started_written, NULL, x};
    commit_run(x->service->commits, &x->live->lane, &commit);
}

static const char *step_name(uint32_t step) {
    static const char *const names[] = {
        [MSG_STEP_FORK] = "start",
        [MSG_STEP_CGROUP] = "join the cgroup of",
        [MSG_STEP_STDIO] = "open the streams of",
        [MSG_STEP_RLIMIT] = "set limits of",
        [MSG_STEP_USER] = "become the user of",
        [MSG_STEP_CWD] = "enter",
        [MSG_STEP_EXEC] = "run",
    };
    return step < sizeof(names) / sizeof(*names) && names[step] ? names[step] : "start";
}

/* The command never ran, so its id is free again in the guest, and no output comes. */
static struct exec_row *decide_failed(struct exec *x, int exit_code) {
    struct exec_row *row = exec_decide(x);
    if (!row)
        return NULL;
    row->state = EXEC_FAILED;
    row->exit_code = exit_code;
    x->sent = false;
    x->lost = true;
    guest_forget(x->live->machine->guest, &x->command, false);
    return row;
}

static void on_failed(void *arg, const struct msg_exec_failed *m) {
    struct exec *x = arg;
    struct err why;
    err_set(&why, ERR_INTERNAL, "%s the worker: %s", step_name(m->step), strerror((int)m->number));
    if (x->resuming && exec_resume_refused(x, &why))
        return;
    int code = m->step != MSG_STEP_EXEC ? 125 : m->number == ENOENT ? 127 : 126;
    struct exec_row *row = decide_failed(x, code);
    if (!row)
        return;
    if (m->step == MSG_STEP_USER && m->number == ENOENT)
        snprintf(row->reason, sizeof(row->reason),
                 "there is no user '%.60s' in /etc/passwd of the machine", x->row.user);
    else
        snprintf(row->reason, sizeof(row->reason), "%s '%.60s': %s", step_name(m->step),
                 m->step == MSG_STEP_CWD ? x->row.cwd : x->program, strerror((int)m->number));
    exec_conclude(x);
}

static void on_refused(void *arg, const struct err *why) {
    struct exec *x = arg;
    if (x->resuming && exec_resume_refused(x, why))
        return;
    struct exec_row *row = decide_failed(x, 125);
    if (!row)
        return;
    snprintf(row->reason, sizeof(row->reason), "%s", why->text);
    exec_conclude(x);
}

void exec_listen(struct exec *x) {
    bool wanted = exec_is_over(x);
    for (struct exec_follower *f = x->followers; f && !wanted; f = f->next)
        wanted = f->wants_output;
    if (!wanted || x->waiting || !x->sent || x->log.fd < 0 || exec_output_over(x) || !x->live ||
        !x->live->machine)
        return;
    x->waiting = true;
    guest_log_wait(x->live->machine->guest, &x->command, &x->told);
}

/* Returns what the slowest reader of a stream has consumed; UINT64_MAX: nobody needs it all. */
static uint64_t pace_of_readers(const struct exec *x, int stream) {
    uint64_t consumed = x->awaits_reader ? 0 : UINT64_MAX;
    for (const struct exec_follower *f = x->followers; f; f = f->next)
        if (f->consumed[stream] && *f->consumed[stream] < consumed)
            consumed = *f->consumed[stream];
    return consumed;
}

static void pace_stream(struct exec *x, int stream, bool afresh) {
    uint64_t consumed = pace_of_readers(x, stream);
    bool is_paced = x->pace[stream] != UINT64_MAX;
    if ((consumed == UINT64_MAX && !is_paced) ||
        (!afresh && is_paced && consumed < x->pace[stream] + exec_pace_step(x, stream)))
        return;
    x->pace[stream] = consumed;
    guest_tell(x->live->machine->guest,
               (struct frame_head){.type = MSG_CREDIT, .id = x->command.id},
               &(struct msg_credit){.stream = (uint8_t)(stream + 1), .consumed = consumed}, NULL);
}

/* A guest refuses credit for a stream that does not exist. */
void exec_pace(struct exec *x, bool afresh) {
    if (!x->sent || x->log.fd < 0)
        return;
    pace_stream(x, 0, afresh);
    if (x->stdio[2] == MSG_STDIO_PIPE)
        pace_stream(x, 1, afresh);
}

/* Its readers left with the daemon before this one, and may come again. */
static void exec_awaits_again(struct exec *x) {
    x->awaits_reader = true;
    x->reader_due_ms = loop_now_ms(x->service->loop) + READER_BACK_MS;
    exec_pace(x, true);
}

void execs_readers_look(struct service *s, uint64_t now_ms) {
    struct exec *x;
    for (size_t at = 0; (x = map_next(&s->execs->by_id, &at));)
        if (x->awaits_reader && x->reader_due_ms && now_ms >= x->reader_due_ms)
            exec_needs_no_reader(x);
}

void exec_needs_no_reader(struct exec *x) {
    x->awaits_reader = false;
    exec_pace(x, true);
}

void exec_consumed(struct exec *x) {
    exec_pace(x, false);
}

void exec_grew(struct exec *x) {
    exec_ref(x);
    x->waiting = false;
    exec_tell(x);
    exec_settle(x);
    exec_listen(x);
    exec_unref(x);
}

static void on_grew(void *arg, const struct msg_log *m) {
    struct exec *x = arg;
    exec_ref(x);
    if (m && exec_is_mirrored(x)) {
        exec_mirror(x, m);
    } else if (m) {
        exec_grew(x);
    } else { /* the guest no longer has this log */
        x->waiting = false;
        exec_tell(x);
        exec_settle(x);
    }
    exec_unref(x);
}

static void oom_known(void *arg, const struct machine_stats *stats, const struct err *err) {
    struct exec *x = arg;
    (void)err;
    if (stats && x->phase < EXEC_WRITING && x->live &&
        stats->oom_kills > x->live->execs->oom_kills) {
        x->live->execs->oom_kills = stats->oom_kills;
        x->service->hits[HIT_MEMORY]++;
        exec_row_set_end(&x->outcome, EXEC_END_MEMORY);
    }
    exec_conclude(x);
    exec_unref(x);
}

static enum exec_end message_end(const struct msg_exit *m) {
    return m->flags & MSG_EXIT_TIMED_OUT  ? EXEC_END_TIMEOUT
           : m->flags & MSG_EXIT_KILLED   ? EXEC_END_KILLED
           : m->flags & MSG_EXIT_SIGNALED ? EXEC_END_SIGNAL
                                          : EXEC_END_EXIT;
}

/* The number comes from a worker that may have been taken over: it may not fit into the store. */
static void on_fuel(void *arg, uint64_t used) {
    struct exec *x = arg;
    x->fuel = used < STORE_NUMBER_MAX ? used : STORE_NUMBER_MAX;
}

void exec_exited(struct exec *x, const struct msg_exit *m) {
    struct exec_row *row = exec_decide(x);
    bool signaled = m->flags & MSG_EXIT_SIGNALED;
    if (!row)
        return;
    row->signal = signaled ? m->status & 127 : 0;
    row->exit_code = signaled ? 0 : m->status & 255;
    row->user_us = m->user_us;
    row->system_us = m->system_us;
    row->max_rss_kb = m->max_rss_kb;
    row->wall_us = m->wall_us;
    row->fuel = x->fuel;
    x->beside = m->flags & MSG_EXIT_BESIDE;
    if (x->started_ms)
        row->started_ms = x->started_ms;
    if (!row->started_ms)
        row->started_ms = wall_ms() - (int64_t)(m->wall_us / 1000);
    enum exec_end end = message_end(m);
    exec_row_set_end(row, end);
    x->service->hits[HIT_TIME] += end == EXEC_END_TIMEOUT;
    bool killed = end == EXEC_END_SIGNAL && row->signal == SIGKILL;
    if (killed || row->exit_code == 128 + SIGKILL) {
        /* Something else killed the command or a child of its shell: ask whether memory ran out. */
        exec_ref(x);
        x->service->driver->stats(x->live->machine, oom_known, x);
        return;
    }
    exec_conclude(x);
}

static void on_exited(void *arg, const struct msg_exit *m) {
    struct exec *x = arg;
    if (exec_is_mirrored(x))
        exec_mirror_exit(x, m);
    else
        exec_exited(x, m);
}

/*
 * The connection broke. If the machine lives on, the command is adopted again; otherwise
 * execs_lose() decides its outcome.
 */
static void on_lost(void *arg, const struct err *err) {
    struct exec *x = arg;
    (void)err;
    x->sent = false;
    exec_mirror_stop(x);
}

static void on_credit(void *arg, uint64_t consumed) {
    struct exec *x = arg;
    consumed = consumed < STORE_NUMBER_MAX ? consumed + x->stdin_base : consumed;
    if (consumed > x->stdin_sent || consumed < x->stdin_consumed)
        return; /* invalid message: ignore it */
    x->stdin_consumed = consumed;
    exec_feed(x);
    exec_tell(x);
}

void exec_prepare(struct exec *x) {
    x->command = (struct guest_command){
        .id = x->row.number,
        .arg = x,
        .started = on_started,
        .failed = on_failed,
        .refused = on_refused,
        .grew = on_grew,
        .credit = on_credit,
        .fuel = on_fuel,
        .exited = on_exited,
        .lost = on_lost,
    };
}

/* ---- new connection, new daemon ---- */

void execs_reattach(struct live *l) {
    for (struct exec *x = l->execs->first; x; x = x->next) {
        if (x->keeping || x->row.state == EXEC_FAILED ||
            (x->phase >= EXEC_DECIDED && x->outcome.state == EXEC_FAILED))
            continue;
        if (x->is_stored) {
            if (x->resuming)
                exec_becomes_stored(x);
            x->resuming = false;
            continue; /* execs_resume() starts it again */
        }
        x->sent = true;
        x->waiting = false;
        guest_attach(l->machine->guest, &x->command,
                     &(struct msg_attach){{UINT64_MAX, UINT64_MAX}});
        exec_listen(x);
        x->pace[0] = x->pace[1] = 0; /* the guest may not have got the last word: tell it again */
        exec_pace(x, true);
    }
}

void execs_release(struct live *l) {
    for (struct exec *x = l->execs->first, *next; x; x = next) {
        next = x->next;
        if (x->sent && l->machine)
            guest_forget(l->machine->guest, &x->command, false);
        x->sent = false;
        if (x->again) {
            loop_timer_free(TAKE(x->again));
            exec_unref(x);
        }
        exec_unlink(x);
    }
}

bool exec_is_listed(const struct live *l, uint32_t number) {
    const struct exec *x = l->execs->first;
    while (x && x->row.number != number)
        x = x->next;
    return x;
}

/* It may have been stored before, and its offsets in the guest began again. */
static void adopt_streams(struct exec *x, const struct msg_row *state) {
    struct stored_mark m;
    memcpy(x->stdio, state->stdio, sizeof(x->stdio));
    if (stored_parse(x->row.stored, &m) && !m.is_stored) {
        uint64_t now = (uint64_t)wall_ms();
        x->stdin_base = m.stdin_at;
        x->resumed_ms = loop_now_ms(x->service->loop);
        x->time_left_ms = !m.left_ms ? 0 : m.left_ms > now ? m.left_ms - now : 1;
    }
    x->stdin_sent = x->stdin_consumed =
        state->stdin_received < STORE_NUMBER_MAX ? x->stdin_base + state->stdin_received : 0;
    /* An earlier daemon may have asked it to wait, and ended before it was stored. */
    if (guest_stores_commands(x->live->machine->guest))
        guest_tell(x->live->machine->guest,
                   (struct frame_head){.type = MSG_GO_ON, .id = x->row.number}, NULL, NULL);
}

void exec_adopt(struct live *l, struct exec_row *row, const struct msg_row *state, int log_fd) {
    struct exec *x = exec_new(l->service);
    struct err err;
    x->row = *row;
    row->argv = row->cwd = NULL;
    snprintf(x->who.owner, sizeof(x->who.owner), "%s", x->row.owner);
    exec_link(x, l);
    exec_count(x);
    /* If the command is over, its outcome is saved but its output is not on disk yet. */
    if (x->row.state != EXEC_STARTING && x->row.state != EXEC_RUNNING)
        x->phase = EXEC_OVER;
    else
        exec_counts_as_running(x);
    exec_prepare(x);
    x->copied = state->flags & MSG_EXEC_COPY;
    if (x->phase < EXEC_DECIDED)
        x->row.pid = state->pid;
    if (log_fd >= 0 && outlog_fd_adopt(&x->log, log_fd, &err) < 0)
        log_line(LOG_WARN, "service", "open the output log of a command: %s exec=%s", err.text,
                 x->row.id);
    bool has_log = state->flags & MSG_EXEC_LOG && x->log.fd < 0;
    if (has_log && guest_keeps_logs(l->machine->guest) && exec_make_log(x, &err) < 0)
        log_line(LOG_WARN, "service", "read the output of a command: %s exec=%s", err.text,
                 x->row.id);
    adopt_streams(x, state);
    x->sent = true;
    if (x->row.state == EXEC_STARTING)
        x->row.state = EXEC_RUNNING;
    guest_attach(l->machine->guest, &x->command, &(struct msg_attach){{UINT64_MAX, UINT64_MAX}});
    if (state->flags & MSG_EXEC_PACED && x->phase < EXEC_DECIDED)
        exec_awaits_again(x);
    exec_unref(x);
}
