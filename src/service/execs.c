#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "base/defer.h"
#include "base/log.h"
#include "io/outlog_fd.h"
#include "service/exec.h"
#include "service/exec_plan.h"
#include "service/logs.h"
#include "service/state.h"

struct exec {
    struct service *service;
    struct live *live; /* NULL: its machine has ended */
    struct exec_row row;
    struct caller who;
    uint64_t intent;
    uint32_t refs;
    bool over;    /* there is an outcome */
    bool listed;  /* among its machine's */
    bool sent;    /* the guest knows it: forget it there too */
    bool keeping; /* a worker copies its log */
    bool waiting; /* for its log to grow */
    bool direct;  /* output goes to descriptors of the caller: there is no log */
    struct guest_command command;
    struct outlog_fd log;
    struct outlog kept; /* after its machine's end */
    int kept_file;
    struct exec *next, **at; /* of its machine */
    struct exec_follower *followers, *walk;
    /* standard input */
    uint64_t stdin_sent, stdin_consumed;
    bool stdin_ended;
    char *input; /* inline, not yet sent */
    size_t input_len, input_at;
    /* who waits for its start */
    service_exec_fn *done;
    void *done_arg;
    char *failure;
};

static void listen_to(struct exec *x);

/* ---- references and followers ---- */

static void link_to_live(struct exec *x, struct live *l) {
    x->live = l;
    x->next = l->execs;
    x->at = &l->execs;
    if (x->next)
        x->next->at = &x->next;
    l->execs = x;
    x->listed = true;
    live_ref(l);
    exec_ref(x);
    map_put(&l->service->execs, x->row.id, x);
}

static void unlink_from_live(struct exec *x) {
    if (!x->listed)
        return;
    *x->at = x->next;
    if (x->next)
        x->next->at = x->at;
    x->listed = false;
    map_take(&x->service->execs, x->row.id);
    live_unref(TAKE(x->live));
    exec_unref(x);
}

static struct exec *exec_new(struct service *s) {
    struct exec *x = calloc(1, sizeof(*x));
    if (!x)
        abort();
    x->service = s;
    x->refs = 1;
    x->log = OUTLOG_FD_NONE;
    x->kept_file = -1;
    return x;
}

void exec_ref(struct exec *x) {
    x->refs++;
}

void exec_unref(struct exec *x) {
    if (--x->refs)
        return;
    outlog_fd_close(&x->log);
    close_fd(&x->kept_file);
    exec_row_done(&x->row);
    free(x->input);
    free(x->failure);
    free(x);
}

void exec_follow(struct exec *x, struct exec_follower *f) {
    exec_ref(x);
    f->of = x;
    f->next = x->followers;
    f->at = &x->followers;
    if (f->next)
        f->next->at = &f->next;
    x->followers = f;
    if (x->live) {
        x->live->open++;
        listen_to(x);
    }
}

void exec_unfollow(struct exec_follower *f) {
    struct exec *x = f->of;
    if (!x)
        return;
    if (x->walk == f)
        x->walk = f->next;
    *f->at = f->next;
    if (f->next)
        f->next->at = f->at;
    f->of = NULL;
    if (x->live) {
        x->live->open--;
        idle_touch(&x->live->idle, loop_now_ms(x->service->loop));
    }
    exec_unref(x);
}

static void tell_followers(struct exec *x) {
    exec_ref(x);
    for (x->walk = x->followers; x->walk;) {
        struct exec_follower *f = x->walk;
        x->walk = f->next;
        f->changed(f->arg);
    }
    exec_unref(x);
}

/* ---- the outcome ---- */

bool exec_is_over(const struct exec *x) {
    return x->over;
}

const struct outlog *exec_log(const struct exec *x) {
    if (x->log.fd >= 0)
        return &x->log.log;
    return x->kept_file >= 0 ? &x->kept : NULL;
}

static int64_t shell_status(const struct exec_row *row) {
    if (row->state == EXEC_FAILED)
        return row->exit_code;
    if (row->state != EXEC_EXITED)
        return -1;
    if (strcmp(row->reason, "timeout") == 0)
        return 124;
    return row->signal ? 128 + (int64_t)row->signal : row->exit_code;
}

