#include "service/exec/live.h"
#include "service/steps/barrier.h"
#include "service/steps/inner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/steps/call_inner.h"
#include "service/steps/durable.h"

enum { AGAIN_MS = 200, AGAIN_TRIES = 25, DYING_MS = 4, DYING_TRIES = 50, WHAT_MAX = 4096 };

static void begin_next(void *arg);

struct service_steps *service_steps_new(void) {
    struct service_steps *p = calloc(1, sizeof(*p));
    if (!p)
        abort();
    return p;
}

void service_steps_free(struct service_steps *p) {
    free(p);
}

void steps_fallbacks(const struct service *s, uint64_t ret[FELL_COUNT]) {
    memcpy(ret, s->steps->fallbacks, sizeof(s->steps->fallbacks));
}

static void steps_set_up(struct live *l) {
    *l->steps = (struct live_steps){.layer = 1, .start = {.fn = begin_next, .arg = l}};
    l->steps->wanted_last = &l->steps->wanted;
    barrier_init(l);
}

void steps_init(struct live *l) {
    l->steps = calloc(1, sizeof(*l->steps));
    if (!l->steps)
        abort();
    steps_set_up(l);
}

uint32_t steps_layer(const struct live *l) {
    return l->steps->layer;
}

const char *steps_stack(const struct live *l) {
    return l->steps->stack;
}

uint64_t steps_count(const struct live *l) {
    return l->steps->count;
}

void steps_set_count(struct live *l, uint64_t count) {
    l->steps->count = count;
}

bool steps_copy_runs(const struct live *l) {
    return l->steps->still;
}

bool steps_are_at_rest(const struct live *l) {
    const struct live_steps *p = l->steps;
    return !p->taking && !p->held && !p->still && !p->merging && !p->pruning && !p->durable.saving;
}

/* ---- what the root is made of ---- */

int steps_load(struct live *l, struct err *err) {
    struct live_steps *p = l->steps;
    struct root_row row DEFER(root_row_done) = {.stack = NULL};
    if (p->loaded)
        return 0;
    if (store_root_get(l->service->store, l->row.id, &row, err) == 0) {
        p->layer = row.layer;
        p->stack = TAKE(row.stack);
    } else if (err->code != ERR_NOT_FOUND) {
        return -1;
    }
    p->loaded = true;
    return 0;
}

int steps_root_put(struct live *l, uint32_t layer, const char *stack, struct err *err) {
    struct root_row row = {.layer = layer, .stack = (char *)stack};
    memcpy(row.machine, l->row.id, sizeof(row.machine));
    return store_root_put(l->service->store, &row, err);
}

void steps_root_known(struct live *l, uint32_t layer, const char *stack) {
    char *copy = strdup(stack);
    if (!copy)
        abort();
    free(l->steps->stack);
    l->steps->stack = copy;
    l->steps->layer = layer;
    l->steps->loaded = true;
}

int steps_next_stack(struct live *l, char text[LAYERS_TEXT_SIZE], struct err *err) {
    struct layers layers;
    if (steps_load(l, err) < 0 ||
        layers_parse(l->steps->stack ? l->steps->stack : "", &layers, err) < 0)
        return -1;
    if (layers_push(&layers, l->row.id, l->steps->layer, err) < 0) {
        steps_compact(l);
        return err_remedy(err, "they are being merged: try again in a moment");
    }
    return layers_print(&layers, text, LAYERS_TEXT_SIZE)
               ? 0
               : err_set(err, ERR_LIMIT, "the stack of layers is too long");
}

/* ---- taking a step ---- */

static struct step_call *call_new(struct live *l, const struct step_cause *cause) {
    struct step_call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    c->live = l;
    c->row = (struct step_row){.kind = cause->kind,
                               .state = STEP_TAKING,
                               .created_ms = now_ms(),
                               .status = cause->status,
                               .what = strndup(cause->what ? cause->what : "", WHAT_MAX)};
    snprintf(c->row.id, sizeof(c->row.id), "%s", id_new('s').text);
    snprintf(c->row.machine, sizeof(c->row.machine), "%s", l->row.id);
    snprintf(c->row.exec, sizeof(c->row.exec), "%s", cause->exec ? cause->exec : "");
    snprintf(c->row.name, sizeof(c->row.name), "%s", cause->name ? cause->name : "");
    c->dying = cause->killed ? DYING_TRIES : 0;
    live_ref(l);
    return c;
}

