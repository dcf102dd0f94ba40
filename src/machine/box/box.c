/*
 * Machines of the kind `box`: the spawner creates and ends them, and their guest runs commands.
 *
 * The driver holds one connection to the spawner and one to each guest. The connection to the guest
 * stays open as long as the machine lives: its loss shows that the machine may have ended, and a
 * command needs no new connection.
 */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>

#include "base/alloc.h"
#include "machine/box/inner.h"

enum { FREEZE_MS = 2000, FREEZE_STEP_MS = 2, CREATE_TRIES = 4 };

/* ---- the host ---- */

/* Each machine and each client needs one descriptor. */
static void allow_descriptors(void) {
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static struct machine_host *box_open(struct loop *loop, const char *store, struct err *err) {
    struct machine_host *h DEFER_FREE = xnew(struct machine_host);
    if (place_find(&h->place, err) < 0)
        return NULL;
    allow_descriptors();
    h->loop = loop;
    snprintf(h->store, sizeof(h->store), "%s", store ? store : "");
    h->boxes = -1;
    h->stats_end = &h->stats_first;
    h->spawner = spawner_link_new(loop, &h->place);
    return TAKE(h);
}

static void box_close(struct machine_host *h) {
    spawner_link_free(h->spawner);
    close_fd(&h->boxes);
    free(h);
}

struct plan_message *box_message(struct machine_host *h, enum plan_type type, const char *id) {
    h->message = (struct plan_message){.type = type};
    snprintf(h->message.plan.id, sizeof(h->message.plan.id), "%s", id);
    memcpy(h->message.plan.store, h->store, sizeof(h->store));
    return &h->message;
}

/* ---- pending operations ---- */

struct call *call_new(struct machine *m, void *arg) {
    struct box *b = (struct box *)m;
    struct call *c = xnew(struct call);
    c->box = b;
    c->arg = arg;
    c->next = b->calls;
    if (b->calls)
        b->calls->prev = c;
    b->calls = c;
    m->calls++;
    return c;
}

void call_free(struct call *c) {
    if (c->prev)
        c->prev->next = c->next;
    else if (c->box)
        c->box->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->box)
        c->box->m.calls--;
    loop_timer_free(c->timer);
    if (c->file)
        close(c->file);
    free(c);
}

static void call_end(struct call *c, const struct err *err) {
    machine_done_fn *done = c->box ? c->done : NULL;
    void *arg = c->arg;
    call_free(c);
    if (done)
        done(arg, err);
}

void call_answered(void *arg, const struct plan_message *m, struct fd_message *fds,
                   const struct err *err) {
    (void)m, (void)fds;
    call_end(arg, err);
}

/* ---- end of a machine ---- */

static void box_let_go(struct machine *m) {
    struct box *b = (struct box *)m;
    for (struct call *c = b->calls, *next; c; c = next) {
        next = c->next;
        c->box = NULL;
        c->next = c->prev = NULL;
        loop_timer_free(TAKE(c->timer));
        if (c->rests) /* otherwise the reply frees the call */
            call_free(c);
    }
    guest_free(m->guest);
    guest_free(b->fresh);
    guest_free(b->old);
    vm_free(b->vm);
    vm_end_free(b->end);
    loop_timer_free(b->timer);
    loop_call_cancel(m->host->loop, &b->later);
    loop_call_cancel(m->host->loop, &b->retire);
    if (b->creation)
        box_creation_free(b->creation);
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        close_fd(&m->uppers[i]);
    for (size_t i = 0; i < PLAN_GATE_FDS; i++)
        close_fd(&m->doors[i]);
    free(b->warnings);
    free(b);
}

/* Fails the pending create or adopt; an existing machine stays as it is. */
void box_give_up(struct box *b, const struct err *err) {
    machine_made_fn *made = TAKE(b->made);
    void *arg = b->made_arg;
    struct err why = *err;
    box_let_go(&b->m);
    made(arg, NULL, NULL, &why);
}

static void log_failure(void *arg, const struct plan_message *m, struct fd_message *fds,
                        const struct err *err) {
    (void)arg, (void)m, (void)fds;
    if (err && err->code != ERR_NOT_FOUND)
        log_line(LOG_WARN, "machine", "remove or unfreeze a machine: %s", err->text);
}

/* Ends the machine and removes the rest of its box. To wait for that, call `destroy`. */
void box_end(struct box *b, const struct err *why) {
    struct machine_host *h = b->m.host;
    if (b->ended)
        return;
    b->ended = true;
    struct err err = *why; /* `why` may belong to the guest, which may be freed now */
    spawner_ask(h->spawner, box_message(h, PLAN_DESTROY, b->m.id), NULL, 0, log_failure, NULL);
    if (b->made) {
        box_give_up(b, &err);
    } else if (b->m.on_end) {
        b->m.on_end(b->m.on_arg, &b->m, &err);
    }
}

