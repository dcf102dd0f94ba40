/*
 * A box becomes a vm in place. Its programs end, a step is taken, and QEMU starts in the same box,
 * above the same files. The store calls the machine a vm only once the vm runs. If the daemon dies
 * before that, the next one ends the vm and finds a box (adopt() of the driver).
 */
#include "service/vm/move.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/calls/live.h"
#include "service/cells.h"
#include "service/change.h"
#include "service/exec/live.h"
#include "service/fields.h"
#include "service/net/live.h"
#include "service/rest.h"
#include "service/steps/barrier.h"
#include "service/steps/live.h"
#include "service/vm/vms.h"

enum { LOOK_MS = 20, ENDS_MS = 5000 };

struct moving {
    struct service *service;
    struct caller who;
    char machine[ID_SIZE];
    struct given mem;
    service_machine_fn *done;
    void *arg;
    struct change *change;    /* NULL: it has not begun */
    uint64_t mem_bytes, pids; /* limits of the vm */
    uint64_t incarnation;
    char *kernel;
    bool raised; /* the box has a higher limit of memory meanwhile */
    bool closed; /* the barrier of the machine */
    bool failed;
    struct err err;
    struct loop_timer *look;
    uint64_t until_ms;
    char *warnings;
};

static void moving_free(struct moving *m) {
    loop_timer_free(m->look);
    free(m->kernel);
    free(m->warnings);
    free(m);
}

static void moving_refuse(struct moving *m, const struct err *err) {
    m->done(m->arg, NULL, err);
    moving_free(m);
}

static void moving_finish(struct moving *m, const struct err *err) {
    struct change *c = m->change;
    struct live *l = c->live;
    bool closed = m->closed;
    live_ref(l);
    moving_free(m);
    change_finish(c, err);
    if (closed)
        barrier_open(l);
    live_unref(l);
}

/* ---- back to a box ---- */

static void moving_lowered(void *arg, const struct err *failed) {
    struct moving *m = arg;
    if (failed)
        log_line(LOG_WARN, "service", "restore the limit of memory: %s id=%s", failed->text,
                 m->machine);
    moving_finish(m, &m->err);
}

static void moving_fail(struct moving *m, const struct err *err) {
    struct live *l = m->change->live;
    const struct machine_limits limits = {.mem_bytes = l->row.mem_bytes};
    m->err = *err;
    if (l->ending)
        err_set(&m->err, ERR_GONE, "machine '%s' ended while it moved", l->row.id);
    if (m->raised && l->machine && !l->ending)
        l->service->driver->limit(l->machine, &limits, moving_lowered, m);
    else
        moving_finish(m, &m->err);
}

/* ---- the vm runs ---- */

static void moving_told(void *arg, const struct err *err) {
    (void)err; /* logged; the gate enforces the rules all the same */
    moving_finish(arg, NULL);
}

static void moving_trusted(void *arg, const struct err *err) {
    struct moving *m = arg;
    (void)err;
    net_tell(m->change->live, moving_told, m);
}

static void moving_limited(void *arg, const struct err *failed) {
    struct moving *m = arg;
    struct live *l = m->change->live;
    if (failed && failed->code != ERR_UNSUPPORTED)
        log_line(LOG_WARN, "service", "limit the memory of a vm: %s id=%s", failed->text,
                 m->machine);
    if (gate_policy(l->gate)->count > 0 || gate_grants(l->gate)->count > 0)
        net_trust_again(l, moving_trusted, m);
    else
        moving_trusted(m, NULL);
}

/* What the driver limits: the memory of the guest and of QEMU itself. */
static struct machine_limits moving_limits(const struct moving *m) {
    return (struct machine_limits){.mem_bytes = m->mem_bytes + LIMIT_VM_EXTRA, .pids = m->pids};
}