static void call_free(struct step_call *c) {
    loop_timer_free(c->again);
    step_row_done(&c->row);
    live_unref(c->live);
    free(c);
}

/* The next one, or whoever waits. */
void step_over(struct step_call *c, const struct err *err) {
    struct live *l = c->live;
    live_ref(l);
    l->steps->taking = NULL;
    if (err)
        log_line(LOG_WARN, "service", "step: %s id=%s", err->text, l->row.id);
    if (c->done)
        c->done(c->arg, err ? NULL : &c->row, err);
    if (!err && c->row.layer)
        steps_compact(l);
    if (!err && c->row.has_point)
        durable_want(l);
    l->steps->unpruned = true;
    call_free(c);
    barrier_open(l);
    live_unref(l);
}

static void no_point(struct step_call *c, const char *why) {
    struct step_row *row = &c->row;
    row->has_point = row->layer = 0;
    free(row->stack);
    row->stack = NULL;
    snprintf(row->reason, sizeof(row->reason), "%s", why);
    c->live->service->steps->fallbacks[FELL_STEP_WITHOUT_POINT] += row->kind != STEP_SNAP;
}

static void say_full(const struct live *l, struct err *err) {
    err_wrap(err, "the disk of machine '%s' has no room for a step", l->row.id);
    err_remedy(err, "remove files in it, or make one with a larger --disk; names keep old steps");
}

/* ---- a copy, while something runs ---- */

static void not_copied(struct step_call *c, const struct err *failed) {
    struct live *l = c->live;
    struct err err = *failed;
    bool slow = failed->code == ERR_UNSUPPORTED;
    if (c->row.kind == STEP_SNAP) {
        if (failed->code == ERR_LIMIT)
            say_full(l, &err);
        step_refuse(c, &err);
        return;
    }
    l->steps->copies_slowly |= slow;
    no_point(c, slow ? c->shared.text : failed->text);
    step_finish(c, false);
}

static void copied(void *arg, const char *how, const struct err *failed) {
    struct step_call *c = arg;
    if (failed) {
        not_copied(c, failed);
        return;
    }
    c->live->service->steps->fallbacks[FELL_STEP_COPIED] += strcmp(how, "btrfs") != 0;
    c->row.has_point = 1;
    snprintf(c->row.reason, sizeof(c->row.reason), "%s", how);
    step_finish(c, false);
}

static void take_copy(struct step_call *c) {
    still_copy(c->live, c->row.layer, c->row.kind != STEP_SNAP, copied, c);
}

static void copy_planned(void *arg, const struct err *failed) {
    if (failed)
        step_refuse(arg, failed);
    else
        take_copy(arg);
}

/*
 * Numbers from a place by chance on: whatever a copy that was never finished left is not met again,
 * and a list of many is short.
 */
static int choose_number(struct live *l, struct err *err) {
    uint32_t chance, *last = &l->steps->last_copy;
    if (*last && *last < LAYER_NUMBER_MAX) {
        (*last)++;
        return 0;
    }
    if (getrandom(&chance, sizeof(chance), 0) != sizeof(chance))
        return err_sys(err, "choose a layer");
    *last = LAYER_COPIED + chance % (LAYER_NUMBER_MAX - LAYER_COPIED);
    return 0;
}

static int plan_copy(struct step_call *c, struct err *err) {
    struct live *l = c->live;
    struct layers layers;
    char text[LAYERS_TEXT_SIZE];
    if (choose_number(l, err) < 0)
        return -1;
    c->row.layer = l->steps->last_copy;
    if (steps_load(l, err) < 0 ||
        layers_parse(l->steps->stack ? l->steps->stack : "", &layers, err) < 0 ||
        layers_push(&layers, l->row.id, c->row.layer, err) < 0)
        return -1;
    if (!layers_print(&layers, text, sizeof(text)))
        return err_set(err, ERR_LIMIT, "the stack of layers is too long");
    free(c->row.stack);
    c->row.stack = strdup(text);
    return 0;
}