static void view_exec_row(const struct exec_row *row, struct exec_view *ret) {
    *ret = (struct exec_view){
        .id = row->id,
        .machine = row->machine,
        .argv = row->argv,
        .cwd = row->cwd,
        .user = row->user,
        .state = exec_state_name(row->state),
        .reason = row->reason[0] ? row->reason : NULL,
        .status = shell_status(row),
        .signal = row->signal,
        .started_ms = (uint64_t)row->started_ms,
        .ended_ms = (uint64_t)row->ended_ms,
        .stdout_bytes = row->out_bytes,
        .stderr_bytes = row->err_bytes,
        .usage = {row->user_us, row->system_us, row->max_rss_kb, row->wall_us},
        .terminal = row->flags & EXEC_PTY,
    };
}

void exec_view(struct exec *x, struct exec_view *ret) {
    view_exec_row(&x->row, ret);
    ret->error = x->failure;
    const struct outlog *log = exec_log(x);
    if (log && !x->over) {
        ret->stdout_bytes = outlog_extent(log, 0).produced;
        ret->stderr_bytes = outlog_extent(log, 1).produced;
    }
}

static void count_output(struct exec *x) {
    const struct outlog *log = exec_log(x);
    if (log) {
        x->row.out_bytes = outlog_extent(log, 0).produced;
        x->row.err_bytes = outlog_extent(log, 1).produced;
    }
}

static void tell_end(struct exec *x) {
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "exec", x->row.id);
    jot_string(&j, "state", exec_state_name(x->row.state));
    jot_i64(&j, "status", shell_status(&x->row));
    if (x->row.reason[0])
        jot_string(&j, "reason", x->row.reason);
    jot_end(&j, '}');
    event_tell(x->service, x->row.owner, x->row.machine, "exec.ended", text.data);
}

/* Writes the outcome down, then tells everybody. */
static void conclude(struct exec *x) {
    struct service *s = x->service;
    struct err err;
    struct journal_record what = {
        .verb = "exec",
        .machine = x->row.machine,
        .exec = x->row.id,
        .has_exit = x->row.state != EXEC_UNKNOWN,
        .exit = shell_status(&x->row),
        .reason = x->row.reason,
    };
    count_output(x);
    what.bytes = x->row.out_bytes + x->row.err_bytes;
    x->over = true;
    x->row.ended_ms = now_ms();
    if (x->live) {
        x->live->running--;
        idle_touch(&x->live->idle, loop_now_ms(s->loop));
    }
    bool whole =
        store_begin(s->store, &err) == 0 && store_exec_finish(s->store, &x->row, &err) == 0;
    if (whole)
        tell_end(x);
    if (!whole || store_commit(s->store, &err) < 0) {
        store_rollback(s->store);
        log_line(LOG_ERROR, "service", "write an outcome: %s exec=%s", err.text, x->row.id);
    }
    note_result(s, &x->who, &what, x->intent, NULL);
    tell_followers(x);
}

/* The guest may forget it, and so may we: the log is in its file. */
static void log_kept(void *arg, bool kept) {
    struct exec *x = arg;
    x->keeping = false;
    if (x->live && x->live->machine && x->sent && kept) {
        guest_forget(x->live->machine->guest, &x->command, true);
        x->sent = false;
    }
    if (kept)
        unlink_from_live(x);
    exec_unref(x);
}

static bool output_over(const struct exec *x) {
    const struct outlog *log = x->log.fd >= 0 ? &x->log.log : NULL;
    return !log || (outlog_extent(log, 0).ended && outlog_extent(log, 1).ended);
}

/* Once it has ended and its streams too, nothing is left to hear. */
static void settle(struct exec *x) {
    if (!x->over || x->keeping || !x->listed || !output_over(x))
        return;
    exec_ref(x);
    x->keeping = true;
    if (x->direct || x->row.state == EXEC_FAILED) {
        log_kept(x, true);
        return;
    }
    count_output(x);
    logs_keep(x->service->loop, x->service->place->home, x->row.machine, x->row.id, &x->log,
              log_kept, x);
}

/* ---- what a guest tells ---- */

static void finish_start(struct exec *x, const struct err *err) {
    service_exec_fn *done = TAKE(x->done);
    if (!done)
        return;
    if (!err)
        exec_ref(x);
    done(x->done_arg, err ? NULL : x, err);
}

