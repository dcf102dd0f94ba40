/* Operations on a running command: input, signals, terminal size, kill. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/exec/inner.h"
#include "service/pause.h"

/* ---- standard input ---- */

static size_t input_room(const struct exec *x) {
    uint64_t flying = x->stdin_sent - x->stdin_consumed;
    return flying < MSG_WINDOW_DEFAULT ? (size_t)(MSG_WINDOW_DEFAULT - flying) : 0;
}

/* Sends as much as fits and returns the number of bytes. */
static size_t send_input(struct exec *x, const char *bytes, size_t n, bool eof) {
    size_t done = 0;
    if (x->storing || x->is_stored)
        return 0;
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
        struct msg_data data = {.offset = x->stdin_sent - x->stdin_base,
                                .data = {(const uint8_t *)bytes + done, (uint32_t)part}};
        if (guest_tell(x->live->machine->guest, head, &data, NULL) < 0)
            break;
        x->stdin_sent += part;
        x->stdin_ended |= last;
        done += part;
    }
    return done;
}

void exec_feed(struct exec *x) {
    if (!(x->input || x->stdin_ends) || !x->live || !x->sent)
        return;
    const char *rest = x->input ? x->input + x->input_at : "";
    x->input_at += send_input(x, rest, x->input ? x->input_len - x->input_at : 0, true);
    if (x->stdin_ended)
        free(TAKE(x->input));
}

uint64_t exec_stdin_offset(const struct exec *x) {
    return x->stdin_sent;
}

/* Checks that the caller may act on a running command. */
static int may_touch(struct exec *x, const struct caller *who, struct err *err) {
    if (allow(who, SCOPE_RUN, err) < 0)
        return -1;
    bool is_stored = (x->is_stored && !x->resuming) || (x->live && live_is_stored(x->live));
    if (is_stored && !exec_is_over(x)) {
        err_set(err, ERR_BUSY, "command '%s' is stored, because its machine is paused", x->row.id);
        return err_remedy(err, "resume the machine first: carrel resume %s", x->row.machine);
    }
    if (exec_is_over(x) || !x->live || !x->live->machine || !x->sent)
        return err_set(err, ERR_GONE, "command '%s' has ended", x->row.id);
    return 0;
}

ssize_t exec_write(struct exec *x, const struct caller *who, uint64_t offset, const void *bytes,
                   size_t n, bool eof, struct err *err) {
    if (may_touch(x, who, err) < 0)
        return -1;
    if (!(x->row.flags & (EXEC_STDIN | EXEC_PTY)))
        return err_set(err, ERR_INVALID, "command '%s' was started without open standard input",
                       x->row.id);
    if (offset > x->stdin_sent)
        return err_set(err, ERR_INVALID,
                       "offset %" PRIu64 " is beyond the %" PRIu64
                       " bytes of input received so far",
                       offset, x->stdin_sent);
    size_t known = x->stdin_sent - offset < n ? (size_t)(x->stdin_sent - offset) : n;
    if (x->stdin_ended || x->stdin_ends)
        return known == n
                   ? (ssize_t)n
                   : err_set(err, ERR_GONE, "standard input of command '%s' is closed", x->row.id);
    idle_touch(&x->live->idle, loop_now_ms(x->service->loop));
    size_t done = known + send_input(x, (const char *)bytes + known, n - known, eof);
    x->stdin_ends = eof && done == n && !x->stdin_ended;
    return (ssize_t)done;
}

/* ---- signals and size ---- */

