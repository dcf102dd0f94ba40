/*
 * The end of a command: its outcome is written down, told, and its output kept on disk.
 */
#include <stdio.h>
#include <string.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/exec_state.h"
#include "service/gate.h"
#include "service/logs.h"

static void count_output(struct exec *x) {
    const struct outlog *log = exec_log(x);
    if (log) {
        x->row.out_bytes = outlog_extent(log, 0).produced;
        x->row.err_bytes = outlog_extent(log, 1).produced;
    }
}

static void tell_end(struct service *s, const struct exec_row *row) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "exec", row->id);
    jot_string(&j, "state", exec_state_name(row->state));
    jot_i64(&j, "status", exec_shell_status(row));
    if (row->reason[0])
        jot_string(&j, "reason", row->reason);
    jot_end(&j, '}');
    event_tell(s, row->owner, row->machine, "exec.ended", text.data);
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

void exec_row_told(struct service *s, const struct exec_row *row) {
    struct journal_record what = outcome_record(row);
    note_result(s, NULL, &what, 0, NULL);
    tell_end(s, row);
}

/* What ran, for the timeline. */
static void take_step(struct exec *x) {
    struct step_cause cause = {.kind = STEP_EXEC,
                               .exec = x->row.id,
                               .what = x->row.argv,
                               .status = exec_shell_status(&x->row),
                               .killed = x->row.state == EXEC_EXITED &&
                                         strcmp(x->row.reason, "exit") != 0};
    steps_after(x->live, &cause);
}

void exec_conclude(struct exec *x) {
    struct service *s = x->service;
    struct err err;
    count_output(x);
    struct journal_record what = outcome_record(&x->row);
    x->over = true;
    x->row.ended_ms = now_ms();
    if (x->live) {
        x->live->running--;
        idle_touch(&x->live->idle, loop_now_ms(s->loop));
    }
    bool whole =
        store_begin(s->store, &err) == 0 && store_exec_finish(s->store, &x->row, &err) == 0;
    if (whole)
        tell_end(s, &x->row);
    if (!whole || store_commit(s->store, &err) < 0) {
        store_rollback(s->store);
        log_line(LOG_ERROR, "service", "write an outcome: %s exec=%s", err.text, x->row.id);
    }
    note_result(s, &x->who, &what, x->intent, NULL);
    exec_tell(x);
    if (x->live)
        take_step(x);
}

/* The guest may forget it, and so may we: the log is in its file. */
static void log_kept(void *arg, bool kept, const struct outlog_kept *now) {
    struct exec *x = arg;
    (void)now;
    loop_defer(x->service->loop, &x->service->spare_call); /* a step is asked for before that */
    x->keeping = false;
    if (!kept) /* execs_keep_look() tries again */
        x->keep_again_ms = loop_now_ms(x->service->loop) + back_off_ms(x->keep_tries++);
    if (x->live && x->live->machine && x->sent && kept) {
        guest_forget(x->live->machine->guest, &x->command, true);
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
    if (!x->over || !x->listed || !(x->lost || exec_output_over(x)))
        return;
    exec_uncount(x);
    if (x->keeping || x->copying)
        return;
    count_output(x);
    /* Of a command that printed nothing no file says the same as an empty one. */
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

static void lose(struct exec *x, const char *reason) {
    exec_ref(x);
    if (!x->over) {
        x->row.state = EXEC_UNKNOWN;
        snprintf(x->row.reason, sizeof(x->row.reason), "%s", reason);
        exec_conclude(x);
        exec_start_done(x, NULL);
    }
    if (x->live && x->live->machine && x->sent)
        guest_forget(x->live->machine->guest, &x->command, false);
    x->sent = false;
    x->lost = true; /* what was printed is still in memory; who wrote it is gone */
    exec_settle(x);
    exec_unref(x);
}

void execs_lose(struct live *l, const char *reason) {
    for (struct exec *x = l->execs, *next; x; x = next) {
        next = x->next;
        lose(x, reason);
    }
}