static void on_started(void *arg, const struct msg_started *m) {
    struct exec *x = arg;
    struct err err;
    (void)m;
    x->row.state = EXEC_RUNNING;
    x->row.started_ms = now_ms();
    if (store_exec_started(x->service->store, x->row.id, x->row.started_ms, &err) < 0)
        log_line(LOG_ERROR, "service", "%s exec=%s", err.text, x->row.id);
    finish_start(x, NULL);
    tell_followers(x);
}

static const char *step_name(uint32_t step) {
    static const char *const names[] = {
        [MSG_STEP_FORK] = "start",
        [MSG_STEP_CGROUP] = "join its cgroup",
        [MSG_STEP_STDIO] = "open its streams",
        [MSG_STEP_RLIMIT] = "set limits",
        [MSG_STEP_USER] = "become its user",
        [MSG_STEP_CWD] = "enter its directory",
        [MSG_STEP_EXEC] = "run it",
    };
    return step < sizeof(names) / sizeof(*names) && names[step] ? names[step] : "start";
}

static void on_failed(void *arg, const struct msg_exec_failed *m) {
    struct exec *x = arg;
    exec_ref(x);
    x->sent = false; /* its id is free again */
    x->row.state = EXEC_FAILED;
    x->row.exit_code = m->step != MSG_STEP_EXEC ? 125 : m->number == ENOENT ? 127 : 126;
    snprintf(x->row.reason, sizeof(x->row.reason), "%s: %s", step_name(m->step),
             strerror((int)m->number));
    guest_forget(x->live->machine->guest, &x->command, false);
    conclude(x);
    finish_start(x, NULL);
    settle(x);
    exec_unref(x);
}

static void on_refused(void *arg, const struct err *why) {
    struct exec *x = arg;
    exec_ref(x);
    x->sent = false;
    x->row.state = EXEC_FAILED;
    x->row.exit_code = 125;
    snprintf(x->row.reason, sizeof(x->row.reason), "%s", why->text);
    guest_forget(x->live->machine->guest, &x->command, false);
    conclude(x);
    finish_start(x, NULL);
    settle(x);
    exec_unref(x);
}

/* Asks to be told of more output, if anybody wants it: a follower, or we at the very end. */
static void listen_to(struct exec *x) {
    bool wanted = x->over;
    for (struct exec_follower *f = x->followers; f && !wanted; f = f->next)
        wanted = f->wants_output;
    if (!wanted || x->waiting || !x->sent || x->log.fd < 0 || output_over(x))
        return;
    struct msg_log seen = {0};
    for (int i = 0; i < 2; i++) {
        struct outlog_extent e = outlog_extent(&x->log.log, i);
        seen.produced[i] = e.produced;
        seen.ended |= (uint8_t)(e.ended << i);
    }
    x->waiting = true;
    guest_log_wait(x->live->machine->guest, &x->command, &seen);
}

static void on_grew(void *arg, const struct msg_log *m) {
    struct exec *x = arg;
    exec_ref(x);
    x->waiting = false;
    tell_followers(x);
    settle(x);
    if (m) /* NULL: the guest has no such log any more */
        listen_to(x);
    exec_unref(x);
}

static void exit_known(struct exec *x) {
    exec_ref(x);
    conclude(x);
    finish_start(x, NULL);
    settle(x);
    listen_to(x);
    exec_unref(x);
}

static void oom_known(void *arg, const struct machine_stats *stats, const struct err *err) {
    struct exec *x = arg;
    (void)err;
    if (stats && x->live && stats->oom_kills > x->live->oom_kills) {
        x->live->oom_kills = stats->oom_kills;
        snprintf(x->row.reason, sizeof(x->row.reason), "memory");
    }
    if (!x->over)
        exit_known(x);
    exec_unref(x);
}

static void on_exited(void *arg, const struct msg_exit *m) {
    struct exec *x = arg;
    struct exec_row *row = &x->row;
    bool signaled = m->flags & MSG_EXIT_SIGNALED;
    if (x->over)
        return;
    row->state = EXEC_EXITED;
    row->signal = signaled ? m->status & 127 : 0;
    row->exit_code = signaled ? 0 : m->status & 255;
    row->user_us = m->user_us;
    row->system_us = m->system_us;
    row->max_rss_kb = m->max_rss_kb;
    row->wall_us = m->wall_us;
    if (!row->started_ms)
        row->started_ms = now_ms() - (int64_t)(m->wall_us / 1000);
    snprintf(row->reason, sizeof(row->reason), "%s",
             m->flags & MSG_EXIT_TIMED_OUT ? "timeout"
             : m->flags & MSG_EXIT_KILLED  ? "killed"
             : signaled                    ? "signal"
                                           : "exit");
    bool killed = row->signal == SIGKILL && strcmp(row->reason, "signal") == 0;
    if (killed || row->exit_code == 128 + SIGKILL) {
        /* Nobody of us killed it, or what its shell waited for: was it the memory? */
        exec_ref(x);
        x->service->driver->stats(x->live->machine, oom_known, x);
        return;
    }
    exit_known(x);
}