static int tell_guest(struct exec *x, const struct caller *who, const char *verb, uint16_t type,
                      const void *msg, const char *detail, struct err *err) {
    struct journal_record what = {
        .verb = verb, .machine = x->row.machine, .exec = x->row.id, .detail = detail};
    uint64_t intent;
    if (may_touch(x, who, err) < 0 || note_intent(x->service, who, &what, &intent, err) < 0)
        return -1;
    struct frame_head head = {.type = type, .id = x->row.number};
    struct err why;
    x->signalled = true;
    int r = guest_tell(x->live->machine->guest, head, msg, &why);
    note_result(x->service, who, &what, intent, r < 0 ? &why : NULL);
    if (r < 0 && err)
        *err = why;
    return r;
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

/* A request to the guest whose answer the caller waits for. */
struct asking {
    struct exec *x;
    struct caller who;
    const char *verb;
    char detail[40]; /* empty: none */
    uint64_t intent;
    service_done_fn *done;
    void *arg;
};

static struct journal_record asking_record(const struct asking *a) {
    return (struct journal_record){.verb = a->verb,
                                   .machine = a->x->row.machine,
                                   .exec = a->x->row.id,
                                   .detail = a->detail[0] ? a->detail : NULL};
}

static void asking_answered(void *arg, const struct frame *frame, const struct err *err) {
    struct asking *a = arg;
    struct journal_record what = asking_record(a);
    (void)frame;
    note_result(a->x->service, &a->who, &what, a->intent, err);
    a->done(a->arg, err);
    exec_unref(a->x);
    free(a);
}

static void ask_guest(const struct asking *request, struct frame_head head, const void *msg) {
    struct exec *x = request->x;
    struct journal_record what = asking_record(request);
    struct err err;
    uint64_t intent;
    if (may_touch(x, &request->who, &err) < 0 ||
        note_intent(x->service, &request->who, &what, &intent, &err) < 0) {
        request->done(request->arg, &err);
        return;
    }
    struct asking *a = xnew(struct asking);
    *a = *request;
    a->intent = intent;
    exec_ref(x);
    x->signalled = true;
    guest_request(x->live->machine->guest, head, msg, NULL, 0, asking_answered, a);
}

/* ---- stored commands ---- */

/* Ends a stored command. The caller is answered when that is committed. */
struct ending_stored {
    struct asking asking;
    struct exec_follower follower;
};

static void stored_changed(void *arg) {
    struct ending_stored *e = arg;
    struct err err;
    if (!exec_is_over(e->asking.x))
        return;
    bool lost = e->asking.x->row.state == EXEC_UNKNOWN;
    err_set(&err, ERR_UNKNOWN, "the end of the command could not be saved");
    struct journal_record what = asking_record(&e->asking);
    note_result(e->asking.x->service, &e->asking.who, &what, e->asking.intent, lost ? &err : NULL);
    service_done_fn *done = e->asking.done;
    void *of = e->asking.arg;
    exec_unfollow(&e->follower);
    free(e);
    done(of, lost ? &err : NULL);
}

static void end_stored_by(const struct asking *request, int number, bool is_kill) {
    struct exec *x = request->x;
    struct journal_record what = asking_record(request);
    struct err err;
    uint64_t intent;
    if (allow(&request->who, SCOPE_RUN, &err) < 0 ||
        note_intent(x->service, &request->who, &what, &intent, &err) < 0) {
        request->done(request->arg, &err);
        return;
    }
    struct ending_stored *e = xnew(struct ending_stored);
    e->asking = *request;
    e->asking.intent = intent;
    e->follower = (struct exec_follower){.changed = stored_changed, .arg = e};
    exec_follow(x, &e->follower);
    exec_end_stored(x, number, is_kill);
}

/* Signals that end a worker also end a stored command. */
static bool ends_worker(int number) {
    static const int ends[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGKILL,
                               SIGTERM, SIGUSR1, SIGUSR2, SIGALRM};
    for (size_t i = 0; i < sizeof(ends) / sizeof(*ends); i++)
        if (ends[i] == number)
            return true;
    return false;
}

static bool is_at_rest_stored(const struct exec *x) {
    return x->is_stored && !x->resuming && x->live && !exec_is_over(x);
}

void exec_kill(struct exec *x, const struct caller *who, service_done_fn *done, void *arg) {
    const struct asking a = {.x = x, .who = *who, .verb = "exec.kill", .done = done, .arg = arg};
    if (is_at_rest_stored(x)) {
        end_stored_by(&a, SIGKILL, true);
        return;
    }
    ask_guest(&a, (struct frame_head){.type = MSG_KILL, .id = x->row.number}, NULL);
}

void exec_signal_wait(struct exec *x, const struct caller *who, int number, bool main_only,
                      service_done_fn *done, void *arg) {
    struct asking a = {.x = x, .who = *who, .verb = "exec.signal", .done = done, .arg = arg};
    struct msg_signal m = {.number = (uint32_t)number, .group = !main_only};
    struct err err;
    if (is_at_rest_stored(x) && ends_worker(number)) {
        snprintf(a.detail, sizeof(a.detail), "{\"signal\":%d}", number);
        end_stored_by(&a, number, false);
        return;
    }
    if (x->live && x->live->row.state == MACHINE_PAUSED) {
        done(arg, exec_signal(x, who, number, main_only, &err) < 0 ? &err : NULL);
        return;
    }
    snprintf(a.detail, sizeof(a.detail), "{\"signal\":%d}", number);
    ask_guest(&a, (struct frame_head){.type = MSG_SIGNAL, .id = x->row.number}, &m);
}
