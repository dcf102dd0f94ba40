#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/capability.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "base/text/base64.h"
#include "service/cells.h"
#include "service/exec/asks.h"
#include "service/exec/dumps.h"
#include "service/exec/inner.h"
#include "service/exec/plan.h"
#include "service/fields.h"
#include "service/net/live.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/live.h"
#include "service/steps/risky.h"

static char *argv_json(const struct exec_plan *plan) {
    struct buf text DEFER(buf_done) = BUF(STORE_JSON_MAX);
    struct jot j = JOT(&text);
    jot_array(&j, NULL);
    for (const char **word = plan->shown; *word; word++)
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
        .created_ms = wall_ms(),
        .timeout_ms = r->timeout.value,
        .flags = (r->terminal ? EXEC_PTY : 0) | (r->background ? EXEC_BACKGROUND : 0) |
                 (r->command ? EXEC_SHELL : 0) | (r->stdin_open ? EXEC_STDIN : 0) |
                 (r->lazy ? EXEC_LAZY : 0) | (r->no_step ? EXEC_NO_STEP : 0),
    };
    x->who = *who;
    snprintf(row->id, sizeof(row->id), "%s", id_new('x').text);
    snprintf(row->machine, sizeof(row->machine), "%s", l->row.id);
    snprintf(row->owner, sizeof(row->owner), "%s", l->row.owner);
    snprintf(row->user, sizeof(row->user), "%s", plan->user);
    snprintf(row->key, sizeof(row->key), "%s", r->key ? r->key : "");
    snprintf(row->name, sizeof(row->name), "%s", r->name ? r->name : "");
    memcpy(row->request_hash, hash, SHA256_BYTES);
    snprintf(x->program, sizeof(x->program), "%s", plan->shown[0]);
    row->argv = argv_json(plan);
    row->cwd = xstrdup(plan->exec.cwd.s);
    return row->argv ? 0 : err_set(err, ERR_LIMIT, "the command is too long");
}

