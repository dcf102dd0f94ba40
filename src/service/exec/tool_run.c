#include "service/exec/tool_run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/cells.h"
#include "service/exec/inner.h"
#include "service/exec/plan.h"
#include "service/files.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/live.h"

enum { SAID_MAX = 4096, ANSWER_MAX = 4096 };

/* Ids of tools start above those of commands, which the store assigns from 1. */
#define TOOL_IDS EXEC_NUMBERS_END

struct tool_run {
    struct live *live;
    struct caller who;
    const char *verb;
    uint64_t intent;
    struct tool_events events;
    struct guest_command command;
    struct buf said, answer;
    uint64_t sent, credit;    /* bytes of input */
    uint64_t consumed;        /* bytes of output */
    struct loop_timer *timer; /* NULL: no timeout */
    bool input_ended, exited, open[2];
    bool stopped; /* by tool_stop(): the tool ends with error `why` */
    struct err why;
    struct msg_exit exit;
    uint32_t uid, gid;
    char **argv;    /* owned */
    bool waits;     /* waits for a step (steps/barrier.h) or for its machine to wake (rest.h) */
    bool cancelled; /* cancelled while it waits */
};

/* An archive download changes no file, and what a connection does is not done when it ends. */
static bool changes(const struct tool_run *t) {
    return strcmp(t->verb, "file.tar") != 0 && strcmp(t->argv[0], "connect") != 0;
}

static void tool_free(struct tool_run *t) {
    for (char **word = t->argv; word && *word; word++)
        free(*word);
    free(t->argv);
    loop_timer_free(t->timer);
    if (t->live->machine && t->command.id)
        guest_forget(t->live->machine->guest, &t->command, true);
    if (t->command.id)
        t->live->execs->running--;
    live_unref(t->live);
    buf_done(&t->said);
    buf_done(&t->answer);
    free(t);
}

/* A tool that waits at the barrier is freed by start_later(). */
static void tool_run_let_go(struct tool_run *t) {
    t->cancelled = true;
    loop_timer_free(TAKE(t->timer));
    if (!t->waits)
        tool_free(t);
}

static void tool_run_end(struct tool_run *t, const struct err *err) {
    struct tool_events events = t->events;
    struct journal_record what = {.verb = t->verb, .machine = t->live->row.id};
    int status = !err && !(t->exit.flags & MSG_EXIT_SIGNALED) ? (int)t->exit.status : -1;
    struct err killed;
    if (!err && status < 0) {
        err_set(&killed, ERR_INTERNAL, "Carrel's tool in the machine was killed by signal %u",
                t->exit.status);
        err = &killed;
    }
    note_result(t->live->service, &t->who, &what, t->intent, err);
    struct step_cause cause = {
        .kind = STEP_FILE, .what = t->argv[0] ? t->argv[1] : NULL, .status = -1};
    if (status == MSG_TOOL_DONE && changes(t))
        steps_after(t->live, &cause);
    events.ended(events.arg, status, t->answer.data ? t->answer.data : "",
                 t->said.data ? t->said.data : "", err);
    tool_run_let_go(t);
}

static void maybe_end(struct tool_run *t) {
    if (t->exited && !t->open[0] && !t->open[1])
        tool_run_end(t, t->stopped ? &t->why : NULL);
}

/* ---- stop and time limit ---- */

/* The tool `put` removes its temporary file when it gets SIGTERM; SIGKILL would leave it behind. */
static void tell_to_die(const struct tool_run *t) {
    bool is_put = strcmp(t->argv[0], "put") == 0;
    const struct msg_signal term = {.number = SIGTERM};
    struct frame_head head = {.type = is_put ? MSG_SIGNAL : MSG_KILL, .id = t->command.id};
    if (t->live->machine && !t->waits)
        guest_tell(t->live->machine->guest, head, is_put ? &term : NULL, NULL);
}

static void on_time(void *arg) {
    struct tool_run *t = arg;
    if (!t->stopped)
        err_set(&t->why, ERR_TIMEOUT, "the operation in the machine took longer than %llu seconds",
                (unsigned long long)t->events.limit_ms / 1000);
    tell_to_die(t);
    tool_run_end(t, &t->why);
}

static void wake_after(struct tool_run *t, uint64_t ms) {
    if (!t->timer)
        t->timer = loop_timer_new(t->live->service->loop, on_time, t);
    loop_timer_start(t->timer, ms, 0);
}