/* The connection broke; if its machine lives on it is adopted again, else the machine's end says
 * so. */
static void on_lost(void *arg, const struct err *err) {
    struct exec *x = arg;
    (void)err;
    x->sent = false;
}

static void lose(struct exec *x, const char *reason) {
    exec_ref(x);
    if (!x->over) {
        x->row.state = EXEC_UNKNOWN;
        snprintf(x->row.reason, sizeof(x->row.reason), "%s", reason);
        conclude(x);
        finish_start(x, NULL);
    }
    if (x->live && x->live->machine && x->sent)
        guest_forget(x->live->machine->guest, &x->command, false);
    x->sent = false;
    /* What was printed is still in memory; the machine that wrote it is gone. */
    if (x->log.fd >= 0 && !x->keeping) {
        exec_ref(x);
        x->keeping = true;
        logs_keep(x->service->loop, x->service->place->home, x->row.machine, x->row.id, &x->log,
                  log_kept, x);
    } else if (!x->keeping) {
        unlink_from_live(x);
    }
    exec_unref(x);
}

void execs_lose(struct live *l, const char *reason) {
    for (struct exec *x = l->execs, *next; x; x = next) {
        next = x->next;
        lose(x, reason);
    }
}

void execs_reattach(struct live *l) {
    for (struct exec *x = l->execs; x; x = x->next) {
        if (x->keeping || x->row.state == EXEC_FAILED)
            continue;
        x->sent = true;
        x->waiting = false;
        guest_attach(l->machine->guest, &x->command,
                     &(struct msg_attach){{UINT64_MAX, UINT64_MAX}});
        listen_to(x);
    }
}

void execs_release(struct live *l) {
    for (struct exec *x = l->execs, *next; x; x = next) {
        next = x->next;
        if (x->sent && l->machine)
            guest_forget(l->machine->guest, &x->command, false);
        x->sent = false;
        unlink_from_live(x);
    }
}

static void feed_input(struct exec *x);

static void on_credit(void *arg, uint64_t consumed) {
    struct exec *x = arg;
    if (consumed > x->stdin_sent || consumed < x->stdin_consumed)
        return; /* nonsense */
    x->stdin_consumed = consumed;
    feed_input(x);
    tell_followers(x);
}

static void prepare_command(struct exec *x) {
    x->command = (struct guest_command){
        .id = x->row.number,
        .arg = x,
        .started = on_started,
        .failed = on_failed,
        .refused = on_refused,
        .grew = on_grew,
        .credit = on_credit,
        .exited = on_exited,
        .lost = on_lost,
    };
}

/* ---- standard input ---- */

static size_t input_room(const struct exec *x) {
    uint64_t flying = x->stdin_sent - x->stdin_consumed;
    return flying < MSG_WINDOW_DEFAULT ? (size_t)(MSG_WINDOW_DEFAULT - flying) : 0;
}

/* Sends what fits; returns how many bytes. */
static size_t send_input(struct exec *x, const char *bytes, size_t n, bool eof) {
    size_t done = 0;
    while (done < n || (eof && done == n && !x->stdin_ended)) {
        size_t part = n - done, room = input_room(x);
        if (part > MSG_CHUNK_MAX)
            part = MSG_CHUNK_MAX;
        if (part > room)
            part = room;
        if (part == 0 && done < n)
            break;
        bool last = eof && done + part == n;
        struct frame_head head = {
            .type = MSG_STDIN, .id = x->row.number, .flags = last ? FRAME_EOF : 0};
        struct msg_data data = {.offset = x->stdin_sent,
                                .data = {(const uint8_t *)bytes + done, (uint32_t)part}};
        if (guest_tell(x->live->machine->guest, head, &data, NULL) < 0)
            break;
        x->stdin_sent += part;
        x->stdin_ended |= last;
        done += part;
    }
    return done;
}