/* The root cannot be switched. Unasked it is done where it costs nothing, as far as is known. */
static bool may_copy(const struct step_call *c) {
    const struct live *l = c->live;
    if (c->uncertain || l->changing || !l->machine)
        return false;
    switch (c->row.kind) {
    case STEP_SNAP:
        return l->row.state == MACHINE_RUNNING || l->row.state == MACHINE_PAUSED;
    case STEP_EXEC:
    case STEP_FILE:
    case STEP_KEPT:
        return l->row.state == MACHINE_RUNNING && !l->steps->copies_slowly;
    default:
        return false;
    }
}

/* What a command left behind was found only when the switch was asked for. */
static bool copy_instead(struct step_call *c, const struct err *failed) {
    struct err err;
    if (failed->code != ERR_BUSY || c->row.layer >= LAYER_COPIED || !may_copy(c))
        return false;
    c->shared = *failed;
    if (plan_copy(c, &err) < 0)
        step_refuse(c, &err);
    else
        step_replan(c, copy_planned);
    return true;
}

/* ---- a switch of root ---- */

static void ask_root(void *arg);
static void root_known(void *arg, bool changed, const struct err *failed);

static void wait_and_ask(struct step_call *c) {
    if (!c->again)
        c->again = loop_timer_new(c->live->service->loop, ask_root, c);
    loop_timer_start(c->again, AGAIN_MS, 0);
}

/*
 * Nobody knows whether the guest went over: asked again until it is known, or the machine ends. A
 * spawner that cannot be started meanwhile is no answer either, but one day it is enough.
 */
static bool ask_again(struct step_call *c, const struct err *err) {
    struct live *l = c->live;
    bool ends = l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED;
    bool lost = err->code == ERR_UNKNOWN || err->code == ERR_GONE || err->code == ERR_TIMEOUT;
    c->uncertain |= lost;
    if (ends || !c->uncertain || (!lost && c->tries++ >= AGAIN_TRIES))
        return false;
    wait_and_ask(c);
    return true;
}

static bool make_room(struct step_call *c, const struct err *err) {
    bool may = steps_make_room(c->live, err, &c->rooms);
    if (may)
        wait_and_ask(c);
    return may;
}

static void refresh_planned(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    struct live *l = c->live;
    struct err err;
    if (!failed && !l->machine) {
        err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
        failed = &err;
    }
    if (failed)
        step_refuse(c, failed);
    else
        l->service->driver->root(l->machine, c->row.stack, l->steps->layer + 1, 0, root_known, c);
}

/* Nothing was written since the last root: this one has the same layers, as they are now. */
static void refresh_plain(struct step_call *c) {
    const struct live *l = c->live;
    c->plain = true;
    c->row.layer = 0;
    free(c->row.stack);
    c->row.stack = strdup(l->steps->stack ? l->steps->stack : "");
    if (!c->row.stack)
        abort();
    step_replan(c, refresh_planned);
}

/* The layer of what was written since the newest step: a row must name it while it is mounted. */
static void refresh_kept(struct step_call *c) {
    c->row.kind = STEP_KEPT;
    c->row.has_point = 1;
    step_finish(c, true);
}

static void refresh_known(struct step_call *c, bool changed, const struct err *failed) {
    if (failed && ask_again(c, failed))
        return;
    if (failed)
        step_refuse(c, failed);
    else if (!changed && !c->plain)
        refresh_plain(c);
    else if (c->row.layer)
        refresh_kept(c);
    else
        step_refreshed(c);
}