/* ---- create and adopt ---- */

static struct box *box_new(struct machine_host *h, const char *id, machine_made_fn *made,
                           void *arg) {
    struct box *b = xnew(struct box);
    b->m.driver = &box_driver;
    b->m.host = h;
    snprintf(b->m.id, sizeof(b->m.id), "%s", id);
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        b->m.uppers[i] = -1;
    for (size_t i = 0; i < PLAN_GATE_FDS; i++)
        b->m.doors[i] = -1;
    b->retire = (struct loop_call){.fn = box_retire_old, .arg = b};
    b->made = made;
    b->made_arg = arg;
    return b;
}

void box_made(struct box *b) {
    machine_made_fn *made = TAKE(b->made);
    char *warnings DEFER_FREE = TAKE(b->warnings);
    made(b->made_arg, &b->m, warnings ? warnings : "", NULL);
}

static void ask_create(struct creation *c);

void box_creation_free(struct creation *c) {
    for (size_t i = 0; i < c->plan.grant_count; i++)
        close_fd(&c->fds[i]);
    free(c);
}

static void creation_give_up(struct creation *c, const struct err *err) {
    struct box *b = c->box;
    struct err why = *err;
    b->creation = NULL;
    box_creation_free(c);
    box_give_up(b, &why);
}

/* The incomplete box was destroyed. It is created again if the spawner died. */
static void on_undone(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    (void)m, (void)fds;
    struct creation *c = arg;
    bool gone = !err || err->code == ERR_NOT_FOUND;
    bool lost = spawner_link_losses(c->box->m.host->spawner) != c->losses;
    if (gone && lost && c->tries < CREATE_TRIES)
        ask_create(c);
    else
        creation_give_up(c, &c->why);
}

/* No caller knows this machine yet, so remove its remains before the next attempt. */
void box_create_again(struct box *b, const struct err *why) {
    struct machine_host *h = b->m.host;
    struct creation *c = b->creation;
    c->why = *why;
    b->confirming = false;
    loop_timer_free(TAKE(b->timer));
    guest_free(TAKE(b->m.guest));
    free(TAKE(b->warnings));
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        close_fd(&b->m.uppers[i]);
    for (size_t i = 0; i < PLAN_GATE_FDS; i++)
        close_fd(&b->m.doors[i]);
    spawner_ask(h->spawner, box_message(h, PLAN_DESTROY, b->m.id), NULL, 0, on_undone, c);
}

/* Takes the next descriptor of a reply; -1: there are no more. */
static int take_next(struct fd_message *fds, size_t *next) {
    size_t at = (*next)++;
    return at < fds->nfds ? TAKE_FD(fds->fds[at]) : -1;
}

static void take_parts(struct box *b, const struct plan *plan, struct fd_message *fds) {
    size_t next = 1;
    for (size_t i = 0; plan->gate && i < PLAN_GATE_FDS; i++)
        b->m.doors[i] = take_next(fds, &next);
    for (size_t i = 0; i < plan->grant_count; i++)
        if (plan->grants[i].mode == PLAN_GRANT_COW)
            b->m.uppers[i] = take_next(fds, &next);
}

/* EMFILE is `limit` here, not `busy`: running machines keep their descriptors, so it lasts. */
int box_no_fds(struct err *err, const char *what) {
    err_num(err, -EMFILE, "%s", what);
    err->code = ERR_LIMIT;
    return -1;
}

static int take_created(struct creation *c, const struct plan_message *m, struct fd_message *fds,
                        struct err *err) {
    struct box *b = c->box;
    if (fds->nfds < 1)
        return box_no_fds(err, "cannot take the connection of a new machine");
    take_parts(b, &c->plan, fds);
    b->warnings = xstrdup(m->text);
    b->m.guest = guest_open(b->m.host->loop, TAKE_FD(fds->fds[0]), box_on_gone, b, err);
    if (b->m.guest)
        guest_on_call(b->m.guest, box_on_call);
    return b->m.guest ? 0 : -1;
}

static void on_created(void *arg, const struct plan_message *m, struct fd_message *fds,
                       const struct err *err) {
    struct creation *c = arg;
    struct box *b = c->box;
    struct err why;
    if (err && err->code == ERR_UNKNOWN) {
        box_create_again(b, err);
    } else if (err) {
        creation_give_up(c, err);
    } else if (take_created(c, m, fds, &why) < 0) {
        b->creation = NULL;
        box_creation_free(c);
        box_end(b, &why);
    } else if (c->early) {
        b->creation = NULL;
        box_creation_free(c);
        box_made(b);
    } else {
        box_confirm(b);
    }
}