static void feed_input(struct exec *x) {
    if (!x->input || !x->live || !x->sent)
        return;
    x->input_at += send_input(x, x->input + x->input_at, x->input_len - x->input_at, true);
    if (x->stdin_ended)
        free(TAKE(x->input));
}

uint64_t exec_stdin_offset(const struct exec *x) {
    return x->stdin_sent;
}

/* A verb on a running command. */
static int may_touch(struct exec *x, const struct caller *who, struct err *err) {
    if (allow(who, SCOPE_RUN, err) < 0)
        return -1;
    if (x->over || !x->live || !x->live->machine || !x->sent)
        return err_set(err, ERR_GONE, "command '%s' has ended", x->row.id);
    return 0;
}

ssize_t exec_write(struct exec *x, const struct caller *who, uint64_t offset, const void *bytes,
                   size_t n, bool eof, struct err *err) {
    if (may_touch(x, who, err) < 0)
        return -1;
    if (!(x->row.flags & (EXEC_STDIN | EXEC_PTY)))
        return err_set(err, ERR_INVALID, "command '%s' was started without an open input",
                       x->row.id);
    if (offset > x->stdin_sent)
        return err_set(err, ERR_INVALID, "input at %" PRIu64 " would leave a hole after %" PRIu64,
                       offset, x->stdin_sent);
    size_t known = x->stdin_sent - offset < n ? (size_t)(x->stdin_sent - offset) : n;
    if (x->stdin_ended)
        return known == n ? (ssize_t)n
                          : err_set(err, ERR_GONE, "the input of '%s' was closed", x->row.id);
    idle_touch(&x->live->idle, loop_now_ms(x->service->loop));
    return (ssize_t)(known + send_input(x, (const char *)bytes + known, n - known, eof));
}

/* ---- start ---- */

static char *argv_json(const struct exec_plan *plan) {
    struct buf text DEFER(buf_done) = BUF(STORE_JSON_MAX);
    struct jot j = JOT(&text);
    jot_array(&j, NULL);
    for (const char **word = plan->argv; *word; word++)
        jot_string(&j, NULL, *word);
    jot_end(&j, ']');
    return j.failed ? NULL : buf_take(&text);
}

static int fill_exec(struct exec *x, const struct caller *who, const struct live *l,
                     const struct exec_request *r, const struct exec_plan *plan,
                     const uint8_t hash[SHA256_BYTES], struct err *err) {
    struct exec_row *row = &x->row;
    *row = (struct exec_row){
        .state = EXEC_STARTING,
        .created_ms = now_ms(),
        .timeout_ms = r->timeout.value,
        .flags = (r->terminal ? EXEC_PTY : 0) | (r->background ? EXEC_BACKGROUND : 0) |
                 (r->command ? EXEC_SHELL : 0) | (r->stdin_open ? EXEC_STDIN : 0),
    };
    x->who = *who;
    snprintf(row->id, sizeof(row->id), "%s", id_new('x').text);
    snprintf(row->machine, sizeof(row->machine), "%s", l->row.id);
    snprintf(row->owner, sizeof(row->owner), "%s", l->row.owner);
    snprintf(row->user, sizeof(row->user), "%s", plan->user);
    snprintf(row->key, sizeof(row->key), "%s", r->key ? r->key : "");
    memcpy(row->request_hash, hash, SHA256_BYTES);
    row->argv = argv_json(plan);
    row->cwd = strdup(plan->exec.cwd.s);
    if (!row->argv || !row->cwd)
        return err_set(err, ERR_LIMIT, "the command is too long");
    return 0;
}

/* Inline input: text, or base64 of bytes. */
static int take_input(struct exec *x, const struct exec_request *r, struct err *err) {
    if (r->stdin_text && r->stdin_base64)
        return err_set(err, ERR_INVALID, "give 'stdin' or 'stdin_base64', not both");
    if ((r->stdin_text || r->stdin_base64) && r->stdin_open)
        return err_set(err, ERR_INVALID, "give 'stdin' or 'stdin_open', not both");
    if (r->stdin_text) {
        x->input_len = strlen(r->stdin_text);
        x->input = strdup(r->stdin_text);
    } else if (r->stdin_base64) {
        size_t n = strlen(r->stdin_base64);
        x->input = malloc(n + 1);
        if (x->input && !base64_decode(r->stdin_base64, n, x->input, &x->input_len))
            return err_set(err, ERR_INVALID, "field 'stdin_base64' is not base64");
    } else {
        return 0;
    }
    return x->input ? 0 : err_set(err, ERR_LIMIT, "out of memory");
}