static void root_known(void *arg, bool changed, const struct err *failed) {
    struct step_call *c = arg;
    struct live *l = c->live;
    struct err err;
    if (c->row.kind == STEP_REFRESH) {
        refresh_known(c, changed, failed);
        return;
    }
    if (failed && (ask_again(c, failed) || make_room(c, failed) || copy_instead(c, failed)))
        return;
    l->steps->full = l->steps->freeing = false;
    if (failed) {
        no_point(c, failed->text);
    } else {
        c->row.has_point = 1;
        if (!changed) {
            free(c->row.stack);
            c->row.stack = l->steps->stack ? strdup(l->steps->stack) : NULL;
            c->row.layer = 0;
            c->row.counted = 1;
        }
    }
    bool asked_for = c->row.kind == STEP_SNAP && failed;
    if (asked_for) { /* one that cannot be returned to is not what was wanted */
        err = *failed;
        if (err.code == ERR_LIMIT)
            say_full(l, &err);
        step_refuse(c, &err);
    } else {
        step_finish(c, !failed && changed);
    }
}

static void ask_root_as(struct step_call *c, unsigned how) {
    struct live *l = c->live;
    struct err err;
    if (!l->machine) {
        err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
        root_known(c, false, &err);
        return;
    }
    l->service->driver->root(l->machine, c->row.stack, l->steps->layer + 1, ROOT_IF_CHANGED | how,
                             root_known, c);
}

static void ask_root(void *arg) {
    ask_root_as(arg, 0);
}

static void ask_alone(void *arg);

/* Where there are no cgroups, nobody waited for all of what was killed: its last are waited for. */
static bool wait_for_dying(struct step_call *c, const struct err *err) {
    if (err->code != ERR_BUSY || !c->dying || !c->live->machine)
        return false;
    c->dying--;
    loop_timer_free(c->again);
    c->again = loop_timer_new(c->live->service->loop, ask_alone, c);
    loop_timer_start(c->again, DYING_MS, 0);
    return true;
}

static void alone_known(void *arg, const struct err *err) {
    struct step_call *c = arg;
    if (c->adding) {
        c->answered = true; /* and is asked again */
    } else if (c->unwritten) {
        step_over(c, &c->why);
    } else if (!err) {
        loop_timer_free(TAKE(c->again)); /* from now on it asks for something else */
        ask_root_as(c, ROOT_ALONE);
    } else if (!wait_for_dying(c, err)) {
        loop_timer_free(TAKE(c->again));
        root_known(c, false, err);
    }
}

static void ask_alone(void *arg) {
    struct step_call *c = arg;
    if (c->live->machine)
        c->live->service->driver->alone(c->live->machine, alone_known, c);
    else
        ask_root(c);
}

static bool cannot_switch(const struct live *l, struct err *ret_why) {
    if (!l->machine || l->row.state == MACHINE_PAUSED)
        live_state_error(l, ret_why);
    else if (execs_running(l))
        err_set(ret_why, ERR_BUSY, "other commands were running");
    else if (l->watched)
        err_set(ret_why, ERR_BUSY, "a path in machine '%s' is being watched", l->row.id);
    else
        return false;
    return true;
}

/* What the step will be; false: it was refused. Without a restore point there is nothing to do. */
static bool step_plan(struct step_call *c) {
    struct live *l = c->live;
    struct err err = {.text = ""};
    char stack[LAYERS_TEXT_SIZE];
    int ready = -1;
    bool shared = cannot_switch(l, &c->shared);
    c->way = shared && may_copy(c) ? STEP_COPIES : STEP_SWITCHES;
    if (c->way == STEP_COPIES)
        ready = plan_copy(c, &err);
    else if (shared)
        err = c->shared;
    else
        ready = steps_next_stack(l, stack, &err);
    if (ready == 0 && c->way == STEP_SWITCHES) {
        c->row.stack = strdup(stack);
        c->row.layer = l->steps->layer;
    } else if (ready < 0 && (c->row.kind == STEP_SNAP || c->row.kind == STEP_REFRESH)) {
        step_over(c, &err);
        return false;
    } else if (ready < 0) {
        no_point(c, err.text);
        c->way = STEP_ONLY_NOTED;
        c->row.state = STEP_DONE;
    }
    return true;
}

static int write_begun(void *arg, struct err *err) {
    struct step_call *c = arg;
    if (store_step_add(c->live->service->store, &c->row, err) < 0)
        return -1;
    return c->way == STEP_ONLY_NOTED ? step_put_event(c, err) : 0;
}