static void fill_plan(struct plan *p, const struct machine_host *h,
                      const struct machine_spec *spec) {
    *p = (struct plan){.grant_count = spec->grant_count};
    snprintf(p->id, sizeof(p->id), "%s", spec->id);
    snprintf(p->store, sizeof(p->store), "%s", h->store);
    snprintf(p->image, sizeof(p->image), "%s", spec->image);
    snprintf(p->hostname, sizeof(p->hostname), "%s", spec->hostname ? spec->hostname : spec->id);
    snprintf(p->stack, sizeof(p->stack), "%s", spec->stack ? spec->stack : "");
    p->mem_bytes = spec->limits.mem_bytes;
    p->cpu_milli = spec->limits.cpu_milli;
    p->pids = spec->limits.pids;
    p->disk_bytes = spec->limits.disk_bytes;
    p->deadline_ms = spec->deadline_ms;
    p->linger = spec->linger ? PLAN_DAEMONS : PLAN_NOBODYS;
    p->gate = spec->gate;
    p->cell = spec->cell;
    p->same = spec->same;
    snprintf(p->undrifted, sizeof(p->undrifted), "%s", spec->undrifted ? spec->undrifted : "");
    for (size_t i = 0; i < spec->grant_count; i++)
        p->grants[i] = spec->grants[i];
}

static void ask_create(struct creation *c) {
    struct machine_host *h = c->box->m.host;
    struct plan_message *m = box_message(h, PLAN_CREATE, c->plan.id);
    m->plan = c->plan;
    c->tries++;
    c->losses = spawner_link_losses(h->spawner);
    spawner_ask(h->spawner, m, c->fds, c->plan.grant_count, on_created, c);
}

static void refuse_later(void *arg) {
    struct box *b = arg;
    struct err err = b->refusal;
    box_give_up(b, &err);
}

static void box_refuse(struct box *b) {
    b->later = (struct loop_call){.fn = refuse_later, .arg = b};
    loop_defer(b->m.host->loop, &b->later);
}

static int creation_new(struct box *b, const struct machine_spec *spec, struct creation **ret,
                        struct err *err) {
    if (spec->grant_count > PLAN_MAX_GRANTS)
        return err_set(err, ERR_INVALID, "too many granted directories: at most %d",
                       PLAN_MAX_GRANTS);
    struct creation *c = xnew(struct creation);
    c->box = b;
    /* A granted directory may fail to mount: then the caller gets that error, and no machine. */
    c->early = spec->early && !spec->grant_count;
    fill_plan(&c->plan, b->m.host, spec);
    if (b->vm)
        vm_fill_plan(b->vm, &c->plan);
    for (size_t i = 0; i < PLAN_MAX_GRANTS; i++)
        c->fds[i] = -1;
    for (size_t i = 0; i < spec->grant_count; i++)
        if ((c->fds[i] = fcntl(spec->grant_fds[i], F_DUPFD_CLOEXEC, 3)) < 0) {
            err_sys(err, "cannot duplicate a granted directory of machine '%s'", spec->id);
            box_creation_free(c);
            return -1;
        }
    *ret = c;
    return 0;
}

static void box_create(struct machine_host *h, const struct machine_spec *spec,
                       machine_made_fn *done, void *arg) {
    struct box *b = box_new(h, spec->id, done, arg);
    if (spec->vm)
        vm_new(b, spec->vm, !spec->same);
    if (creation_new(b, spec, &b->creation, &b->refusal) < 0)
        box_refuse(b);
    else
        ask_create(b->creation);
}

/* Receives the uppers (changes) of copy-on-write grants. If that fails, the machine is adopted all
 * the same, and later requests for the changes fail. */
static void on_uppers(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    struct call *c = arg;
    struct box *b = c->box;
    call_free(c);
    if (!b)
        return;
    b->m.uppers_lost = err && err->code != ERR_NOT_FOUND;
    if (b->m.uppers_lost)
        log_line(LOG_WARN, "machine", "get changes in granted directories: %s id=%s", err->text,
                 b->m.id);
    const char *at = err ? "" : m->text;
    for (size_t next = 0; *at; at += strspn(at, " ")) {
        unsigned long number = strtoul(at, (char **)&at, 10);
        if (number >= PLAN_MAX_GRANTS || next == fds->nfds)
            break;
        b->m.uppers[number] = take_next(fds, &next);
    }
    if (!vm_leave_adopted(b))
        box_link_again(b);
}