/* Only pipes cross the line: a file or a socket of the host never enters a machine. */
static int check_pipes(const int *fds, size_t n, struct err *err) {
    for (size_t i = 0; i < n; i++) {
        struct stat st;
        if (fstat(fds[i], &st) < 0 || !S_ISFIFO(st.st_mode))
            return err_set(err, ERR_DENIED, "descriptor %zu of the request is not a pipe", i);
    }
    return 0;
}

static int direct_streams(struct exec *x, const struct caller *who, const struct exec_request *r,
                          const int *fds, size_t nfds, struct msg_exec *exec, struct err *err) {
    size_t wanted = 0;
    if (!who->local || r->stdio.count != 3 || r->terminal || x->input || r->stdin_open)
        return err_set(err, ERR_INVALID,
                       "'stdio' is three of null and fd, over the unix socket, and excludes stdin "
                       "and terminal");
    for (size_t i = 0; i < 3; i++) {
        bool passed = strcmp(r->stdio.v[i], "fd") == 0;
        if (!passed && strcmp(r->stdio.v[i], "null") != 0)
            return err_set(err, ERR_INVALID, "'%.20s' in 'stdio' is neither null nor fd",
                           r->stdio.v[i]);
        exec->stdio[i] = passed ? MSG_STDIO_FD : MSG_STDIO_NULL;
        wanted += passed;
    }
    if (wanted != nfds)
        return err_set(err, ERR_INVALID, "%zu descriptors for %zu streams", nfds, wanted);
    x->direct = true;
    return check_pipes(fds, nfds, err);
}

static int logged_streams(struct exec *x, const struct exec_request *r, struct msg_exec *exec,
                          struct err *err) {
    const struct outlog_caps two = OUTLOG_CAPS_TWO, one = OUTLOG_CAPS_ONE;
    uint8_t out = r->terminal ? MSG_STDIO_PTY : MSG_STDIO_PIPE;
    exec->stdio[0] = r->terminal                 ? MSG_STDIO_PTY
                     : x->input || r->stdin_open ? MSG_STDIO_PIPE
                                                 : MSG_STDIO_NULL;
    exec->stdio[1] = exec->stdio[2] = out;
    exec->flags |= MSG_EXEC_LOG;
    return outlog_fd_make(&x->log, r->terminal ? &one : &two, err);
}

static void start_refused(struct exec *x, service_exec_fn *done, void *arg, const struct err *err) {
    done(arg, NULL, err);
    exec_unref(x);
}

static void give_existing(struct service *s, const struct caller *who, const struct live *l,
                          const char *id, service_exec_fn *done, void *arg) {
    struct err err;
    struct exec *x = service_exec_find(s, who, l->row.id, id, &err);
    done(arg, x, x ? NULL : &err);
}

static int begin_exec(struct exec *x, const struct exec_plan *plan, char existing[ID_SIZE],
                      struct err *err) {
    struct journal_record what = {
        .verb = "exec", .machine = x->row.machine, .exec = x->row.id, .argv = plan->argv};
    while (what.argc < JOURNAL_ARGV_COUNT && plan->argv[what.argc])
        what.argc++;
    return note_intent(x->service, &x->who, &what, &x->intent, err) < 0
               ? -1
               : store_exec_add(x->service->store, &x->row, existing, err);
}

