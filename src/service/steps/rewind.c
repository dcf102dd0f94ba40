/*
 * Rewind: restores the files of an earlier step. Commands are ended first, and the present state is
 * kept as a step, so that a rewind can be undone too.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "service/exec/live.h"
#include "service/net/live.h"
#include "service/steps/barrier.h"
#include "service/steps/durable.h"
#include "service/steps/inner.h"
#include "service/steps/live.h"
#include "service/steps/steps.h"
#include "service/vm/memory.h"

enum { AGAIN_MS = 200 };

struct rewinding {
    struct live *live;
    struct caller who;
    bool adopted;                     /* started by an earlier daemon: no caller waits */
    bool inner;                       /* a part of another operation, which holds the machine */
    const struct rewind_texts *texts; /* of that operation */
    uint64_t intent;
    char step[STORE_NAME_SIZE];
    bool drifted, stop_processes;
    bool halted;  /* only the guest still runs */
    bool changed; /* files changed since the last step */
    struct err why;
    struct step_row kept, row;
    struct loop_timer *again;
    char memory[MEMORY_PATH_SIZE]; /* file with the memory of the vm; empty: it boots */
    unsigned rooms; /* how often old steps were deleted to make space for the rewind */
    service_step_fn *done;
    void *arg;
};

static void rewinding_free(struct rewinding *r) {
    loop_timer_free(r->again);
    step_row_done(&r->kept);
    step_row_done(&r->row);
    live_unref(r->live);
    free(r);
}

static struct journal_record rewind_record_of(const struct rewinding *r, char detail[160]) {
    snprintf(detail, 160, "{\"step\":\"%s\"}", r->row.id[0] ? r->row.id : "");
    return (struct journal_record){
        .verb = "machine.rewind", .machine = r->live->row.id, .detail = detail};
}

static void rewind_refuse(struct rewinding *r, const struct err *err) {
    if (r->done)
        r->done(r->arg, NULL, err);
    rewinding_free(r);
}

/* Ends a rewind and answers its caller. */
static void rewind_finish(struct rewinding *r, const struct err *err) {
    struct live *l = r->live;
    struct step_view view;
    char detail[160];
    struct journal_record what = rewind_record_of(r, detail);
    live_ref(l);
    l->steps->full = l->steps->freeing = false;
    if (!err)
        durable_want(l);
    if (!r->adopted && !r->inner)
        note_result(l->service, &r->who, &what, r->intent, err);
    if (!r->inner)
        live_verb_over(l);
    step_view(&r->row, &view);
    if (err)
        log_line(LOG_WARN, "service", "rewind a machine: %s id=%s", err->text, l->row.id);
    if (r->done)
        r->done(r->arg, err ? NULL : &view, err);
    bool inner = r->inner;
    rewinding_free(r);
    if (!inner)
        barrier_open(l);
    live_unref(l);
}

/* ---- writing to the store ---- */

/* The rewind is done but not recorded: the caller is told neither success nor refusal. */
static void rewind_late(void *arg, const struct err *why) {
    struct rewinding *r = arg;
    struct err err;
    service_step_fn *done = r->inner ? NULL : TAKE(r->done);
    if (!done)
        return;
    err_set(&err, ERR_UNKNOWN, "the rewind is done but not saved yet: %s", why->text);
    err_remedy(&err, "free space on the disk that holds CARREL_HOME, then see carrel steps");
    done(r->arg, NULL, &err);
}

static void rewind_commit(struct rewinding *r, int (*write)(void *arg, struct err *err),
                          void (*done)(void *arg, const struct err *failed)) {
    const struct commit commit = {write, done, rewind_late, r};
    commit_run(r->live->service->commits, &r->live->lane, &commit);
}

static int write_intent(void *arg, struct err *err) {
    struct rewinding *r = arg;
    struct store *store = r->live->service->store;
    return store_step_add(store, &r->kept, err) < 0 ? -1 : store_step_add(store, &r->row, err);
}

static int write_back(void *arg, struct err *err) {
    struct rewinding *r = arg;
    struct store *store = r->live->service->store;
    if (r->kept.id[0] && store_step_delete(store, r->kept.id, err) < 0)
        return -1;
    return store_step_delete(store, r->row.id, err);
}

