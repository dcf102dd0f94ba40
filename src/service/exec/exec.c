#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/exec/asks.h"
#include "service/exec/inner.h"
#include "service/schema.h"

struct service_execs *service_execs_new(struct service *s) {
    struct service_execs *e = xnew(struct service_execs);
    /* Start tool ids at a random number: tools that a killed daemon started may still run in
     * machines. */
    if (getrandom(&e->tool_ids, sizeof(e->tool_ids), 0) != sizeof(e->tool_ids))
        abort();
    e->dump_stop = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    e->spare_log = OUTLOG_FD_NONE;
    e->spare_call = (struct loop_call){.fn = exec_make_spare, .arg = s};
    return e;
}

void service_execs_stop(struct service *s) {
    loop_call_cancel(s->loop, &s->execs->spare_call);
    map_done(&s->execs->by_id);
    map_done(&s->execs->loads);
}

void service_execs_free(struct service_execs *e) {
    outlog_fd_close(&e->spare_log);
    close_fd(&e->dump_stop);
    free(e);
}

struct live_execs *live_execs_new(void) {
    return xnew(struct live_execs);
}

void live_execs_free(struct live_execs *e) {
    asks_free_all(e->asks);
    free(e);
}

uint32_t execs_running(const struct live *l) {
    return l->execs->running;
}

uint32_t execs_shown(const struct live *l) {
    uint32_t shown = l->execs->running;
    for (const struct exec *x = l->execs->first; x; x = x->next)
        shown -= x->runs && x->row.flags & EXEC_NO_STEP;
    return shown;
}

uint32_t execs_busy(const struct live *l) {
    uint32_t busy = l->execs->running;
    for (const struct exec *x = l->execs->first; x; x = x->next)
        busy -= x->runs && x->row.flags & EXEC_LAZY;
    return busy;
}

/* ---- references and followers ---- */

void exec_link(struct exec *x, struct live *l) {
    x->live = l;
    x->next = l->execs->first;
    x->at = &l->execs->first;
    if (x->next)
        x->next->at = &x->next;
    l->execs->first = x;
    x->listed = true;
    live_ref(l);
    exec_ref(x);
    map_put(&l->service->execs->by_id, x->row.id, x);
}

void exec_unlink(struct exec *x) {
    if (!x->listed)
        return;
    *x->at = x->next;
    if (x->next)
        x->next->at = x->at;
    x->listed = false;
    exec_uncount(x);
    map_take(&x->service->execs->by_id, x->row.id);
    live_unref(TAKE(x->live));
    exec_unref(x);
}

struct exec *exec_new(struct service *s) {
    struct exec *x = xnew(struct exec);
    x->service = s;
    x->refs = 1;
    x->log = OUTLOG_FD_NONE;
    x->pace[0] = x->pace[1] = UINT64_MAX;
    x->kept_file = x->handed[0] = x->handed[1] = x->handed[2] = -1;
    return x;
}

void exec_ref(struct exec *x) {
    x->refs++;
}

void exec_unref(struct exec *x) {
    if (--x->refs)
        return;
    outlog_fd_close(&x->log);
    for (int i = 0; i < 3; i++)
        close_fd(&x->handed[i]);
    close_fd(&x->kept_file);
    exec_row_done(&x->row);
    free(x->input);
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
    x->awaits_reader = x->awaits_reader && !f->consumed[0];
    if (x->live) {
        x->live->open++;
        exec_listen(x);
        exec_pace(x, true);
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
        if (!x->service->leaving)
            exec_pace(x, true);
        idle_touch(&x->live->idle, loop_now_ms(x->service->loop));
    }
    exec_unref(x);
}

/* The extent is taken first: the guest writes to the log meanwhile. */
void exec_tell(struct exec *x) {
    exec_ref(x);
    x->told = (struct msg_log){0};
    for (int i = 0; i < 2 && x->log.fd >= 0; i++) {
        struct outlog_extent e = outlog_extent(&x->log.log, i);
        x->told.produced[i] = e.produced;
        x->told.ended |= (uint8_t)(e.ended << i);
    }
    for (x->walk = x->followers; x->walk;) {
        struct exec_follower *f = x->walk;
        x->walk = f->next;
        f->changed(f->arg);
    }
    exec_unref(x);
}

/* ---- limits of running commands ---- */

struct owner_load {
    char name[STORE_NAME_SIZE];
    uint64_t execs;
};

static int too_many(const char *what, const char *who, uint64_t limit, struct err *err) {
    err_set(err, ERR_LIMIT, "%s '%s' runs %" PRIu64 " commands, which is its limit", what, who,
            limit);
    return err_remedy(err,
                      "wait until a command ends, kill one, or raise the limit in carrel.conf");
}