void service_exec(struct service *s, const struct caller *who, const char *machine,
                  const struct exec_request *r, const uint8_t request_hash[SHA256_BYTES],
                  const int *fds, size_t nfds, service_exec_fn *done, void *arg) {
    struct exec_plan plan DEFER(exec_plan_done) = {0};
    char existing[ID_SIZE] = "";
    struct err err;
    struct exec *x = exec_new(s);
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_RUNNING, &err);
    if (!l || exec_plan_make(&plan, r, &l->env, l->cwd, &err) < 0 ||
        fill_exec(x, who, l, r, &plan, request_hash, &err) < 0 || take_input(x, r, &err) < 0 ||
        (r->stdio.count ? direct_streams(x, who, r, fds, nfds, &plan.exec, &err)
                        : logged_streams(x, r, &plan.exec, &err)) < 0 ||
        begin_exec(x, &plan, existing, &err) < 0) {
        start_refused(x, done, arg, &err);
        return;
    }
    if (existing[0]) {
        exec_unref(x);
        give_existing(s, who, l, existing, done, arg);
        return;
    }
    if (!r->background)
        plan.exec.flags |= MSG_EXEC_QUIET;
    if (r->kill_left)
        plan.exec.flags |= MSG_EXEC_KILL_LEFT;
    link_to_live(x, l);
    l->running++;
    idle_touch(&l->idle, loop_now_ms(s->loop));
    prepare_command(x);
    x->sent = true;
    if (x->log.fd >= 0) {
        fds = &x->log.fd;
        nfds = 1;
    }
    if (r->background) {
        x->done = done;
        x->done_arg = arg;
    }
    guest_exec(l->machine->guest, &x->command, &plan.exec, fds, (uint32_t)nfds);
    feed_input(x);
    if (r->background)
        exec_unref(x);
    else
        done(arg, x, NULL); /* our reference is now the receiver's */
}

/* ---- find again ---- */

static struct exec *remembered(struct service *s, struct exec_row *row) {
    struct exec *x = exec_new(s);
    x->row = *row;
    row->argv = row->cwd = NULL;
    x->over = true;
    x->kept_file = logs_open(s->place->home, x->row.machine, x->row.id);
    if (x->kept_file >= 0 && outlog_open_kept(&x->kept, x->kept_file, NULL) < 0)
        close_fd(&x->kept_file);
    return x;
}

struct exec *service_exec_find(struct service *s, const struct caller *who, const char *machine,
                               const char *id, struct err *err) {
    struct exec_row row DEFER(exec_row_done) = {0};
    struct exec *x = id_valid(id, strlen(id), 'x') ? map_get(&s->execs, id) : NULL;
    if (allow(who, SCOPE_READ, err) < 0)
        return NULL;
    if (x && may_see(who, x->row.owner)) {
        exec_ref(x);
    } else if (!id_valid(id, strlen(id), 'x') || store_exec_get(s->store, id, &row, NULL) < 0 ||
               !may_see(who, row.owner)) {
        err_set(err, ERR_NOT_FOUND, "there is no command '%.20s'", id);
        return NULL;
    } else {
        x = remembered(s, &row);
    }
    struct live *l =
        strcmp(x->row.machine, machine) == 0 ? NULL : live_find(s, who, machine, LIVE_ANY, NULL);
    if (strcmp(x->row.machine, machine) != 0 && (!l || strcmp(l->row.id, x->row.machine) != 0)) {
        err_set(err, ERR_NOT_FOUND, "there is no command '%s' in machine '%.60s'", id, machine);
        exec_unref(x);
        return NULL;
    }
    return x;
}

static int machine_id_of(struct service *s, const struct caller *who, const char *ref,
                         char ret[ID_SIZE], struct err *err) {
    struct machine_row row DEFER(machine_row_done) = {0};
    const char *owner = who->scopes & SCOPE_ADMIN ? NULL : who->owner;
    if (store_machine_find(s->store, owner, ref, &row, err) < 0)
        return -1;
    snprintf(ret, ID_SIZE, "%s", row.id);
    return 0;
}

int service_exec_list(struct service *s, const struct caller *who, const char *machine,
                      const struct list_request *r, service_row_fn *row, void *arg,
                      char ret_next[CURSOR_SIZE], struct err *err) {
    char id[ID_SIZE];
    struct exec_list list DEFER(exec_list_done) = {0};
    if (allow(who, SCOPE_READ, err) < 0 || machine_id_of(s, who, machine, id, err) < 0)
        return -1;
    struct exec_filter filter = {.machine = id, .limit = r->limit};
    if ((r->cursor && list_cursor(r->cursor, &filter.before_ms, &filter.before_id, err) < 0) ||
        store_exec_list(s->store, &filter, &list, err) < 0)
        return -1;
    ret_next[0] = '\0';
    for (size_t i = 0; i < list.count; i++) {
        struct exec_view view;
        struct exec *x = map_get(&s->execs, list.rows[i].id);
        if (x)
            exec_view(x, &view);
        else
            view_exec_row(&list.rows[i], &view);
        row(arg, &view);
    }
    const struct exec_row *last = list.count ? &list.rows[list.count - 1] : NULL;
    if (last && list.count >= (r->limit ? r->limit : 100))
        snprintf(ret_next, CURSOR_SIZE, "%" PRId64 ":%s", last->created_ms, last->id);
    return 0;
}