/* Reads inline input, as text or base64. */
static int take_input(struct exec *x, const struct exec_request *r, struct err *err) {
    if (r->stdin_text && r->stdin_base64)
        return err_set(err, ERR_INVALID,
                       "fields 'stdin' and 'stdin_base64' are mutually exclusive");
    if ((r->stdin_text || r->stdin_base64) && r->stdin_open)
        return err_set(err, ERR_INVALID, "fields 'stdin' and 'stdin_open' are mutually exclusive");
    if (r->stdin_text) {
        x->input_len = strlen(r->stdin_text);
        x->input = strdup(r->stdin_text);
    } else if (r->stdin_base64) {
        size_t n = strlen(r->stdin_base64);
        x->input = malloc(n + 1);
        if (x->input && !base64_decode(r->stdin_base64, n, x->input, &x->input_len))
            return err_set(err, ERR_INVALID, "field 'stdin_base64' is not valid base64");
    } else {
        return 0;
    }
    return x->input ? 0 : err_set(err, ERR_LIMIT, "out of memory");
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

/*
 * Finds the command of an earlier request with this key, so that a retry succeeds even if no new
 * command may run. The insert is rolled back.
 */
static bool ran_before(struct exec *x, char existing[ID_SIZE]) {
    struct err err;
    if (!x->row.key[0] || store_begin(x->service->store, &err) < 0)
        return false;
    if (store_exec_add(x->service->store, &x->row, existing, &err) < 0)
        existing[0] = '\0';
    store_rollback(x->service->store);
    return existing[0];
}

/* A name leads to one running command: `carrel sh` returns to it. */
static int name_may_run(const struct live *l, const char *name, struct err *err) {
    if (!name[0])
        return 0;
    if (!machine_name_ok(name) || strncmp(name, "x-", 2) == 0) {
        err_set(err, ERR_INVALID, "'%s' is not a valid name of a command", name);
        return err_remedy(err,
                          "use letters, digits, '.', '_' and '-'; it cannot start with m- or x-");
    }
    for (const struct exec *x = l->execs->first; x; x = x->next)
        if (!exec_is_over(x) && strcmp(x->row.name, name) == 0)
            return err_set(err, ERR_EXISTS,
                           "machine '%s' already runs a command with the name '%s'", l->row.id,
                           name);
    return 0;
}

/* Adds the row of a command, and with the first one of a machine that it runs (l->unwritten). */
static int add_exec(struct exec *x, struct live *l, char existing[ID_SIZE], struct err *err) {
    struct store *store = x->service->store;
    if (!l->unwritten)
        return store_exec_add(store, &x->row, existing, err);
    if (store_begin(store, err) == 0 && live_put_running(l, err) == 0 &&
        store_exec_add(store, &x->row, existing, err) == 0 && store_commit(store, err) == 0) {
        l->unwritten = false;
        return 0;
    }
    store_rollback(store);
    return -1;
}

static int begin_exec(struct exec *x, struct live *l, const struct exec_plan *plan,
                      char existing[ID_SIZE], struct err *err) {
    if (exec_may_count(l, err) < 0)
        return ran_before(x, existing) ? 0 : (x->service->hits[HIT_COMMANDS]++, -1);
    if (name_may_run(l, x->row.name, err) < 0)
        return ran_before(x, existing) ? 0 : -1;
    struct journal_record what = {
        .verb = "exec", .machine = x->row.machine, .exec = x->row.id, .argv = plan->shown};
    while (what.argc < JOURNAL_ARGV_COUNT && plan->shown[what.argc])
        what.argc++;
    return note_intent(x->service, &x->who, &what, &x->intent, err) < 0
               ? -1
               : add_exec(x, l, existing, err);
}

/* A request that may have to wait at the barrier (steps/barrier.h). The caller keeps the data that
 * it points to valid until the answer. */
struct exec_later {
    struct service *service;
    struct caller who;
    const char *machine;
    const struct exec_request *request;
    const uint8_t *hash;
    const int *fds;
    size_t nfds;
    bool saved; /* a step was taken before the command */
    service_exec_fn *done;
    void *arg;
};

static void start_exec(struct exec_later *e);

static void start_later(void *arg) {
    struct exec_later *e DEFER_FREE = arg;
    start_exec(e);
}

/* A machine at rest was woken for the command, or could not be. */
static void start_woken(void *arg, const struct err *err) {
    struct exec_later *e DEFER_FREE = arg;
    if (err)
        e->done(e->arg, NULL, err);
    else
        start_exec(e);
}

/* As rest_wake(). */
static int start_wake(struct live *l, const struct exec_later *e, struct err *err) {
    struct exec_later *copy = xmalloc(sizeof(*copy));
    *copy = *e;
    int turn = rest_wake(l, &e->who, start_woken, copy, err);
    if (turn <= 0)
        free(copy);
    return turn;
}

static bool wait_at_gate(struct live *l, const struct exec_later *e) {
    struct exec_later *copy = xmalloc(sizeof(*copy));
    *copy = *e;
    if (barrier_wait(l, start_later, copy))
        return true;
    free(copy);
    return false;
}

/* Policy `risky`: takes a step (a snapshot) before a risky command. */
static bool save_first(struct live *l, struct exec_later *e, const struct exec_plan *plan) {
    if (e->saved || e->request->no_step || l->row.steps != STEPS_RISKY || !is_risky(plan->shown))
        return false;
    char *what DEFER_FREE = argv_json(plan);
    struct step_cause cause = {.kind = STEP_KEPT, .what = what, .status = -1};
    e->saved = true;
    steps_take(l, &cause, NULL, NULL);
    return wait_at_gate(l, e);
}

void service_exec(struct service *s, const struct caller *who, const char *machine,
                  const struct exec_request *r, const uint8_t request_hash[SHA256_BYTES],
                  const int *fds, size_t nfds, service_exec_fn *done, void *arg) {
    struct exec_later e = {.service = s,
                           .who = *who,
                           .machine = machine,
                           .request = r,
                           .hash = request_hash,
                           .fds = fds,
                           .nfds = nfds,
                           .done = done,
                           .arg = arg};
    start_exec(&e);
}

/*
 * In a cell machine with capabilities that need the daemon, adds the socket of the command. Without
 * one the command runs too, and these functions fail.
 */
static int start_asks(struct live *l, const struct exec_module *module, struct msg_exec *exec,
                      struct exec_fds *fds) {
    uint32_t only = module ? module->allowed : CAPABILITY_ALL;
    struct err err;
    if (!live_is_cell(l) || !asks_are_allowed(l, only))
        return -1;
    int fd = asks_open(l, only, &err);
    if (fd < 0) {
        log_line(LOG_WARN, "service", "open the socket of a command: %s id=%s", err.text,
                 l->row.id);
        return -1;
    }
    exec->flags |= MSG_EXEC_ASKS;
    fds->v[fds->count++] = fd;
    return fd;
}

/* In a cell machine, adds the dump of an interpreter. Without one it takes longer to start. */
static int start_dump(struct live *l, const struct exec_plan *plan, struct msg_exec *exec,
                      struct exec_fds *fds) {
    int fd = dumps_open(l, plan->shown);
    if (fd < 0)
        return -1;
    exec->flags |= MSG_EXEC_DUMP;
    fds->v[fds->count++] = fd;
    return fd;
}

/* The caller's pipes are kept for a command that may be stored (exec/stored.h). */
static void keep_streams(struct exec *x, const struct live *l, const struct msg_exec *exec,
                         const struct exec_fds *fds) {
    uint32_t n = 0;
    bool keeps = guest_stores_commands(l->machine->guest) && exec->flags & MSG_EXEC_LOG;
    memcpy(x->stdio, exec->stdio, sizeof(x->stdio));
    for (int i = 0; i < 3; i++)
        if (exec->stdio[i] == MSG_STDIO_FD && keeps)
            x->handed[i] = fcntl(fds->v[n++], F_DUPFD_CLOEXEC, 3);
}

/* Sends the command to the guest. A caller of a background command is answered once it runs. */
static void start_send(struct exec_later *e, struct live *l, struct exec *x, struct exec_plan *plan,
                       struct exec_fds *fds) {
    const struct exec_request *r = e->request;
    keep_streams(x, l, &plan->exec, fds);
    if (plan->exec.flags & MSG_EXEC_LOG && guest_keeps_logs(l->machine->guest))
        fds->count--; /* our log is the last descriptor: mirror.c fills it */
    int asks = start_asks(l, r->module, &plan->exec, fds);
    int dump = r->module ? -1 : start_dump(l, plan, &plan->exec, fds);
    if (!r->background)
        plan->exec.flags |= MSG_EXEC_QUIET;
    if (r->kill_left)
        plan->exec.flags |= MSG_EXEC_KILL_LEFT;
    if (r->paced)
        plan->exec.flags |= MSG_EXEC_PACED;
    x->awaits_reader = r->paced;
    exec_link(x, l);
    exec_count(x);
    exec_counts_as_running(x);
    idle_touch(&l->idle, loop_now_ms(e->service->loop));
    exec_prepare(x);
    x->sent = true;
    if (r->background) {
        x->done = e->done;
        x->done_arg = e->arg;
    }
    guest_exec(l->machine->guest, &x->command, &plan->exec, fds->v, fds->count);
    close_fd(&asks);
    close_fd(&dump);
    exec_pace(x, false); /* an older guest does not know MSG_EXEC_PACED */
    exec_feed(x);
    if (r->background)
        exec_unref(x);
    else
        e->done(e->arg, x, NULL); /* passes our reference to the receiver */
}

static int start_streams(const struct exec_later *e, const struct live *l, struct exec *x,
                         struct msg_exec *exec, struct exec_fds *ret, struct err *err) {
    if (!e->request->stdio.count)
        return exec_streams_own(x, e->request, exec, ret, err);
    if (e->nfds > 3)
        return err_set(err, ERR_INVALID, "a command has at most 3 descriptors, not %zu", e->nfds);
    memcpy(ret->v, e->fds, e->nfds * sizeof(*e->fds));
    ret->count = (uint32_t)e->nfds;
    return exec_streams_handed(x, l, e->request, exec, ret, err);
}

static int start_plan(struct live *l, const struct exec_request *r, struct exec_plan *ret,
                      struct err *err) {
    const struct machine_row *row = &l->row;
    const struct cell_limits limits = {
        .fuel = row->fuel,
        .fuel_rate = row->fuel_rate,
        .mem_bytes = row->mem_bytes,
        .allowed = row->allowed,
        .machine = row->name[0] ? row->name : row->id,
        .knows_allow =
            guest_takes_capabilities(l->machine->guest) &&
            (!asks_are_allowed(l, CAPABILITY_ALL) || guest_passes_asks(l->machine->guest)),
        .knows_module = guest_takes_modules(l->machine->guest),
    };
    if (!live_is_cell(l))
        return exec_plan_make(ret, r, live_defaults(l), net_env(l), &l->env, l->cwd,
                              guest_has_names(l->machine->guest), err);
    /* The guest of a box would run a file of the machine as a native program. */
    if (!guest_is_cell(l->machine->guest))
        return err_set(err, ERR_BUSY, "the guest of machine '%s' has not said that it is a cell",
                       row->id);
    return exec_plan_make_cell(ret, r, &limits, live_defaults(l), net_env(l), &l->env, err);
}

static void start_exec(struct exec_later *e) {
    struct service *s = e->service;
    const struct caller *who = &e->who;
    const struct exec_request *r = e->request;
    struct exec_fds fds = {0};
    service_exec_fn *done = e->done;
    void *arg = e->arg;
    struct exec_plan plan DEFER(exec_plan_done) = {0};
    char existing[ID_SIZE] = "";
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, e->machine, LIVE_ANY, &err);
    int turn = !l || barrier_check(l, &err) < 0 ? -1 : start_wake(l, e, &err);
    if (turn > 0)
        return;
    if (turn < 0)
        l = NULL;
    if (l && wait_at_gate(l, e))
        return;
    struct exec *x = exec_new(s);
    if (l && start_plan(l, r, &plan, &err) < 0)
        l = NULL;
    if (l && save_first(l, e, &plan)) {
        exec_unref(x);
        return;
    }
    if (!l || fill_exec(x, who, l, r, &plan, e->hash, &err) < 0 || take_input(x, r, &err) < 0 ||
        start_streams(e, l, x, &plan.exec, &fds, &err) < 0 ||
        begin_exec(x, l, &plan, existing, &err) < 0) {
        start_refused(x, done, arg, &err);
        return;
    }
    if (existing[0]) {
        exec_unref(x);
        give_existing(s, who, l, existing, done, arg);
        return;
    }
    start_send(e, l, x, &plan, &fds);
}