/* The row of the vm; its texts belong to others. */
static struct machine_row moved_row(const struct moving *m) {
    struct machine_row row = m->change->live->row;
    snprintf(row.kind, sizeof(row.kind), "vm");
    row.mem_bytes = m->mem_bytes;
    row.pids = m->pids;
    row.incarnation = m->incarnation;
    if (m->warnings)
        row.warnings = m->warnings;
    return row;
}

static int write_moved(void *arg, struct err *err) {
    const struct moving *m = arg;
    const struct live *l = m->change->live;
    const struct machine_row row = moved_row(m);
    if (l->ending)
        return 0;
    return store_machine_update(l->service->store, &row, err) < 0
               ? -1
               : event_put(l->service, l->row.owner, l->row.id, "machine.moved", NULL, err);
}

static void moved_written(void *arg, const struct err *failed) {
    struct moving *m = arg;
    struct live *l = m->change->live;
    struct err gone;
    if (!failed && l->ending) {
        err_set(&gone, ERR_GONE, "machine '%s' ended while it moved", l->row.id);
        failed = &gone;
    }
    if (failed) {
        moving_finish(m, failed);
        return;
    }
    const struct machine_limits limits = moving_limits(m);
    if (m->warnings) /* they replace those of the box */
        free(l->row.warnings);
    l->row = moved_row(m);
    m->warnings = NULL;    /* the row has them */
    calls_detach(l);       /* the programs that waited for an answer have ended */
    gate_silence(l->gate); /* the sockets of the box; the vm has a network of its own */
    net_attach_adopted(l);
    l->service->driver->limit(l->machine, &limits, moving_limited, m);
}

static void moving_booted(void *arg, const char *warnings, const struct err *failed) {
    struct moving *m = arg;
    if (failed) {
        moving_fail(m, failed);
        return;
    }
    m->warnings = warnings ? xstrdup(warnings) : NULL;
    m->incarnation = guest_incarnation(m->change->live->machine->guest);
    change_commit(m->change, write_moved, moved_written, m);
}

/* ---- the box stops ---- */

static void moving_boot(struct moving *m) {
    struct live *l = m->change->live;
    const struct machine_vm vm = {
        .hostname = l->row.name[0] ? l->row.name : l->row.id,
        .kernel = m->kernel,
        .mem_bytes = m->mem_bytes,
        .cpu_milli = l->row.cpu_milli,
    };
    if (l->ending || !l->machine) {
        moving_fail(m, &m->err);
        return;
    }
    l->service->driver->move(l->machine, &vm, moving_booted, m);
}

static void moving_raised(void *arg, const struct err *failed) {
    struct moving *m = arg;
    if (failed && failed->code != ERR_UNSUPPORTED) /* a host may be unable to limit memory */
        moving_fail(m, failed);
    else
        moving_boot(m);
}

/* QEMU needs more memory than the guest. Until the machine is a vm, the limit only grows. */
static void moving_raise(struct moving *m) {
    const struct live *l = m->change->live;
    struct machine_limits limits = moving_limits(m);
    m->raised = limits.mem_bytes > l->row.mem_bytes;
    if (!m->raised)
        limits.mem_bytes = 0;
    if (limits.pids <= l->row.pids)
        limits.pids = 0;
    if (limits.mem_bytes || limits.pids)
        l->service->driver->limit(l->machine, &limits, moving_raised, m);
    else
        moving_boot(m);
}

static void moving_kept(void *arg, const struct step_row *row, const struct err *failed) {
    struct moving *m = arg;
    struct live *l = m->change->live;
    (void)row;
    if (failed || l->ending || !l->machine) {
        moving_fail(m, failed ? failed : &m->err);
        return;
    }
    m->closed = true;
    barrier_close(l); /* from now on the files may change below every reader */
    moving_raise(m);
}