/* ---- verbs on a running command ---- */

static int tell_guest(struct exec *x, const struct caller *who, const char *verb, uint16_t type,
                      const void *msg, const char *detail, struct err *err) {
    struct journal_record what = {
        .verb = verb, .machine = x->row.machine, .exec = x->row.id, .detail = detail};
    uint64_t intent;
    if (may_touch(x, who, err) < 0 || note_intent(x->service, who, &what, &intent, err) < 0)
        return -1;
    struct frame_head head = {.type = type, .id = x->row.number};
    return guest_tell(x->live->machine->guest, head, msg, err);
}

int exec_signal(struct exec *x, const struct caller *who, int number, bool main_only,
                struct err *err) {
    char detail[40];
    struct msg_signal m = {.number = (uint32_t)number, .group = !main_only};
    snprintf(detail, sizeof(detail), "{\"signal\":%d}", number);
    return tell_guest(x, who, "exec.signal", MSG_SIGNAL, &m, detail, err);
}

int exec_resize(struct exec *x, const struct caller *who, uint16_t rows, uint16_t cols,
                struct err *err) {
    struct msg_resize m = {.rows = rows, .cols = cols};
    if (may_touch(x, who, err) < 0)
        return -1;
    if (!(x->row.flags & EXEC_PTY))
        return err_set(err, ERR_INVALID, "command '%s' has no terminal", x->row.id);
    struct frame_head head = {.type = MSG_RESIZE, .id = x->row.number};
    return guest_tell(x->live->machine->guest, head, &m, err);
}

struct killing {
    struct exec *x;
    struct caller who;
    uint64_t intent;
    service_done_fn *done;
    void *arg;
};

static void killed(void *arg, const struct frame *frame, const struct err *err) {
    struct killing *k = arg;
    struct journal_record what = {
        .verb = "exec.kill", .machine = k->x->row.machine, .exec = k->x->row.id};
    (void)frame;
    note_result(k->x->service, &k->who, &what, k->intent, err);
    k->done(k->arg, err);
    exec_unref(k->x);
    free(k);
}

void exec_kill(struct exec *x, const struct caller *who, service_done_fn *done, void *arg) {
    struct journal_record what = {
        .verb = "exec.kill", .machine = x->row.machine, .exec = x->row.id};
    struct err err;
    uint64_t intent;
    if (may_touch(x, who, &err) < 0 || note_intent(x->service, who, &what, &intent, &err) < 0) {
        done(arg, &err);
        return;
    }
    struct killing *k = calloc(1, sizeof(*k));
    if (!k)
        abort();
    *k = (struct killing){x, *who, intent, done, arg};
    exec_ref(x);
    struct frame_head head = {.type = MSG_KILL, .id = x->row.number};
    guest_request(x->live->machine->guest, head, NULL, NULL, 0, killed, k);
}

/* ---- after a restart ---- */

bool exec_is_listed(const struct live *l, uint32_t number) {
    const struct exec *x = l->execs;
    while (x && x->row.number != number)
        x = x->next;
    return x;
}

void exec_adopt(struct live *l, struct exec_row *row, const struct msg_row *state, int log_fd) {
    struct exec *x = exec_new(l->service);
    struct err err;
    x->row = *row;
    row->argv = row->cwd = NULL;
    snprintf(x->who.owner, sizeof(x->who.owner), "%s", x->row.owner);
    link_to_live(x, l);
    /* Its outcome is written down, but its output was not yet kept. */
    x->over = x->row.state != EXEC_STARTING && x->row.state != EXEC_RUNNING;
    l->running += !x->over;
    prepare_command(x);
    x->direct = log_fd < 0;
    if (log_fd >= 0 && outlog_fd_adopt(&x->log, log_fd, &err) < 0)
        log_line(LOG_WARN, "service", "log of a command: %s exec=%s", err.text, x->row.id);
    x->stdin_sent = x->stdin_consumed = state->stdin_received;
    x->sent = true;
    if (x->row.state == EXEC_STARTING)
        x->row.state = EXEC_RUNNING;
    guest_attach(l->machine->guest, &x->command, &(struct msg_attach){{UINT64_MAX, UINT64_MAX}});
    exec_unref(x);
}