int exec_may_count(const struct live *l, struct err *err) {
    const struct service *s = l->service;
    const struct owner_load *load = map_get(&s->execs->loads, l->row.owner);
    if (l->execs->counted >= s->conf->execs_per_machine)
        return too_many("machine", l->row.id, s->conf->execs_per_machine, err);
    if (load && load->execs >= s->conf->execs_per_owner)
        return too_many("owner", l->row.owner, s->conf->execs_per_owner, err);
    return 0;
}

void exec_count(struct exec *x) {
    struct service *s = x->service;
    struct owner_load *load = map_get(&s->execs->loads, x->row.owner);
    if (!load) {
        load = xcalloc(1, sizeof(*load));
        snprintf(load->name, sizeof(load->name), "%s", x->row.owner);
        map_put(&s->execs->loads, load->name, load);
    }
    load->execs++;
    x->live->execs->counted++;
    x->counted = true;
}

void exec_uncount(struct exec *x) {
    struct owner_load *load = x->counted ? map_get(&x->service->execs->loads, x->row.owner) : NULL;
    if (!load)
        return;
    x->counted = false;
    if (x->live)
        x->live->execs->counted--;
    if (--load->execs)
        return;
    map_take(&x->service->execs->loads, load->name);
    free(load);
}

/* ---- state and output ---- */

bool exec_is_over(const struct exec *x) {
    return x->phase == EXEC_OVER;
}

bool exec_log_is_closed(const struct exec *x) {
    return exec_is_over(x) && (x->lost || exec_output_over(x));
}

const struct outlog *exec_log(const struct exec *x) {
    if (x->log.fd >= 0)
        return &x->log.log;
    return x->kept_file >= 0 ? &x->kept : NULL;
}

uint64_t exec_lost(const struct exec *x, int stream) {
    const struct outlog *log = exec_log(x);
    uint64_t printed = stream ? x->row.err_bytes : x->row.out_bytes;
    uint64_t kept = log ? outlog_extent(log, stream).produced : 0;
    return exec_is_over(x) && x->log.fd < 0 && printed > kept ? printed - kept : 0;
}

int exec_output_check(const struct exec *x, int stream, uint64_t from, struct err *err) {
    uint64_t lost = exec_lost(x, stream);
    uint64_t printed = stream ? x->row.err_bytes : x->row.out_bytes;
    if (!lost || from < printed - lost || from >= printed)
        return 0;
    return err_set(err, ERR_GONE,
                   "%" PRIu64 " bytes of output of command '%s' are gone: they were deleted, or "
                   "lost when the host failed",
                   lost, x->row.id);
}

int64_t exec_shell_status(const struct exec_row *row) {
    return exec_end_status(exec_row_end(row), row->exit_code, row->signal);
}

void exec_row_view(const struct exec_row *row, struct exec_view *ret) {
    *ret = (struct exec_view){
        .id = row->id,
        .machine = row->machine,
        .name = row->name[0] ? row->name : NULL,
        .argv = row->argv,
        .cwd = row->cwd,
        .user = row->user,
        .state = exec_state_name(row->state),
        .end = exec_row_end(row),
        .reason = row->reason[0] ? row->reason : NULL,
        .status = exec_shell_status(row),
        .signal = row->signal,
        .pid = row->pid,
        .started_ms = (uint64_t)row->started_ms,
        .ended_ms = (uint64_t)row->ended_ms,
        .stdout_bytes = row->out_bytes,
        .stderr_bytes = row->err_bytes,
        .usage = {row->user_us, row->system_us, row->max_rss_kb, row->wall_us,
                  row->fuel ? row->fuel : SHOW_UNCOUNTED},
        .error = row->state == EXEC_FAILED ? row->reason : NULL,
        .terminal = row->flags & EXEC_PTY,
    };
}

/*
 * The guest does not report the start of a command in the foreground, only its end or that it
 * could not start. Until then the command runs, since it was sent.
 */
static bool runs_unreported(const struct exec *x) {
    return x->row.state == EXEC_STARTING && x->sent && !(x->row.flags & EXEC_BACKGROUND);
}

void exec_view(struct exec *x, struct exec_view *ret) {
    exec_row_view(&x->row, ret);
    if (runs_unreported(x))
        ret->state = exec_state_name(EXEC_RUNNING);
    if (!ret->started_ms && strcmp(ret->state, exec_state_name(EXEC_RUNNING)) == 0)
        ret->started_ms = (uint64_t)x->row.created_ms;
    ret->copied = x->copied;
    ret->check_step = x->beside && exec_is_over(x);
    const struct outlog *log = exec_log(x);
    if (log && !exec_is_over(x)) {
        ret->stdout_bytes = outlog_extent(log, 0).produced;
        ret->stderr_bytes = outlog_extent(log, 1).produced;
    }
}
