#include "service/gate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/defer.h"
#include "base/log.h"
#include "service/durable.h"

enum { AGAIN_MS = 200, AGAIN_TRIES = 25, DYING_MS = 4, DYING_TRIES = 50, WHAT_MAX = 4096 };

/* Somebody who waits to change something. */
struct gate_call {
    struct gate_call *next;
    loop_fn *go;
    void *arg;
};

/* A step that is wanted, or under way. */
struct step_call {
    struct step_call *next;
    struct live *live;
    struct step_row row;
    step_taken_fn *done;
    void *arg;
    struct loop_timer *again;
    bool uncertain; /* the root may be sealed, and the guest still in it */
    unsigned tries;
    unsigned rooms; /* times that history was shortened for it */
    bool plain;     /* a refresh: nothing was written, so the upper is left out */
    unsigned dying; /* times that what was killed may still be looked for */
    bool unwritten; /* its row could not be: */
    struct err why;
    struct err shared; /* of one that is copied: why the root was not switched */
};

/* ---- the gate ---- */

static bool is_closed(const struct steps *p) {
    return p->held || p->taking || p->wanted;
}

bool gate_wait(struct live *l, loop_fn *go, void *arg) {
    struct steps *p = &l->steps;
    if (!is_closed(p) || l->row.state == MACHINE_ENDING || l->row.state == MACHINE_ENDED)
        return false;
    struct gate_call *c = calloc(1, sizeof(*c));
    if (!c)
        abort();
    *c = (struct gate_call){NULL, go, arg};
    *p->gate_last = c;
    p->gate_last = &c->next;
    return true;
}

bool gate_wait_root(struct live *l, loop_fn *go, void *arg) {
    const struct steps *p = &l->steps;
    bool moves = p->held || (p->taking && !p->still);
    return moves && gate_wait(l, go, arg);
}

/* They may close it again: those behind them wait on. */
static void let_through(struct live *l, bool all) {
    struct steps *p = &l->steps;
    live_ref(l);
    while (p->gate && (all || !is_closed(p))) {
        struct gate_call *c DEFER_FREE = p->gate;
        p->gate = c->next;
        if (!p->gate)
            p->gate_last = &p->gate;
        c->go(c->arg);
    }
    live_unref(l);
}

static void begin_next(void *arg);

void gate_close(struct live *l) {
    l->steps.held = true;
}

void gate_open(struct live *l) {
    l->steps.held = false;
    if (l->steps.wanted)
        loop_defer(l->service->loop, &l->steps.start);
    else
        let_through(l, false);
}

void steps_init(struct live *l) {
    l->steps = (struct steps){.layer = 1, .start = {.fn = begin_next, .arg = l}};
    l->steps.gate_last = &l->steps.gate;
    l->steps.wanted_last = &l->steps.wanted;
}

/* ---- what the root is made of ---- */