/* The row is there: what was asked of the guest meanwhile may have come too early. */
static void begun_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    c->adding = false;
    if (failed) {
        c->unwritten = true;
        c->why = *failed;
    }
    if (c->way == STEP_SWITCHES && !c->answered)
        return; /* alone_known() goes on */
    if (failed)
        step_over(c, failed);
    else if (c->way == STEP_SWITCHES)
        ask_alone(c);
    else if (c->way == STEP_COPIES)
        take_copy(c);
    else
        step_over(c, NULL);
}

static void take_begin(struct step_call *c) {
    struct live *l = c->live;
    struct err err;
    l->steps->taking = c;
    if (!step_plan(c))
        return;
    /* The guest is asked while we write; the layers are touched only once that is done. */
    c->adding = true;
    if (c->way == STEP_SWITCHES)
        ask_alone(c);
    const struct commit intent = {write_begun, begun_written, NULL, c};
    if (c->row.kind == STEP_SNAP || c->row.kind == STEP_REFRESH) {
        bool written = commit_once(l->service->commits, &l->lane, &intent, &err) == 0;
        begun_written(c, written ? NULL : &err);
    } else {
        commit_run(l->service->commits, &l->lane, &intent);
    }
}

/* Steps come faster than layers are merged: the next one waits, or its stack would be too long. */
static bool is_behind(const struct live_steps *p) {
    size_t layers = p->stack && *p->stack ? 1 : 0;
    for (const char *at = p->stack; at && (at = strchr(at, ' ')); at++)
        layers++;
    return p->merging && layers >= LAYERS_GOOD - 1;
}

/* Takes it out of the list, which is whole again before anybody hears of it. */
static struct step_call *next_wanted(struct live_steps *p) {
    struct step_call *c = p->wanted;
    p->wanted = c->next;
    if (!p->wanted)
        p->wanted_last = &p->wanted;
    return c;
}

static void begin_next(void *arg) {
    struct live *l = arg;
    struct live_steps *p = l->steps;
    if (!p->wanted || p->taking || p->held || is_behind(p) || commit_waits(&l->lane) ||
        barrier_is_unheard(l))
        return;
    take_begin(next_wanted(p));
}

void steps_take(struct live *l, const struct step_cause *cause, step_taken_fn *done, void *arg) {
    struct live_steps *p = l->steps;
    struct step_call *c = call_new(l, cause);
    c->done = done;
    c->arg = arg;
    *p->wanted_last = c;
    p->wanted_last = &c->next;
    loop_defer(l->service->loop, &p->start);
}

void steps_refresh(struct live *l) {
    struct step_cause cause = {.kind = STEP_REFRESH, .what = "to free its disk", .status = -1};
    steps_take(l, &cause, NULL, NULL);
}

void steps_after(struct live *l, const struct step_cause *cause) {
    bool wanted = l->row.steps == STEPS_EVERY && l->machine && !l->steps->held &&
                  l->row.state != MACHINE_ENDING && l->row.state != MACHINE_ENDED;
    if (wanted)
        steps_take(l, cause, NULL, NULL);
}

/* ---- the beginning and the end of what is known ---- */

/* What was begun by a daemon that died: the same is asked for, and perhaps it is so already. */
static void finish_begun(struct live *l, struct step_row *row) {
    struct step_call *c = call_new(l, &(struct step_cause){.kind = row->kind});
    step_row_done(&c->row);
    c->row = *row;
    row->what = row->stack = NULL;
    if (c->row.kind == STEP_SNAP) { /* nobody was told of it, and perhaps that it was refused */
        c->row.kind = STEP_KEPT;
        c->row.name[0] = '\0';
    }
    c->uncertain = true;
    l->steps->taking = c;
    ask_root(c);
}

static void still_or_not(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err && err->code != ERR_UNSUPPORTED)
        log_line(LOG_ERROR, "service", "let a machine go on, or not: %s id=%s", err->text,
                 l->row.id);
    live_unref(l);
}