static void back_written(void *arg, const struct err *failed) {
    struct rewinding *r = arg;
    if (failed)
        log_line(LOG_ERROR, "service", "delete the record of a refused rewind: %s id=%s",
                 failed->text, r->live->row.id);
    rewind_finish(r, &r->why);
}

/* Deletes the record of the planned rewind, then reports the reason to all waiting callers. */
static void rewind_take_back(struct rewinding *r, const struct err *why) {
    r->why = *why;
    rewind_commit(r, write_back, back_written);
}

static int put_event(const struct rewinding *r, struct err *err) {
    const struct live *l = r->live;
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "step", r->row.id);
    jot_u64(&j, "number", r->row.number);
    jot_string(&j, "what", r->row.what);
    jot_end(&j, '}');
    return event_put(l->service, l->row.owner, l->row.id, "machine.rewound", text.data, err);
}

static const char *target_of(const struct rewinding *r) {
    return r->row.stack ? r->row.stack : "";
}

static int write_result(void *arg, struct err *err) {
    struct rewinding *r = arg;
    struct store *store = r->live->service->store;
    r->kept.state = r->row.state = STEP_DONE;
    r->kept.has_point = r->row.has_point = r->row.counted = 1;
    /* Without changes the last step already is the state before the rewind. */
    if ((r->changed ? store_step_update(store, &r->kept, err)
                    : store_step_delete(store, r->kept.id, err)) < 0 ||
        store_step_update(store, &r->row, err) < 0 ||
        steps_root_put(r->live, r->live->steps->layer + 1, target_of(r), err) < 0)
        return -1;
    return put_event(r, err);
}

/* ---- switching the root ---- */

static void ask_root(void *arg);
static void begin_halt(struct rewinding *r);

/* True if commands still run in the machine: they are ended, then the switch is tried again. */
static bool is_occupied(const struct rewinding *r, const struct err *err) {
    return err->code == ERR_BUSY && !r->halted && !r->adopted;
}

static void wait_and_ask(struct rewinding *r) {
    if (!r->again)
        r->again = loop_timer_new(r->live->service->loop, ask_root, r);
    loop_timer_start(r->again, AGAIN_MS, 0);
}

static bool make_room(struct rewinding *r, const struct err *err) {
    bool may = steps_make_room(r->live, err, &r->rooms);
    if (may)
        wait_and_ask(r);
    return may;
}

/*
 * Called after net_trust_again(), because the restored files may lack the certificates of the gate.
 * A failure of it does not undo the rewind.
 */
static void trusted(void *arg, const struct err *err) {
    (void)err;
    rewind_finish(arg, NULL);
}

static void result_written(void *arg, const struct err *failed) {
    struct rewinding *r = arg;
    if (failed) {
        rewind_finish(r, failed);
        return;
    }
    steps_root_known(r->live, r->live->steps->layer + 1, target_of(r));
    net_trust_again(r->live, trusted, r);
}

static void switched(void *arg, bool changed, const struct err *failed) {
    struct rewinding *r = arg;
    const struct live *l = r->live;
    bool ends = l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
    if (failed && !ends && (failed->code == ERR_UNKNOWN || failed->code == ERR_GONE)) {
        wait_and_ask(r);
    } else if (failed && !ends && is_occupied(r, failed)) {
        begin_halt(r);
    } else if (failed && !ends && make_room(r, failed)) {
        return;
    } else if (failed) {
        rewind_take_back(r, failed);
    } else {
        r->changed = changed;
        rewind_commit(r, write_result, result_written);
    }
}

static void ask_root(void *arg) {
    struct rewinding *r = arg;
    struct live *l = r->live;
    if (r->memory[0])
        l->service->driver->recall(l->machine, r->memory);
    l->service->driver->root(l->machine, r->row.stack ? r->row.stack : "", l->steps->layer + 1,
                             r->drifted || r->adopted ? 0 : ROOT_UNDRIFTED, switched, r);
}

