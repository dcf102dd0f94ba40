/* The end of a command: saves and reports its outcome, then saves its output. */
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/inner.h"
#include "service/exec/logs.h"
#include "service/exec/stored.h"
#include "service/steps/live.h"

static void count_output(const struct exec *x, struct exec_row *row) {
    const struct outlog *log = exec_log(x);
    if (log) {
        row->out_bytes = outlog_extent(log, 0).produced;
        row->err_bytes = outlog_extent(log, 1).produced;
    }
}

int exec_row_put_end(struct service *s, const struct exec_row *row, struct err *err) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    if (row->flags & EXEC_NO_STEP)
        return 0;
    jot_object(&j, NULL);
    jot_string(&j, "exec", row->id);
    jot_string(&j, "state", exec_state_name(row->state));
    jot_i64(&j, "status", exec_shell_status(row));
    if (row->reason[0])
        jot_string(&j, "reason", row->reason);
    jot_end(&j, '}');
    return event_put(s, row->owner, row->machine, "exec.ended", text.data, err);
}

static struct journal_record outcome_record(const struct exec_row *row) {
    return (struct journal_record){
        .verb = "exec",
        .machine = row->machine,
        .exec = row->id,
        .has_exit = row->state != EXEC_UNKNOWN,
        .exit = exec_shell_status(row),
        .bytes = row->out_bytes + row->err_bytes,
        .reason = row->reason,
    };
}

void exec_row_note(struct service *s, const struct exec_row *row) {
    struct journal_record what = outcome_record(row);
    note_result(s, NULL, &what, 0, NULL);
}

struct unheard {
    struct live *live;
    struct exec_row row;
};

static int write_unheard(void *arg, struct err *err) {
    const struct unheard *u = arg;
    struct service *s = u->live->service;
    return store_exec_finish(s->store, &u->row, err) < 0 ? -1 : exec_row_put_end(s, &u->row, err);
}

static void unheard_written(void *arg, const struct err *failed) {
    struct unheard *u = arg;
    if (failed)
        log_line(LOG_ERROR, "service", "save the end of a command: %s exec=%s", failed->text,
                 u->row.id);
    else
        exec_row_note(u->live->service, &u->row);
    exec_row_done(&u->row);
    live_unref(u->live);
    free(u);
}

void exec_row_conclude(struct live *l, struct exec_row *row) {
    struct unheard *u = xnew(struct unheard);
    *u = (struct unheard){l, *row};
    row->argv = row->cwd = NULL;
    live_ref(l);
    const struct commit commit = {write_unheard, unheard_written, NULL, u};
    commit_run(l->service->commits, &l->lane, &commit);
}

/* True if a signal, a kill request, the time limit or the memory limit ended the command. */
static bool exec_was_ended(const struct exec_row *row) {
    enum exec_end end = exec_row_end(row);
    return end != EXEC_END_EXIT && exec_end_word(end);
}

/* Takes the step (snapshot) after a command. `carrel steps` shows the command as its cause. */
static void take_step(struct exec *x) {
    struct step_cause cause = {.kind = STEP_EXEC,
                               .exec = x->row.id,
                               .what = x->row.argv,
                               .status = exec_shell_status(&x->row),
                               .killed = exec_was_ended(&x->row)};
    if (!(x->row.flags & EXEC_NO_STEP))
        steps_after(x->live, &cause);
}

void exec_answered(struct exec *x) {
    const struct step_cause cause = {
        .kind = STEP_EXEC, .exec = x->row.id, .what = x->row.argv, .status = -1};
    if (x->live && !exec_is_over(x))
        steps_after(x->live, &cause);
}

void exec_counts_as_running(struct exec *x) {
    x->runs = true;
    x->live->execs->running++;
}

static void exec_runs_no_more(struct exec *x) {
    if (x->runs && x->live) {
        x->live->execs->running--;
        idle_touch(&x->live->idle, loop_now_ms(x->service->loop));
    }
    x->runs = false;
}

void exec_becomes_stored(struct exec *x) {
    if (x->runs && x->live)
        x->live->execs->running--;
    x->runs = false;
    x->is_stored = true;
}

/* The pipes of the caller are closed before it is told: it may wait for their end. */
static void exec_forget_stored(struct exec *x) {
    for (int i = 0; i < 3; i++)
        close_fd(&x->handed[i]);
    if (x->is_stored)
        stored_remove(x->service->place->home, x->row.machine, x->row.id);
    x->is_stored = false;
}

struct exec_row *exec_decide(struct exec *x) {
    if (x->phase >= EXEC_DECIDED)
        return NULL;
    x->phase = EXEC_DECIDED;
    x->outcome = x->row;
    x->outcome.stored[0] = '\0';
    return &x->outcome;
}