static void box_adopt(struct machine_host *h, const char *id, const struct machine_vm *vm,
                      machine_made_fn *done, void *arg) {
    struct box *b = box_new(h, id, done, arg);
    if (vm)
        vm_new(b, vm, false);
    struct call *c = call_new(&b->m, NULL);
    spawner_ask(h->spawner, box_message(h, PLAN_UPPERS, id), NULL, 0, on_uppers, c);
}

/* ---- destroy, freeze, limits, deadline ---- */

static void on_destroyed(void *arg, const struct plan_message *m, struct fd_message *fds,
                         const struct err *err) {
    (void)m, (void)fds;
    struct ending *e DEFER_FREE = arg;
    e->done(e->arg, err && err->code != ERR_NOT_FOUND ? err : NULL);
}

static void box_destroy(struct machine_host *h, const char *id, machine_done_fn *done, void *arg) {
    struct ending *e = xnew(struct ending);
    *e = (struct ending){done, arg};
    spawner_ask(h->spawner, box_message(h, PLAN_DESTROY, id), NULL, 0, on_destroyed, e);
}

static void on_frozen(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err);

static void ask_freeze(void *arg) {
    struct call *c = arg;
    struct machine_host *h = c->box->m.host;
    struct plan_message *m = box_message(h, PLAN_FREEZE, c->box->m.id);
    c->rests = false;
    m->frozen = c->frozen;
    spawner_ask(h->spawner, m, NULL, 0, on_frozen, c);
}

/* If the freeze times out, unfreeze: a half-frozen machine helps nobody. */
static void on_frozen(void *arg, const struct plan_message *m, struct fd_message *fds,
                      const struct err *err) {
    struct call *c = arg;
    if (!c->box || !err || err->code != ERR_BUSY) {
        call_answered(c, m, fds, err);
        return;
    }
    struct machine_host *h = c->box->m.host;
    if (loop_now_ms(h->loop) >= c->until_ms) {
        struct err why = *err;
        spawner_ask(h->spawner, box_message(h, PLAN_FREEZE, c->box->m.id), NULL, 0, log_failure,
                    NULL);
        call_end(c, &why);
        return;
    }
    if (!c->timer)
        c->timer = loop_timer_new(h->loop, ask_freeze, c);
    c->rests = true;
    loop_timer_start(c->timer, FREEZE_STEP_MS, 0);
}

static void box_freeze(struct machine *m, bool frozen, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    c->frozen = frozen;
    c->until_ms = loop_now_ms(m->host->loop) + FREEZE_MS;
    ask_freeze(c);
}

static void box_limit(struct machine *m, const struct machine_limits *limits, machine_done_fn *done,
                      void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    struct plan_message *msg = box_message(m->host, PLAN_LIMITS, m->id);
    msg->plan.mem_bytes = limits->mem_bytes;
    msg->plan.cpu_milli = limits->cpu_milli;
    msg->plan.pids = limits->pids;
    msg->plan.disk_bytes = limits->disk_bytes;
    spawner_ask(m->host->spawner, msg, NULL, 0, call_answered, c);
}

static void box_set_deadline(struct machine *m, uint64_t in_ms, machine_done_fn *done, void *arg) {
    struct call *c = call_new(m, arg);
    c->done = done;
    struct plan_message *msg = box_message(m->host, PLAN_DEADLINE, m->id);
    msg->plan.deadline_ms = in_ms;
    spawner_ask(m->host->spawner, msg, NULL, 0, call_answered, c);
}

static void box_move(struct machine *m, const struct machine_vm *vm, machine_move_fn *done,
                     void *arg) {
    struct call *c = call_new(m, arg);
    c->move = done;
    vm_move(c, vm);
}

const struct machine_driver box_driver = {
    .kind = "box",
    .open = box_open,
    .close = box_close,
    .list = box_list,
    .create = box_create,
    .adopt = box_adopt,
    .move = box_move,
    .save_memory = box_save_memory,
    .go_on = box_go_on,
    .recall = vm_recall,
    .claim = box_claim,
    .destroy = box_destroy,
    .freeze = box_freeze,
    .limit = box_limit,
    .set_deadline = box_set_deadline,
    .alone = box_alone,
    .root = box_root,
    .view = box_view,
    .disk = box_disk,
    .merge = box_merge,
    .merge_home = box_merge_home,
    .keep = box_keep,
    .copy = box_copy,
    .save = box_save,
    .shed = box_shed,
    .tell = box_tell,
    .unpack = box_unpack,
    .pack = box_pack,
    .draw = box_draw,
    .wipe = box_wipe,
    .volume = box_volume,
    .peek = box_peek,
    .stats = box_stats,
    .status = box_status,
    .listen = box_doors_listen,
    .dial = box_doors_dial,
    .lend = box_doors_lend,
    .let_go = box_let_go,
};