/* A pause, resume or copy of a daemon that died may be done and not written: the row decides. */
static void freeze_as_written(struct live *l) {
    if (!l->machine || (l->row.state != MACHINE_RUNNING && l->row.state != MACHINE_PAUSED))
        return;
    live_ref(l);
    l->service->driver->freeze(l->machine, l->row.state == MACHINE_PAUSED, still_or_not, l);
}

/* A copy that nobody was told of. */
static int write_dropped(void *arg, struct err *err) {
    struct step_call *c = arg;
    struct store *store = c->live->service->store;
    return c->row.kind == STEP_SNAP ? store_step_delete(store, c->row.id, err)
                                    : store_step_update(store, &c->row, err);
}

static void dropped_written(void *arg, const struct err *failed) {
    struct step_call *c = arg;
    if (failed)
        log_line(LOG_ERROR, "service", "step: %s id=%s", failed->text, c->live->row.id);
    call_free(c);
}

static void drop_copy(struct live *l, struct step_row *row) {
    struct step_call *c = call_new(l, &(struct step_cause){.kind = row->kind});
    step_row_done(&c->row);
    c->row = *row;
    row->what = row->stack = NULL;
    c->row.state = STEP_DONE;
    c->row.layer = c->row.has_point = 0;
    free(TAKE(c->row.stack));
    snprintf(c->row.reason, sizeof(c->row.reason), "the daemon ended while it was taken");
    const struct commit commit = {write_dropped, dropped_written, NULL, c};
    commit_run(l->service->commits, &l->lane, &commit);
}

static int adopt_begun(struct live *l, struct step_row *row, bool of_rewind, struct err *err) {
    if (row->layer >= LAYER_COPIED)
        drop_copy(l, row);
    else if (row->kind == STEP_REWIND)
        return rewind_adopt(l, row, err);
    else if (row->kind != STEP_KEPT || !of_rewind) /* what was kept for a rewind goes with it */
        finish_begun(l, row);
    return 0;
}

int steps_adopt(struct live *l, struct err *err) {
    struct step_list list DEFER(step_list_done) = {0};
    freeze_as_written(l);
    if (steps_load(l, err) < 0 ||
        store_step_list(l->service->store, l->row.id, 0, true, STORE_PAGE_MAX, &list, err) < 0)
        return err_wrap(err, "its steps");
    l->steps->unpruned = true; /* so that its disk is known */
    l->steps->stale = true;    /* perhaps */
    bool rewinds = false;
    for (size_t i = 0; i < list.count && !l->steps->taking; i++) {
        enum step_kind kind = list.rows[i].kind;
        if (adopt_begun(l, &list.rows[i], rewinds, err) < 0)
            return err_wrap(err, "its rewind");
        rewinds = kind == STEP_REWIND;
    }
    return 0;
}

void steps_end(struct live *l) {
    struct err err;
    err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
    while (l->steps->wanted) {
        struct step_call *c = next_wanted(l->steps);
        if (c->done) /* which may want another one: that is refused here, too */
            c->done(c->arg, NULL, &err);
        call_free(c);
    }
    loop_call_cancel(l->service->loop, &l->steps->start);
    barrier_let_all(l);
}

/* A call that is let go of with its machine's driver; its reference must not be the last. */
static void abandon(struct step_call *c) {
    loop_timer_free(TAKE(c->again));
    step_row_done(&c->row);
    live_unref(c->live);
    free(c);
}

void steps_release(struct live *l) {
    struct live_steps *p = l->steps;
    loop_call_cancel(l->service->loop, &p->start);
    for (struct step_call *c = TAKE(p->wanted), *next; c; c = next) {
        next = c->next;
        abandon(c);
    }
    still_release(l);
    if (p->taking)
        abandon(TAKE(p->taking));
    steps_compact_release(l);
    durable_release(l);
    barrier_release(l);
}

static void steps_tear_down(struct live *l) {
    loop_call_cancel(l->service->loop, &l->steps->start);
    loop_timer_free(TAKE(l->steps->rest));
    free(l->steps->stack);
}

void steps_reset(struct live *l) {
    steps_tear_down(l);
    steps_set_up(l);
}

void steps_free(struct live *l) {
    steps_tear_down(l);
    free(l->steps);
}