static void rewind_fill(struct rewinding *r, struct step_row *row, enum step_kind kind,
                        const char *stack) {
    char what[STORE_NAME_SIZE + 32];
    if (r->texts)
        snprintf(what, sizeof(what), "%s", kind == STEP_KEPT ? r->texts->kept : r->texts->to);
    else
        snprintf(what, sizeof(what), kind == STEP_KEPT ? "before the rewind to %s" : "to %s",
                 r->step);
    *row = (struct step_row){.kind = kind,
                             .state = STEP_TAKING,
                             .created_ms = wall_ms(),
                             .status = -1,
                             .what = xstrdup(what),
                             .stack = xstrdup(stack),
                             .layer = kind == STEP_KEPT ? r->live->steps->layer : 0};
    snprintf(row->id, sizeof(row->id), "%s", id_new('s').text);
    snprintf(row->machine, sizeof(row->machine), "%s", r->live->row.id);
}

static void intent_written(void *arg, const struct err *failed) {
    if (failed)
        rewind_finish(arg, failed);
    else
        ask_root(arg);
}

/* Records the present state and the target before anything is changed. */
static void begin_switch(struct rewinding *r) {
    struct live *l = r->live;
    struct err err;
    char now[LAYERS_TEXT_SIZE], *target DEFER_FREE = TAKE(r->row.stack);
    if (steps_next_stack(l, now, &err) < 0) {
        rewind_finish(r, &err);
        return;
    }
    rewind_fill(r, &r->kept, STEP_KEPT, now);
    if (step_has_memory(&r->row))
        memory_path(l->service, l->row.id, r->row.id, r->memory);
    step_row_done(&r->row);
    rewind_fill(r, &r->row, STEP_REWIND, target ? target : "");
    const struct commit intent = {write_intent, intent_written, rewind_late, r};
    if (r->halted) /* commands were already ended for the rewind, so it must not be refused now */
        commit_run(l->service->commits, &l->lane, &intent);
    else if (commit_once(l->service->commits, &l->lane, &intent, &err) < 0)
        rewind_finish(r, &err);
    else
        ask_root(r);
}

/* Ends a rewind, recorded or not. */
static void rewind_give_up(struct rewinding *r, const struct err *err) {
    if (r->kept.id[0])
        rewind_take_back(r, err);
    else
        rewind_finish(r, err);
}

static void halted(void *arg, const struct err *failed) {
    struct rewinding *r = arg;
    r->halted = true;
    if (failed)
        rewind_give_up(r, failed);
    else if (r->kept.id[0])
        ask_root(r);
    else
        begin_switch(r);
}

/* Checked before commands are ended, because the rewind may be refused. */
static void drift_known(void *arg, const struct machine_stats *stats, const struct err *failed) {
    struct rewinding *r = arg;
    struct live *l = r->live;
    struct err err;
    if (!failed && stats->drifted && !r->drifted) {
        err_set(&err, ERR_UNSUPPORTED, "the host's packages changed since machine '%s' was created",
                l->row.id);
        err_remedy(&err, "use --drifted to restore its files over the present /usr");
        failed = &err;
    }
    if (failed)
        rewind_give_up(r, failed);
    else
        machine_halt(l->machine, l->service->loop, halted, r);
}

static void begin_halt(struct rewinding *r) {
    r->live->service->driver->stats(r->live->machine, drift_known, r);
}

/* ---- the request ---- */

/* Chooses the newest restore point before the requested step, which has none. */
static int point_before(struct rewinding *r, struct err *err) {
    const struct live *l = r->live;
    struct step_row asked DEFER(step_row_done) = r->row;
    r->row = (struct step_row){.what = NULL};
    if (store_step_point_before(l->service->store, l->row.id, asked.number, &r->row, err) < 0)
        return step_point_error(l, &asked, err);
    snprintf(r->step, sizeof(r->step), "%u, the restore point before step %u", r->row.number,
             asked.number);
    return 0;
}

/*
 * Finds the step. `start` is the machine as it was created: its image without layers, or the first
 * step of a fork.
 */
