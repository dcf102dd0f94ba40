/* A live run: its resources, and the journal records of its start and end. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "operator/own.h"
#include "operator/prompt.h"
#include "service/calls/card.h"
#include "service/runs.h"

enum { IDLE_MS = 30 * 60 * 1000, TTL_MS = 7 * 24 * 3600 * 1000, SCHEMA_MAX = 64 << 10 };

void live_run_free(struct live_run *l) {
    transcript_close(&l->transcript);
    while (l->followers)
        operator_unfollow(l->followers);
    if (l->box)
        toolbox_unref(l->box);
    if (!l->borrows) {
        model_provider_done(&l->provider);
        rehearsal_freep(&l->rehearsal);
    }
    loop_timer_free(l->wall);
    hold_stop(l);
    arena_done(&l->prompt_arena);
    run_done(&l->run);
    free(l);
}

void live_forget(struct live_run *l) {
    if (l->model)
        model_call_cancel(TAKE(l->model));
    if (l->mark)
        act_abandon(TAKE(l->mark));
    acts_leave(l);
    tries_leave(l);
    project_leave(l);
    live_unflush(l);
    loop_call_cancel(l->runs->loop, &l->step);
}

void live_close(struct live_run *l) {
    struct runs *o = l->runs;
    live_forget(l);
    if (l->box)
        toolbox_end(l->box);
    map_take(&o->live, l->run.start.run);
    while (l->followers) {
        struct run_follower *f = l->followers;
        operator_unfollow(f);
        f->changed(f->arg);
    }
    live_run_free(l);
}

static void time_is_up(void *arg) {
    struct live_run *l = arg;
    if (run_active_ms(&l->run, wall_ms()) < l->run.start.budget.timeout_ms) {
        live_wall(l); /* waiting time is not charged: restart the timer */
        return;
    }
    acts_cut(l, "The budget of time was used up during this call, and the call was ended.");
    live_again(l);
}

void live_wall(struct live_run *l) {
    uint64_t limit = l->run.start.budget.timeout_ms, spent = run_active_ms(&l->run, wall_ms());
    if (!limit)
        return;
    if (!l->wall)
        l->wall = loop_timer_new(l->runs->loop, time_is_up, l);
    if (spent < limit)
        loop_timer_start(l->wall, limit - spent + 1, 0);
}

static const char *schema_text(struct arena *a, const struct schema *schema) {
    struct buf text DEFER(buf_done) = BUF(SCHEMA_MAX);
    struct jot j = JOT(&text);
    schema_describe_whole(schema, &j, NULL);
    return arena_copy(a, text.data, text.len);
}

/* The tool descriptions for the model. They are the same in every request of a run. */
static void live_prompt(struct live_run *l) {
    struct arena *a = &l->prompt_arena;
    size_t all = tool_count + own_tool_count, n = 0;
    struct model_tool *list = arena_alloc(a, all * sizeof(*list));
    const char *names = "";
    for (size_t i = 0; i < all; i++) {
        const struct tool *t = i < tool_count ? &tools[i] : &own_tools[i - tool_count];
        if (live_tool(l, t->name) != t)
            continue;
        list[n++] = (struct model_tool){t->name, t->description, schema_text(a, t->input)};
        names = arena_printf(a, "%s%s%s", names, *names ? ", " : "", t->name);
    }
    l->prompt = (struct run_prompt){prompt_system, list, n};
    l->tool_names = names;
}

struct live_run *live_run_new(struct runs *o, const struct caller *who) {
    struct live_run *l = xnew(struct live_run);
    l->runs = o;
    l->transcript.fd = -1;
    l->who = *who;
    l->who.scopes &= SCOPE_READ | SCOPE_RUN;
    l->who.local = false;
    l->step = (struct loop_call){.fn = live_go_on, .arg = l};
    hold_start(l);
    return l;
}

void live_equip(struct live_run *l, const char *machine) {
    const struct toolbox_options options = {
        .loop = l->runs->loop, .service = l->runs->service, .who = l->who, .machine = machine};
    l->box = toolbox_new(&options);
    live_prompt(l);
}

void live_prepare(struct live_run *l) {
    l->mode = mode_of(&l->run);
    l->menu = l->run.start.menu;
    if (!l->run.start.tries)
        live_equip(l, l->run.start.machine);
}

void live_go(struct live_run *l) {
    map_put(&l->runs->live, l->run.start.run, l);
    live_again(l);
}

uint64_t live_prompt_bytes(const struct live_run *l) {
    uint64_t n = strlen(l->prompt.system);
    for (size_t i = 0; i < l->prompt.tool_count; i++)
        n += strlen(l->prompt.tools[i].description) + strlen(l->prompt.tools[i].schema);
    return n;
}

/* ---- start of the run ---- */

int live_note(struct live_run *l, const char *verb, struct err *err) {
    char detail[320];
    const struct run *r = &l->run;
    snprintf(detail, sizeof(detail), "{\"run\":\"%s\"}", r->start.run);
    const char *machine = *r->start.machine ? r->start.machine : NULL;
    const struct run_record what = {verb, machine, detail};
    uint64_t intent;
    if (service_run_intent(l->runs->service, &l->who, &what, &intent, err) < 0)
        return -1;
    service_run_result(l->runs->service, &l->who, &what, intent, NULL);
    service_run_tell(l->runs->service, &l->who, machine, verb, detail);
    return 0;
}

const char *live_card(struct service *s, struct arena *a, const struct machine_view *view) {
    struct buf text DEFER(buf_done) = BUF(CARD_MAX);
    bool is_told = service_card(s, view->id, &text);
    return arena_printf(a,
                        "%sYou may be root with \"user\":\"root\". Commands begin in the directory "
                        "that was lent to "
                        "you, else in /home/user; put what you hand over there, or in /outbox.",
                        is_told ? text.data : "");
}

const char *live_card_for(struct service *s, struct arena *a, const struct machine_view *view,
                          const struct run_mode *m, const char *menu) {
    return arena_printf(a, "%s%s%s%s%s", live_card(s, a, view), *m->card ? "\n" : "", m->card,
                        menu ? "\nThe menu: " : "", menu ? menu : "");
}

void live_make_machine(struct live_run *l, const char *key, service_machine_fn *done, void *arg) {
    static const uint8_t no_hash[SHA256_BYTES];
    const char *meta[] = {"made_for", "run"};
    const struct caller *who = &l->who;
    uint64_t most = who->quota.lifetime_ms;
    const struct machine_request r = {
        .metadata = {meta, 2},
        .key = key,
        .idle = {IDLE_MS, true},
        .idle_action = "stop",
        .ttl = {most && most < TTL_MS ? most : TTL_MS, true},
    };
    service_create(l->runs->service, who, &r, no_hash, NULL, 0, done, arg);
}