void tool_stop(struct tool_run *t, const struct err *why) {
    if (t->stopped)
        return;
    t->stopped = true;
    t->why = *why;
    wake_after(t, 0);
}

static void on_failed(void *arg, const struct msg_exec_failed *m) {
    struct tool_run *t = arg;
    struct err err;
    err_num(&err, -(int)m->number, "cannot start Carrel's tool in the machine");
    tool_run_end(t, &err);
}

static void on_refused(void *arg, const struct err *why) {
    tool_run_end(arg, why);
}

static void acknowledge(struct tool_run *t, uint8_t stream, uint64_t consumed) {
    struct frame_head head = {.type = MSG_CREDIT, .id = t->command.id};
    struct msg_credit m = {.stream = stream, .consumed = consumed};
    guest_tell(t->live->machine->guest, head, &m, NULL);
}

static void on_data(void *arg, unsigned stream, uint64_t offset, const uint8_t *p, uint32_t n,
                    bool eof) {
    struct tool_run *t = arg;
    struct buf *keep = stream == 2 ? &t->said : &t->answer;
    if (stream == 1 && t->events.data) {
        if (n && !t->stopped)
            t->events.data(t->events.arg, p, n);
    } else {
        size_t room = keep->max - keep->len;
        (void)!buf_add(keep, p, n < room ? n : room);
        if (n)
            acknowledge(t, (uint8_t)stream, offset + n);
    }
    if (eof) {
        t->open[stream - 1] = false;
        maybe_end(t);
    }
}

static void on_credit(void *arg, uint64_t consumed) {
    struct tool_run *t = arg;
    if (consumed > t->sent)
        return;
    t->credit = consumed + MSG_WINDOW_DEFAULT;
    if (t->events.room)
        t->events.room(t->events.arg);
}

static void on_exited(void *arg, const struct msg_exit *m) {
    struct tool_run *t = arg;
    t->exit = *m;
    t->exited = true;
    maybe_end(t);
}

static int note_start(struct tool_run *t, const char *const *argv, struct err *err) {
    struct journal_record what = {.verb = t->verb, .machine = t->live->row.id, .argv = argv};
    while (argv[what.argc])
        what.argc++;
    return note_intent(t->live->service, &t->who, &what, &t->intent, err);
}

static char **copy_words(const char *const *argv) {
    size_t n = 0;
    while (argv[n])
        n++;
    char **copy = xcalloc(n + 1, sizeof(*copy));
    for (size_t i = 0; i < n; i++)
        copy[i] = xstrdup(argv[i]);
    return copy;
}

static void tool_run_start(struct tool_run *t) {
    struct service *s = t->live->service;
    s->execs->tool_ids = (s->execs->tool_ids + 1) & ~TOOL_IDS;
    t->command = (struct guest_command){.id = TOOL_IDS | s->execs->tool_ids,
                                        .arg = t,
                                        .failed = on_failed,
                                        .refused = on_refused,
                                        .data = on_data,
                                        .credit = on_credit,
                                        .exited = on_exited,
                                        .lost = on_refused};
    static const char *const no_env[] = {NULL};
    const struct msg_exec exec = {
        .flags = MSG_EXEC_QUIET | MSG_EXEC_TOOL,
        .stdio = {MSG_STDIO_PIPE, MSG_STDIO_PIPE, MSG_STDIO_PIPE},
        .uid = t->uid,
        .gid = t->gid,
        .groups = {.count = 1, .v = {t->gid}},
        .cwd = {.s = "/", .n = 1},
        .argv = {.v = (const char *const *)t->argv},
        .env = {.v = no_env},
    };
    guest_exec(t->live->machine->guest, &t->command, &exec, NULL, 0);
}

/* Called when the tool may pass the barrier (steps/barrier.h). */
static void start_later(void *arg) {
    struct tool_run *t = arg;
    struct err err;
    t->waits = false;
    if (t->cancelled) {
        tool_free(t);
        return;
    }
    int turn = barrier_enter(t->live, start_later, t, &err);
    t->waits = turn > 0;
    if (t->waits)
        return;
    if (turn == 0 && (!t->live->machine || t->live->row.state != MACHINE_RUNNING))
        turn = live_state_error(t->live, &err);
    if (turn < 0) {
        tool_run_end(t, &err);
    } else {
        t->live->execs->running++;
        tool_run_start(t);
        if (t->events.room)
            t->events.room(t->events.arg);
    }
}