static int write_outcome(void *arg, struct err *err) {
    struct exec *x = arg;
    struct service *s = x->service;
    if (store_exec_finish(s->store, &x->outcome, err) < 0)
        return -1;
    return exec_row_put_end(s, &x->outcome, err);
}

/* An outcome that cannot be saved is not reported: the next daemon asks the guest again. */
static void outcome_unwritten(struct exec *x, const struct err *why) {
    log_line(LOG_ERROR, "service", "save the end of a command: %s exec=%s", why->text, x->row.id);
    x->outcome.state = EXEC_UNKNOWN;
    x->outcome.exit_code = x->outcome.signal = 0;
    snprintf(x->outcome.reason, sizeof(x->outcome.reason),
             "the end of the command could not be saved");
}

/* The outcome is final only once it is saved. Now callers are told and the guest may forget it. */
static void outcome_written(void *arg, const struct err *failed) {
    struct exec *x = arg;
    if (failed)
        outcome_unwritten(x, failed);
    x->row = x->outcome;
    x->phase = EXEC_OVER;
    exec_forget_stored(x);
    exec_runs_no_more(x);
    if (x->live)
        x->beside = (x->beside || execs_running(x->live)) && steps_tell_beside(x->live);
    struct journal_record what = outcome_record(&x->row);
    note_result(x->service, &x->who, &what, x->intent, NULL);
    exec_tell(x);
    if (x->live)
        take_step(x);
    exec_start_done(x, NULL);
    exec_settle(x);
    exec_listen(x);
    exec_unref(x);
}

void exec_conclude(struct exec *x) {
    struct service *s = x->service;
    if (x->phase >= EXEC_WRITING || !x->live)
        return;
    x->phase = EXEC_WRITING;
    count_output(x, &x->outcome);
    x->outcome.ended_ms = wall_ms();
    exec_ref(x);
    const struct commit commit = {write_outcome, outcome_written, NULL, x};
    commit_run(s->commits, &x->live->lane, &commit);
}

/* Called when the output log was saved or could not be saved. Once it is saved, the guest may
 * forget the command. */
static void log_kept(void *arg, bool kept, const struct outlog_kept *now) {
    struct exec *x = arg;
    (void)now;
    loop_defer(x->service->loop, &x->service->execs->spare_call); /* after the step is requested */
    x->keeping = false;
    if (!kept) /* execs_keep_look() retries */
        x->keep_again_ms = loop_now_ms(x->service->loop) + back_off_ms(x->keep_tries++);
    if (x->live && x->live->machine && x->sent && kept) {
        guest_forget(x->live->machine->guest, &x->command, x->row.state != EXEC_UNKNOWN);
        x->sent = false;
    }
    if (kept)
        exec_unlink(x);
    exec_unref(x);
}

static void keep_all(struct exec *x) {
    exec_ref(x);
    x->keeping = true;
    logs_keep(x->service->loop, x->service->place->home, x->row.machine, x->row.id, &x->log,
              &x->kept_so_far, log_kept, x);
}

bool exec_output_over(const struct exec *x) {
    const struct outlog *log = x->log.fd >= 0 ? &x->log.log : NULL;
    return !log || (outlog_extent(log, 0).ended && outlog_extent(log, 1).ended);
}

void exec_settle(struct exec *x) {
    if (!x->listed || !exec_log_is_closed(x))
        return;
    exec_uncount(x);
    if (x->keeping || x->copying)
        return;
    count_output(x, &x->row);
    /* A missing log file means the same as an empty one, so a command without output needs none. */
    bool printed = x->row.out_bytes + x->row.err_bytes > 0;
    if (x->log.fd >= 0 && x->row.state != EXEC_FAILED && printed) {
        keep_all(x);
        return;
    }
    exec_ref(x);
    log_kept(x, true, NULL);
}

void exec_start_done(struct exec *x, const struct err *err) {
    service_exec_fn *done = TAKE(x->done);
    if (!done)
        return;
    if (!err)
        exec_ref(x);
    done(x->done_arg, err ? NULL : x, err);
}

/* Ends a command whose machine is gone, and with it the guest (Carrel's process in the machine).
 * The daemon still has the output in memory. */
static void lose(struct exec *x, const char *reason) {
    exec_ref(x);
    if (x->live && x->live->machine && x->sent)
        guest_forget(x->live->machine->guest, &x->command, false);
    x->sent = false;
    x->lost = true;
    struct exec_row *row = exec_decide(x);
    if (row) {
        row->state = EXEC_UNKNOWN;
        snprintf(row->reason, sizeof(row->reason), "%s", reason);
    }
    exec_conclude(x);
    exec_tell(x); /* a follower may wait for a background process */
    exec_settle(x);
    exec_unref(x);
}

void execs_lose(struct live *l, const char *reason) {
    for (struct exec *x = l->execs->first, *next; x; x = next) {
        next = x->next;
        lose(x, reason);
    }
}