/* The box's own guest answers no more afterwards, so the ends of all commands must be known. */
static void moving_look(void *arg) {
    struct moving *m = arg;
    struct live *l = m->change->live;
    const struct step_cause cause = {
        .kind = STEP_SNAP, .what = "before the move to a vm", .status = -1};
    if (execs_running(l) && !l->ending && loop_now_ms(l->service->loop) < m->until_ms) {
        loop_timer_start(m->look, LOOK_MS, 0);
        return;
    }
    err_set(&m->err, ERR_BUSY, "commands of machine '%s' do not end", l->row.id);
    if (execs_running(l) || l->ending)
        moving_fail(m, &m->err);
    else
        steps_take(l, &cause, moving_kept, m);
}

static void moving_halted(void *arg, const struct err *failed) {
    struct moving *m = arg;
    struct loop *loop = m->service->loop;
    if (failed) {
        moving_fail(m, failed);
        return;
    }
    m->until_ms = loop_now_ms(loop) + ENDS_MS;
    m->look = loop_timer_new(loop, moving_look, m);
    moving_look(m);
}

/* ---- checks, before anything is stopped ---- */

static void moving_check_host(void *arg) {
    struct moving *m = arg;
    m->failed = vm_check_host(m->kernel, &m->err) < 0;
}

static void moving_host_checked(void *arg) {
    struct moving *m = arg;
    struct live *l = m->change->live;
    if (m->failed || l->ending || !l->machine)
        moving_fail(m, &m->err);
    else
        machine_halt(l->machine, l->service->loop, moving_halted, m);
}

/* The row of the vm. A limit that the owner did not choose becomes that of a new vm. */
static int moving_plan(struct moving *m, const struct live *l, struct err *err) {
    const struct conf *conf = m->service->conf;
    const struct machine_limits own = row_limits(conf, &l->row);
    struct machine_row row = l->row;
    m->mem_bytes = row.mem_bytes = given_or(m->mem, own.mem_bytes ? own.mem_bytes : LIMIT_VM_MEM);
    m->pids = conf->pids ? conf->pids : LIMIT_PIDS;
    if (vm_check_memory(m->mem_bytes, err) < 0)
        return -1;
    return row.mem_bytes > l->row.mem_bytes ? quota_check(m->service, &m->who, &l->row, &row, err)
                                            : 0;
}

static void moving_try(void *arg, const struct err *failed) {
    struct moving *m = arg;
    struct machine_view view;
    struct err err;
    struct live *l = failed ? NULL : live_find(m->service, &m->who, m->machine, LIVE_ANY, &err);
    if (l && live_is_vm(l)) {
        live_view(l, &view);
        m->done(m->arg, &view, NULL);
        moving_free(m);
        return;
    }
    int turn = !l || cell_refuse(l, "a move to a vm", &err) < 0 || moving_plan(m, l, &err) < 0
                   ? -1
                   : rest_wake(l, &m->who, moving_try, m, &err);
    if (turn > 0)
        return;
    if (turn < 0) {
        moving_refuse(m, failed ? failed : &err);
        return;
    }
    struct change *c =
        change_begin(m->service, &m->who, m->machine, "machine.move", CHANGE_LIVE, m->done, m->arg);
    if (!c) { /* answered */
        moving_free(m);
        return;
    }
    m->change = c;
    c->live->resting = true; /* requests that need the machine running wait */
    m->kernel = xstrdup(m->service->conf->vm_kernel);
    loop_work(m->service->loop, moving_check_host, moving_host_checked, m);
}

void service_move(struct service *s, const struct caller *who, const char *ref,
                  const struct kind_request *r, service_machine_fn *done, void *arg) {
    struct err err;
    struct live *l = NULL;
    if (authorise(who, RIGHT_MOVE, &err) == 0)
        l = live_find(s, who, ref, LIVE_ANY, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct moving *m = xnew(struct moving);
    *m = (struct moving){.service = s, .who = *who, .mem = r->mem, .done = done, .arg = arg};
    snprintf(m->machine, sizeof(m->machine), "%s", l->row.id);
    moving_try(m, NULL);
}