static int rewind_target(struct rewinding *r, struct err *err) {
    const struct live *l = r->live;
    struct store *store = l->service->store;
    struct root_row root DEFER(root_row_done) = {.stack = NULL};
    struct err none;
    bool to_start = strcmp(r->step, "start") == 0;
    if (!to_start)
        return store_step_find(store, l->row.id, r->step, &r->row, err);
    int found = store_root_get(store, l->row.id, &root, &none);
    if (found < 0 && none.code != ERR_NOT_FOUND) {
        *err = none;
        return -1;
    }
    if (found == 0 && root.from_machine[0])
        return store_step_find(store, l->row.id, "1", &r->row, err);
    r->row.has_point = true;
    return 0;
}

static int rewind_check(struct rewinding *r, struct err *err) {
    struct live *l = r->live;
    bool fit = l->row.state == MACHINE_RUNNING || l->row.state == MACHINE_STOPPED;
    if (!l->machine || !fit)
        return live_state_error(l, err);
    if (l->changing) {
        live_state_error(l, err);
        return err_remedy(err, "another operation on the machine is in progress: try again");
    }
    if (steps_load(l, err) < 0 || rewind_target(r, err) < 0)
        return -1;
    if (r->row.has_point)
        return 0;
    return r->stop_processes ? point_before(r, err) : step_point_error(l, &r->row, err);
}

static void rewind_begin(void *arg) {
    struct rewinding *r = arg;
    struct live *l = r->live;
    struct err err;
    char detail[160];
    int full = barrier_check(l, &err);
    if (full == 0 && barrier_wait(l, rewind_begin, r))
        return;
    if (full < 0 || rewind_check(r, &err) < 0) {
        rewind_refuse(r, &err);
        return;
    }
    struct journal_record what = rewind_record_of(r, detail);
    if (note_intent(l->service, &r->who, &what, &r->intent, &err) < 0) {
        rewind_refuse(r, &err);
        return;
    }
    l->changing = true;
    barrier_close(l);
    if (execs_running(l))
        begin_halt(r);
    else
        begin_switch(r);
}

void service_rewind(struct service *s, const struct caller *who, const char *machine,
                    const struct rewind_request *q, service_step_fn *done, void *arg) {
    struct err err;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, machine, LIVE_ANY, &err);
    if (!l) {
        done(arg, NULL, &err);
        return;
    }
    struct rewinding *r = xnew(struct rewinding);
    *r = (struct rewinding){.live = l,
                            .who = *who,
                            .drifted = q->drifted,
                            .stop_processes = q->stop_processes,
                            .done = done,
                            .arg = arg};
    snprintf(r->step, sizeof(r->step), "%s", q->step);
    live_ref(l);
    rewind_begin(r);
}

void rewind_to(struct live *l, const struct rewind_texts *texts, const char *stack,
               service_step_fn *done, void *arg) {
    struct rewinding *r = xnew(struct rewinding);
    *r = (struct rewinding){.live = l,
                            .inner = true,
                            .texts = texts,
                            .halted = true,
                            .drifted = true,
                            .row = {.stack = xstrdup(stack)},
                            .done = done,
                            .arg = arg};
    live_ref(l);
    begin_switch(r);
}

/* ---- after a crash ---- */

/* Finds the step that holds the state before the rewind: its number is one lower. */
static int find_kept(struct rewinding *r, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    struct live *l = r->live;
    if (store_step_list(l->service->store, l->row.id, r->row.number, true, 1, &list, err) < 0)
        return -1;
    if (!list.count || list.rows[0].kind != STEP_KEPT)
        return err_set(err, ERR_NOT_FOUND,
                       "the state before an unfinished rewind was not saved as a step");
    r->kept = list.rows[0];
    list.rows[0].what = list.rows[0].stack = NULL;
    return 0;
}

int rewind_adopt(struct live *l, struct step_row *row, struct err *err) {
    struct rewinding *r = xnew(struct rewinding);
    *r = (struct rewinding){.live = l, .adopted = true, .row = *row};
    row->what = row->stack = NULL;
    live_ref(l);
    if (find_kept(r, err) < 0) { /* nothing may change before the state to keep is known */
        bool none = err->code == ERR_NOT_FOUND;
        if (none)
            rewind_take_back(r, err);
        else
            rewinding_free(r);
        return none ? 0 : -1;
    }
    l->changing = true;
    barrier_close(l);
    ask_root(r);
    return 0;
}