/* A machine at rest was woken for the tool, or could not be. */
static void tool_woken(void *arg, const struct err *err) {
    struct tool_run *t = arg;
    struct err why;
    int turn = err || t->cancelled ? 0 : rest_wake(t->live, &t->who, tool_woken, t, &why);
    if (turn > 0)
        return;
    if (!err && turn == 0) {
        start_later(t);
    } else if (t->cancelled) {
        tool_free(t);
    } else {
        t->waits = false;
        tool_run_end(t, err ? err : &why);
    }
}

struct tool_run *service_tool(struct service *s, const struct caller *who, const char *machine,
                              const char *verb, const char *const *argv, const char *user,
                              const struct tool_events *events, struct err *err) {
    uint32_t uid;
    struct live *l = allow(who, SCOPE_RUN, err) < 0 || file_user(user, &uid, err) < 0
                         ? NULL
                         : live_find(s, who, machine, LIVE_ANY, err);
    if (!l || barrier_check(l, err) < 0)
        return NULL;
    struct tool_run *t = xnew(struct tool_run);
    *t = (struct tool_run){.live = l,
                           .who = *who,
                           .verb = verb,
                           .events = *events,
                           .said = BUF(SAID_MAX),
                           .answer = BUF(ANSWER_MAX),
                           .credit = MSG_WINDOW_DEFAULT,
                           .open = {true, true}};
    live_ref(l);
    t->uid = t->gid = uid;
    file_user_settle(l, &t->uid, &t->gid);
    t->argv = copy_words(argv);
    if (note_start(t, argv, err) < 0) {
        tool_free(t);
        return NULL;
    }
    if (events->limit_ms)
        wake_after(t, events->limit_ms);
    int turn = rest_wake(l, who, tool_woken, t, err);
    if (turn < 0) {
        note_result(s, who, &(struct journal_record){.verb = verb, .machine = l->row.id}, t->intent,
                    err);
        tool_free(t);
        return NULL;
    }
    t->waits = turn > 0 || barrier_wait(l, start_later, t);
    if (!t->waits) {
        l->execs->running++;
        tool_run_start(t);
    }
    return t;
}

size_t tool_feed(struct tool_run *t, const void *bytes, size_t n, bool eof) {
    size_t done = 0;
    if (t->waits)
        return 0;
    if (!t->live->machine || t->input_ended)
        return n;
    while (done < n || (eof && !t->input_ended)) {
        size_t part = n - done, room = (size_t)(t->credit - t->sent);
        part = part < MSG_CHUNK_MAX ? part : MSG_CHUNK_MAX;
        part = part < room ? part : room;
        if (!part && done < n)
            break;
        bool last = eof && done + part == n;
        struct frame_head head = {
            .type = MSG_STDIN, .id = t->command.id, .flags = last ? FRAME_EOF : 0};
        struct msg_data m = {.offset = t->sent,
                             .data = {(const uint8_t *)bytes + done, (uint32_t)part}};
        if (guest_tell(t->live->machine->guest, head, &m, NULL) < 0)
            break;
        t->sent += part;
        done += part;
        t->input_ended = last;
    }
    return done;
}

void tool_consumed(struct tool_run *t, uint64_t bytes) {
    t->consumed += bytes;
    if (t->live->machine)
        acknowledge(t, 1, t->consumed);
}

void tool_cancel(struct tool_run *t) {
    struct journal_record what = {
        .verb = t->verb, .machine = t->live->row.id, .reason = "the client went away"};
    tell_to_die(t);
    note_result(t->live->service, &t->who, &what, t->intent, NULL);
    tool_run_let_go(t);
}

void tool_said(const char *said, struct err *err) {
    char *rest;
    long number = strtol(said, &rest, 10);
    size_t n = strcspn(rest, "\n");
    while (*rest == ' ') {
        rest++;
        n--;
    }
    if (number > 0)
        err_num(err, (int)-number, "%.*s", (int)(n < 200 ? n : 200), rest);
    else
        err_set(err, ERR_INVALID, "%.*s", (int)(n < 200 ? n : 200),
                n ? rest : "Carrel's tool in the machine failed without a message");
}
