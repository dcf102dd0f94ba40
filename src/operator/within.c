/*
 * Runs within a run: a sub-agent, which spends its parent's budget, and one of several tries, which
 * has its own share. Both use the parent's provider and end with it.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "service/models/models.h"
#include "service/net/net.h"
#include "service/runs.h"

static struct live_run *inner_new(struct live_run *parent, enum inner_kind kind) {
    struct live_run *l = live_run_new(parent->runs, &parent->who);
    struct err none;
    l->is_child = kind == INNER_CHILD;
    l->is_try = kind == INNER_TRY;
    l->borrows = true;
    l->provider = parent->provider;
    l->rehearsal = parent->rehearsal;
    l->row = parent->row;
    l->mode = l->is_try ? mode_of(&parent->run) : mode_find(NULL, &none);
    memcpy(l->account, parent->account, sizeof(l->account));
    return l;
}

/* Opens an account (a share of the budget) for a try; a sub-agent uses its parent's. */
static int open_account(struct live_run *l, const struct run_event *start, struct err *err) {
    const struct cost limit = {start->budget.tokens, start->budget.micro};
    return !l->is_try ? 0
                      : service_run_account(l->runs->service, l->who.owner, start->machine,
                                            start->run, &limit, l->account, err);
}

/* ---- start of an inner run ---- */

/* The fields of RUN_START that a sub-agent and a try take from the parent. */
static struct run_event start_of(const struct live_run *parent, const struct machine_view *view,
                                 const char *key, const char *run) {
    return (struct run_event){.kind = RUN_START,
                              .time_ms = wall_ms(),
                              .run = run,
                              .owner = parent->who.owner,
                              .machine = view->id,
                              .model = parent->run.start.model,
                              .window = parent->run.start.window,
                              .parent = key};
}

static int within_begin(struct live_run *l, struct run_event *start, const char *verb,
                        struct err *err) {
    l->menu = start->menu;
    live_equip(l, start->machine);
    start->prompt_bytes = live_prompt_bytes(l);
    if (open_account(l, start, err) < 0 ||
        transcript_new(l->runs->dir, start->run, &l->transcript, err) < 0 ||
        run_take(&l->run, start, err) < 0 || transcript_add(&l->transcript, start, err) < 0)
        return -1;
    l->menu = l->run.start.menu;
    return live_note(l, verb, err);
}

static int within_start(struct live_run *l, struct run_event *e, const char *verb,
                        char ret_run[ID_SIZE], struct err *err) {
    if (within_begin(l, e, verb, err) < 0) {
        live_run_free(l);
        return -1;
    }
    snprintf(ret_run, ID_SIZE, "%s", e->run);
    live_go(l);
    return 0;
}

int live_child(struct live_run *parent, const struct machine_view *view, const char *task,
               const char *key, struct run_budget budget, char ret_run[ID_SIZE], struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct id id = id_new('r');
    struct run_event e = start_of(parent, view, key, id.text);
    e.task = task;
    e.own_machine = true;
    e.budget = budget;
    e.card = arena_printf(&a,
                          "%s\nYou are a sub-agent: your task is part of a larger one, and your "
                          "report goes to the agent that gave it to you.",
                          live_card(parent->runs->service, &a, view));
    return within_start(inner_new(parent, INNER_CHILD), &e, "run.spawn", ret_run, err);
}

static uint64_t part_of(uint64_t all, uint64_t parts) {
    return !all ? 0 : all / parts ? all / parts : 1;
}

int live_try(struct live_run *parent, const struct machine_view *view, const char *key,
             char ret_run[ID_SIZE], struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    const struct run_event *of = &parent->run.start;
    struct id id = id_new('r');
    struct run_event e = start_of(parent, view, key, id.text);
    if (of->guard && service_net_guard(parent->runs->service, &parent->who, view->id, err) < 0)
        return -1;
    e.task = of->task;
    e.script = of->script;
    e.mode = of->mode;
    e.menu = of->menu;
    e.budget = (struct run_budget){of->budget.turns, part_of(of->budget.tokens, of->tries),
                                   part_of(of->budget.micro, of->tries), of->budget.timeout_ms};
    e.card = live_card_for(parent->runs->service, &a, view, mode_of(&parent->run), of->menu);
    return within_start(inner_new(parent, INNER_TRY), &e, "run.start", ret_run, err);
}

/* ---- inner runs from before a restart ---- */

static int take_up(struct live_run *l, const char *run, struct err *err) {
    struct run_event e = {.kind = RUN_RESUME, .time_ms = wall_ms()};
    if (runs_load(l->runs, &l->who, run, &l->run, &l->transcript, err) < 0)
        return -1;
    if (l->run.phase == RUN_ENDED)
        return 0;
    return open_account(l, &l->run.start, err) < 0 || run_take(&l->run, &e, err) < 0 ||
                   transcript_add(&l->transcript, &e, err) < 0
               ? -1
               : live_note(l, "run.resume", err);
}

int live_inner_again(struct live_run *parent, enum inner_kind kind, const char *run,
                     struct err *err) {
    if (map_get(&parent->runs->live, run))
        return 0;
    struct live_run *l = inner_new(parent, kind);
    int status = take_up(l, run, err);
    if (status < 0 || l->run.phase == RUN_ENDED) {
        live_run_free(l);
        return status;
    }
    live_prepare(l);
    live_go(l);
    return 0;
}

void live_inner_leave(struct runs *o, const char *run) {
    struct live_run *l = map_get(&o->live, run);
    if (l)
        live_close(l);
}