int steps_load(struct live *l, struct err *err) {
    struct steps *p = &l->steps;
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

int steps_root_changed(struct live *l, uint32_t layer, const char *stack, struct err *err) {
    struct root_row row = {.layer = layer, .stack = (char *)stack};
    char *copy = strdup(stack);
    memcpy(row.machine, l->row.id, sizeof(row.machine));
    if (!copy || store_root_put(l->service->store, &row, err) < 0) {
        free(copy);
        return copy ? -1 : err_set(err, ERR_LIMIT, "out of memory");
    }
    free(l->steps.stack);
    l->steps.stack = copy;
    l->steps.layer = layer;
    return 0;
}

int steps_next_stack(struct live *l, char text[LAYERS_TEXT_SIZE], struct err *err) {
    struct layers layers;
    if (steps_load(l, err) < 0 ||
        layers_parse(l->steps.stack ? l->steps.stack : "", &layers, err) < 0)
        return -1;
    if (layers_push(&layers, l->row.id, l->steps.layer, err) < 0) {
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

static void tell(const struct step_call *c) {
    struct live *l = c->live;
    struct buf text DEFER(buf_done) = BUF(1024);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "step", c->row.id);
    jot_u64(&j, "number", c->row.number);
    jot_string(&j, "kind", step_kind_name(c->row.kind));
    jot_bool(&j, "restorable", c->row.has_point);
    if (c->row.reason[0])
        jot_string(&j, "reason", c->row.reason);
    jot_end(&j, '}');
    event_tell(l->service, l->row.owner, l->row.id, "step.taken", text.data);
}

/* The next one, or whoever waits. */
static void step_over(struct step_call *c, const struct err *err) {
    struct live *l = c->live;
    live_ref(l);
    l->steps.taking = NULL;
    if (err)
        log_line(LOG_WARN, "service", "step: %s id=%s", err->text, l->row.id);
    if (c->done)
        c->done(c->arg, err ? NULL : &c->row, err);
    if (!err && c->row.layer)
        steps_compact(l);
    if (!err && c->row.has_point)
        durable_want(l);
    l->steps.unpruned = true;
    call_free(c);
    gate_open(l);
    live_unref(l);
}

/* One transaction: the step is finished, and the root is what it says. */
static int write_step(struct step_call *c, bool changed, struct err *err) {
    struct live *l = c->live;
    struct store *store = l->service->store;
    if (store_begin(store, err) < 0)
        return -1;
    c->row.state = STEP_DONE;
    int r = store_step_update(store, &c->row, err);
    if (r == 0 && changed)
        r = steps_root_changed(l, l->steps.layer + 1, c->row.stack, err);
    l->steps.stale &= !changed;
    if (r == 0)
        tell(c);
    if (r == 0 && store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

static void no_point(struct step_call *c, const char *why) {
    struct step_row *row = &c->row;
    row->has_point = row->layer = 0;
    free(row->stack);
    row->stack = NULL;
    snprintf(row->reason, sizeof(row->reason), "%s", why);
    c->live->service->fallbacks[FELL_STEP_WITHOUT_POINT] += row->kind != STEP_SNAP;
}

static void say_full(const struct live *l, struct err *err) {
    err_wrap(err, "the disk of machine '%s' has no room for a step", l->row.id);
    err_remedy(err, "remove files in it, or make one with a larger --disk; names keep old steps");
}

static void refuse(struct step_call *c, const struct err *err) {
    store_step_delete(c->live->service->store, c->row.id, NULL);
    step_over(c, err);
}

/* ---- a copy, while something runs ---- */

static void not_copied(struct step_call *c, const struct err *failed) {
    struct live *l = c->live;
    struct err err = *failed;
    bool slow = failed->code == ERR_UNSUPPORTED;
    if (c->row.kind == STEP_SNAP) {
        if (failed->code == ERR_LIMIT)
            say_full(l, &err);
        refuse(c, &err);
        return;
    }
    l->steps.copies_slowly |= slow;
    no_point(c, slow ? c->shared.text : failed->text);
    step_over(c, write_step(c, false, &err) < 0 ? &err : NULL);
}

static void copied(void *arg, const char *how, const struct err *failed) {
    struct step_call *c = arg;
    struct err err;
    if (failed) {
        not_copied(c, failed);
        return;
    }
    c->live->service->fallbacks[FELL_STEP_COPIED] += strcmp(how, "btrfs") != 0;
    c->row.has_point = 1;
    snprintf(c->row.reason, sizeof(c->row.reason), "%s", how);
    step_over(c, write_step(c, false, &err) < 0 ? &err : NULL);
}

static void copy(struct step_call *c) {
    still_copy(c->live, c->row.layer, c->row.kind != STEP_SNAP, copied, c);
}

/*
 * Numbers from a place by chance on: whatever a copy that was never finished left is not met again,
 * and a list of many is short.
 */
static int choose_number(struct live *l, struct err *err) {
    uint32_t chance, *last = &l->steps.last_copy;
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
    c->row.layer = l->steps.last_copy;
    if (steps_load(l, err) < 0 ||
        layers_parse(l->steps.stack ? l->steps.stack : "", &layers, err) < 0 ||
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
        return l->row.state == MACHINE_RUNNING && !l->steps.copies_slowly;
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
    if (plan_copy(c, &err) < 0 || store_step_update(c->live->service->store, &c->row, &err) < 0)
        refuse(c, &err);
    else
        copy(c);
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

/* The row was an intent only: it goes, and the root is what it said. */
static int write_refreshed(struct step_call *c, struct err *err) {
    struct live *l = c->live;
    struct store *store = l->service->store;
    if (store_begin(store, err) < 0)
        return -1;
    if (store_step_delete(store, c->row.id, err) == 0 &&
        steps_root_changed(l, l->steps.layer + 1, c->row.stack, err) == 0 &&
        store_commit(store, err) == 0)
        return 0;
    store_rollback(store);
    return -1;
}

/* Nothing was written since the last root: this one has the same layers, as they are now. */
static void refresh_plain(struct step_call *c) {
    struct live *l = c->live;
    struct err err;
    c->plain = true;
    free(c->row.stack);
    c->row.stack = strdup(l->steps.stack ? l->steps.stack : "");
    if (!c->row.stack)
        abort();
    if (!l->machine)
        err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
    if (!l->machine || store_step_update(l->service->store, &c->row, &err) < 0)
        refuse(c, &err);
    else
        l->service->driver->root(l->machine, c->row.stack, l->steps.layer + 1, 0, root_known, c);
}

static void refresh_known(struct step_call *c, bool changed, const struct err *failed) {
    struct err err;
    c->row.layer = 0;
    if (failed && ask_again(c, failed))
        return;
    if (failed)
        refuse(c, failed);
    else if (!changed && !c->plain)
        refresh_plain(c);
    else
        step_over(c, write_refreshed(c, &err) < 0 ? &err : NULL);
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
    l->steps.full = l->steps.freeing = false;
    if (failed) {
        no_point(c, failed->text);
    } else {
        c->row.has_point = 1;
        if (!changed) {
            free(c->row.stack);
            c->row.stack = l->steps.stack ? strdup(l->steps.stack) : NULL;
            c->row.layer = 0;
            c->row.counted = 1;
        }
    }
    bool asked_for = c->row.kind == STEP_SNAP && failed;
    if (asked_for) { /* one that cannot be returned to is not what was wanted */
        err = *failed;
        if (err.code == ERR_LIMIT)
            say_full(l, &err);
        refuse(c, &err);
    } else {
        step_over(c, write_step(c, !failed && changed, &err) < 0 ? &err : NULL);
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
    l->service->driver->root(l->machine, c->row.stack, l->steps.layer + 1, ROOT_IF_CHANGED | how,
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
    if (c->unwritten) {
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
    else if (l->running)
        err_set(ret_why, ERR_BUSY, "other commands were running");
    else if (l->watched)
        err_set(ret_why, ERR_BUSY, "a path in machine '%s' is being watched", l->row.id);
    else
        return false;
    return true;
}

static void begin(struct step_call *c) {
    struct live *l = c->live;
    struct err err = {.text = ""};
    char stack[LAYERS_TEXT_SIZE];
    l->steps.taking = c;
    int ready = -1;
    bool shared = cannot_switch(l, &c->shared), copies = shared && may_copy(c);
    if (copies)
        ready = plan_copy(c, &err);
    else if (shared)
        err = c->shared;
    else
        ready = steps_next_stack(l, stack, &err);
    if (ready == 0 && !copies) {
        c->row.stack = strdup(stack);
        c->row.layer = l->steps.layer;
    } else if (ready == 0) {
        ; /* as planned */
    } else if (c->row.kind == STEP_SNAP || c->row.kind == STEP_REFRESH) {
        step_over(c, &err);
        return;
    } else {
        no_point(c, err.text);
        c->row.state = STEP_DONE;
    }
    /* The guest is asked while we write; the layers are touched only once that is done. */
    bool switches = ready == 0 && !copies;
    if (switches)
        ask_alone(c);
    if (store_step_add(l->service->store, &c->row, &c->why) < 0) {
        c->unwritten = true;
        if (!switches)
            step_over(c, &c->why);
    } else if (copies) {
        copy(c);
    } else if (ready < 0) {
        tell(c);
        step_over(c, NULL);
    }
}

/* Steps come faster than layers are merged: the next one waits, or its stack would be too long. */
static bool is_behind(const struct steps *p) {
    size_t layers = p->stack && *p->stack ? 1 : 0;
    for (const char *at = p->stack; at && (at = strchr(at, ' ')); at++)
        layers++;
    return p->merging && layers >= LAYERS_GOOD - 1;
}

static void begin_next(void *arg) {
    struct live *l = arg;
    struct steps *p = &l->steps;
    struct step_call *c = p->wanted;
    if (!c || p->taking || p->held || is_behind(p))
        return;
    p->wanted = c->next;
    if (!p->wanted)
        p->wanted_last = &p->wanted;
    begin(c);
}

void steps_take(struct live *l, const struct step_cause *cause, step_taken_fn *done, void *arg) {
    struct steps *p = &l->steps;
    struct step_call *c = call_new(l, cause);
    c->done = done;
    c->arg = arg;
    *p->wanted_last = c;
    p->wanted_last = &c->next;
    loop_defer(l->service->loop, &p->start);
}

void steps_refresh(struct live *l) {
    steps_take(l, &(struct step_cause){.kind = STEP_REFRESH, .status = -1}, NULL, NULL);
}

void steps_after(struct live *l, const struct step_cause *cause) {
    bool wanted = l->row.steps == STEPS_EVERY && l->machine && !l->steps.held &&
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
    c->uncertain = true;
    l->steps.taking = c;
    ask_root(c);
}

static void gone_on(void *arg, const struct err *err) {
    struct live *l = arg;
    if (err)
        log_line(LOG_ERROR, "service", "let a machine go on: %s id=%s", err->text, l->row.id);
    live_unref(l);
}

/* A copy that nobody was told of; what stood still for it goes on. */
static int give_up_copy(struct live *l, struct step_row *row, struct err *err) {
    if (row->kind == STEP_SNAP)
        return store_step_delete(l->service->store, row->id, err);
    row->state = STEP_DONE;
    row->layer = row->has_point = 0;
    free(TAKE(row->stack));
    snprintf(row->reason, sizeof(row->reason), "the daemon ended while it was taken");
    return store_step_update(l->service->store, row, err);
}

static void drop_copy(struct live *l, struct step_row *row) {
    struct err err;
    if (give_up_copy(l, row, &err) < 0)
        log_line(LOG_ERROR, "service", "step: %s id=%s", err.text, l->row.id);
    if (l->row.state != MACHINE_RUNNING || !l->machine)
        return;
    live_ref(l);
    l->service->driver->freeze(l->machine, false, gone_on, l);
}

void steps_adopt(struct live *l) {
    struct step_list list DEFER(step_list_done) = {0};
    struct err err;
    if (steps_load(l, &err) < 0 ||
        store_step_list(l->service->store, l->row.id, 0, true, STORE_PAGE_MAX, &list, &err) < 0) {
        log_line(LOG_ERROR, "service", "steps of a machine: %s id=%s", err.text, l->row.id);
        return;
    }
    l->steps.unpruned = true; /* so that its disk is known */
    for (size_t i = 0; i < list.count && !l->steps.taking; i++) {
        if (list.rows[i].layer >= LAYER_COPIED)
            drop_copy(l, &list.rows[i]);
        else if (list.rows[i].kind == STEP_REWIND)
            rewind_adopt(l, &list.rows[i]);
        else if (list.rows[i].kind != STEP_KEPT) /* that goes with its rewind */
            finish_begun(l, &list.rows[i]);
    }
}

void steps_end(struct live *l) {
    struct err err;
    err_set(&err, ERR_GONE, "machine '%s' has ended", l->row.id);
    while (l->steps.wanted) {
        struct step_call *c = l->steps.wanted;
        l->steps.wanted = c->next;
        if (c->done)
            c->done(c->arg, NULL, &err);
        call_free(c);
    }
    l->steps.wanted_last = &l->steps.wanted;
    loop_call_cancel(l->service->loop, &l->steps.start);
    let_through(l, true);
}

/* A call that is let go of with its machine's driver; its reference must not be the last. */
static void abandon(struct step_call *c) {
    loop_timer_free(TAKE(c->again));
    step_row_done(&c->row);
    live_unref(c->live);
    free(c);
}

void steps_release(struct live *l) {
    struct steps *p = &l->steps;
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
    for (struct gate_call *g = TAKE(p->gate), *next; g; g = next) {
        next = g->next;
        free(g);
    }
}

void steps_free(struct live *l) {
    loop_call_cancel(l->service->loop, &l->steps.start);
    loop_timer_free(TAKE(l->steps.rest));
    free(l->steps.stack);
}
