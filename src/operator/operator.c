#include "operator/operator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/defer.h"
#include "base/log.h"
#include "operator/inner.h"
#include "operator/own.h"
#include "operator/prompt.h"
#include "service/models.h"
#include "service/net.h"
#include "service/runs.h"

enum { IDLE_MS = 30 * 60 * 1000, TTL_MS = 7 * 24 * 3600 * 1000, SCHEMA_MAX = 64 << 10 };

/* ---- a view ---- */

static const char *state_of(const struct run *r, const struct live_run *l) {
    if (r->phase == RUN_ENDED)
        return "ended";
    if (!l || r->phase == RUN_INTERRUPTED)
        return "interrupted";
    return r->held ? "waiting" : "running";
}

/* Of several tries the best one's, once that is known. */
static const char *machine_of(const struct run *r) {
    return r->start.tries && r->phase == RUN_ENDED && r->tries[0].judged
               ? r->tries[run_best_try(r)].machine
               : r->start.machine;
}

static void view_of(const struct run *r, const struct live_run *l, struct run_view *ret) {
    bool cut = !l && r->phase == RUN_RUNNING;
    *ret = (struct run_view){
        .id = r->start.run,
        .owner = r->start.owner,
        .machine = machine_of(r),
        .task = r->start.task,
        .model = r->start.model,
        .mode = mode_of(r)->name,
        .state = state_of(r, l),
        .status = r->status,
        .reason = cut ? "the daemon was restarted" : r->why,
        .question = l ? r->held : NULL,
        .report = r->report,
        .created_ms = (uint64_t)r->start.time_ms,
        .turns = r->steps + (r->start.tries ? r->lent_steps : 0),
        .calls = r->calls,
        .tokens = r->tokens,
        .cost_micro = r->micro,
        .wall_ms = l ? run_active_ms(r, wall_now_ms()) : r->active_ms,
        .lines = r->lines,
    };
}

static void answer_view(const struct run *r, const struct live_run *l, operator_fn *done,
                        void *arg) {
    struct run_view view;
    view_of(r, l, &view);
    done(arg, &view, NULL);
}

/* ---- what a live run has ---- */

static void live_free(struct live_run *l) {
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

/* One that nobody hears of again. */
static void forget_work(struct live_run *l) {
    if (l->model)
        model_call_cancel(TAKE(l->model));
    if (l->mark)
        act_abandon(TAKE(l->mark));
    acts_leave(l);
    tries_leave(l);
    live_unflush(l);
    loop_call_cancel(l->runs->loop, &l->step);
}

void live_close(struct live_run *l) {
    struct runs *o = l->runs;
    forget_work(l);
    map_take(&o->live, l->run.start.run);
    while (l->followers) {
        struct run_follower *f = l->followers;
        operator_unfollow(f);
        f->changed(f->arg);
    }
    live_free(l);
}

static void time_is_up(void *arg) {
    struct live_run *l = arg;
    if (run_active_ms(&l->run, wall_now_ms()) < l->run.start.budget.wall_ms) {
        live_wall(l); /* it waited for somebody meanwhile */
        return;
    }
    acts_cut(l, "The budget of time was spent while this ran: it was ended.");
    live_again(l);
}

void live_wall(struct live_run *l) {
    uint64_t limit = l->run.start.budget.wall_ms, spent = run_active_ms(&l->run, wall_now_ms());
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

/* The tools as the model sees them: the same in every request of a run. */
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

/* Whoever starts it, a run uses machines and does nothing else. */
static struct live_run *live_new(struct runs *o, const struct caller *who) {
    struct live_run *l = calloc(1, sizeof(*l));
    if (!l)
        abort();
    l->runs = o;
    l->transcript.fd = -1;
    l->who = *who;
    l->who.scopes &= SCOPE_READ | SCOPE_RUN;
    l->who.local = false;
    l->step = (struct loop_call){.fn = live_go_on, .arg = l};
    hold_start(l);
    return l;
}

static void live_equip(struct live_run *l, const char *machine) {
    const struct toolbox_options options = {
        .loop = l->runs->loop, .service = l->runs->service, .who = l->who, .machine = machine};
    l->box = toolbox_new(&options);
    live_prompt(l);
}

/* What it works with; who only lets others work needs nothing. */
static void live_prepare(struct live_run *l) {
    l->mode = mode_of(&l->run);
    l->menu = l->run.start.menu;
    if (!l->run.start.tries)
        live_equip(l, l->run.start.machine);
}

static void live_go(struct live_run *l) {
    map_put(&l->runs->live, l->run.start.run, l);
    live_again(l);
}

static uint64_t prompt_bytes(const struct live_run *l) {
    uint64_t n = strlen(l->prompt.system);
    for (size_t i = 0; i < l->prompt.tool_count; i++)
        n += strlen(l->prompt.tools[i].description) + strlen(l->prompt.tools[i].schema);
    return n;
}

int runs_allowed(const struct caller *who, enum token_scope scope, struct err *err) {
    if (who->scopes & scope)
        return 0;
    return err_set(err, ERR_DENIED, "this token lacks the scope '%s'",
                   scope == SCOPE_RUN ? "run" : "read");
}

/* ---- which model ---- */

struct keys {
    const struct texts *given;
    bool own; /* the daemon's environment is the caller's own */
};

static const char *key_of(void *arg, const char *name) {
    const struct keys *k = arg;
    for (size_t i = 0; i + 1 < k->given->count; i += 2)
        if (strcmp(k->given->v[i], name) == 0)
            return k->given->v[i + 1];
    return k->own ? model_env_process(NULL, name) : NULL;
}

static int find_model(struct live_run *l, const struct caller *who, const char *wanted,
                      const char *script, const struct texts *given, struct err *err) {
    struct runs *o = l->runs;
    struct keys keys = {given, who->local && who->uid == geteuid()};
    if (model_provider_find(o->access.conf, wanted, key_of, &keys, &l->provider, err) < 0)
        return -1;
    l->row = model_row(o->access.conf->known, o->access.conf->known_count, l->provider.model);
    if (l->provider.codec)
        return 0;
    if (!script) {
        err_set(err, ERR_INVALID, "a rehearsal needs a script");
        return err_remedy(err, "carrel do --provider rehearsal --script FILE");
    }
    return rehearsal_parse(script, strlen(script), &l->rehearsal, err);
}

/* ---- starting ---- */

struct starting {
    struct live_run *live;
    struct caller who;
    struct run_event start;
    bool guard;
    struct arena arena;
    operator_fn *done;
    void *arg;
};

static void starting_free(struct starting *s) {
    arena_done(&s->arena);
    free(s);
}

static void start_failed(struct starting *s, const struct err *err) {
    operator_fn *done = s->done;
    void *arg = s->arg;
    live_free(s->live);
    starting_free(s);
    done(arg, NULL, err);
}

static int note_start(struct live_run *l, const char *verb, struct err *err) {
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

static const char *card_of(struct arena *a, const struct machine_view *view) {
    char mem[40] = "no limit of its own", disk[40] = "no limit of its own";
    if (view->limits.mem)
        snprintf(mem, sizeof(mem), "%" PRIu64 " MiB", view->limits.mem >> 20);
    if (view->limits.disk)
        snprintf(disk, sizeof(disk), "%" PRIu64 " MiB", view->limits.disk >> 20);
    return arena_printf(
        a,
        "Your machine is %s (a %s, image %s): Linux, memory %s, disk %s. You are the user "
        "`user` and may be root with \"user\":\"root\". Commands begin in the directory that was "
        "lent to you, else in /home/user; put what you hand over there, or in /outbox. The "
        "network is closed but for what its owner opened.",
        view->id, view->kind, view->image ? view->image : "host", mem, disk);
}

/* And what it may do beyond that, in its mode. */
static const char *card_for(struct arena *a, const struct machine_view *view,
                            const struct run_mode *m, const char *menu) {
    return arena_printf(a, "%s%s%s%s%s", card_of(a, view), *m->card ? "\n" : "", m->card,
                        menu ? "\nThe menu: " : "", menu ? menu : "");
}

static int begin(struct starting *s, const struct machine_view *view, struct err *err) {
    struct live_run *l = s->live;
    struct runs *o = l->runs;
    struct id id = id_new('r');
    s->start.run = id.text;
    s->start.machine = view->id;
    s->start.owner = l->who.owner;
    s->start.time_ms = wall_now_ms();
    s->start.card = card_for(&s->arena, view, l->mode, s->start.menu);
    live_equip(l, view->id);
    s->start.prompt_bytes = prompt_bytes(l);
    const struct cost limit = {s->start.budget.tokens, s->start.budget.micro};
    if ((s->guard && service_net_guard(o->service, &l->who, view->id, err) < 0) ||
        service_run_account(o->service, l->who.owner, view->id, id.text, &limit, l->account, err) <
            0 ||
        transcript_new(o->dir, id.text, &l->transcript, err) < 0 ||
        run_take(&l->run, &s->start, err) < 0 || transcript_add(&l->transcript, &s->start, err) < 0)
        return -1;
    return note_start(l, "run.start", err);
}

static void with_machine(void *arg, const struct machine_view *view, const struct err *failed) {
    struct starting *s = arg;
    struct err err;
    if (!failed && strcmp(view->state, "ended") == 0)
        failed = (err_set(&err, ERR_GONE, "machine '%s' has ended", view->id), &err);
    if (!failed && begin(s, view, &err) < 0)
        failed = &err;
    if (failed) {
        start_failed(s, failed);
        return;
    }
    s->live->menu = s->live->run.start.menu;
    live_go(s->live);
    answer_view(&s->live->run, s->live, s->done, s->arg);
    starting_free(s);
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

static void make_machine(struct starting *s) {
    s->start.own_machine = true;
    live_make_machine(s->live, NULL, with_machine, s);
}

/* ---- several tries ---- */

static const char *copy(struct arena *a, const char *text) {
    return text ? arena_copy(a, text, strlen(text)) : NULL;
}

/* The machines that were named, as if they had been made. */
static int note_machines(struct live_run *l, const struct texts *machines, struct err *err) {
    for (size_t i = 0; i < machines->count; i++) {
        struct run_event e = {
            .kind = RUN_TRY, .time_ms = wall_now_ms(), .index = i, .machine = machines->v[i]};
        if (run_take(&l->run, &e, err) < 0 || transcript_add(&l->transcript, &e, err) < 0)
            return -1;
    }
    return 0;
}

static int begin_tries(struct starting *s, const char *machine, const struct texts *machines,
                       struct err *err) {
    struct live_run *l = s->live;
    struct id id = id_new('r');
    s->start.run = id.text;
    s->start.machine = machine;
    s->start.owner = l->who.owner;
    s->start.time_ms = wall_now_ms();
    s->start.card = "";
    if (transcript_new(l->runs->dir, id.text, &l->transcript, err) < 0 ||
        run_take(&l->run, &s->start, err) < 0 ||
        transcript_add(&l->transcript, &s->start, err) < 0 || note_machines(l, machines, err) < 0)
        return -1;
    return note_start(l, "run.start", err);
}

static void tries_go(struct starting *s, const char *machine, const struct texts *machines) {
    struct err err;
    if (begin_tries(s, machine, machines, &err) < 0) {
        start_failed(s, &err);
        return;
    }
    live_prepare(s->live);
    live_go(s->live);
    answer_view(&s->live->run, s->live, s->done, s->arg);
    starting_free(s);
}

static void with_source(void *arg, const struct machine_view *view, const struct err *failed) {
    static const struct texts none;
    struct starting *s = arg;
    if (failed)
        start_failed(s, failed);
    else
        tries_go(s, view->id, &none);
}

/* Each is there, and somebody's who may use it. */
struct looking {
    struct err err;
    bool failed;
    char ids[RUN_TRIES_MAX][ID_SIZE];
    size_t count;
};

static void look_at_machine(void *arg, const struct machine_view *view, const struct err *failed) {
    struct looking *k = arg;
    if (failed && !k->failed) {
        k->failed = true;
        k->err = *failed;
    }
    if (!failed)
        snprintf(k->ids[k->count++], ID_SIZE, "%s", view->id);
}

static void with_machines(struct starting *s, const struct texts *named) {
    struct looking k = {.count = 0};
    const char *list[RUN_TRIES_MAX];
    for (size_t i = 0; i < named->count; i++)
        service_show(s->live->runs->service, &s->live->who, named->v[i], look_at_machine, &k);
    for (size_t i = 0; i < k.count; i++)
        list[i] = k.ids[i];
    const struct texts machines = {.v = list, .count = k.count};
    if (k.failed)
        start_failed(s, &k.err);
    else
        tries_go(s, "", &machines);
}

static void start_tries(struct starting *s, const struct operator_request *r) {
    static const struct texts none;
    s->start.tries = r->tries.value;
    s->start.check = copy(&s->arena, r->check);
    s->start.guard = r->guard;
    if (r->machines.count)
        with_machines(s, &r->machines);
    else if (r->machine)
        service_show(s->live->runs->service, &s->live->who, r->machine, with_source, s);
    else
        tries_go(s, "", &none);
}

static int check_tries(const struct operator_request *r, struct err *err) {
    if (!r->tries.is && (r->check || r->machines.count))
        return err_set(err, ERR_INVALID, "'%s' needs 'tries'", r->check ? "check" : "machines");
    if (r->machines.count && (r->machine || r->machines.count != r->tries.value))
        return err_set(err, ERR_INVALID, "'machines' are one for each try, instead of 'machine'");
    return 0;
}

static int check_task(const struct operator_request *r, struct err *err) {
    size_t n = r->task ? strlen(r->task) : 0;
    if (!n)
        return err_set(err, ERR_INVALID, "there is no task");
    return n <= RUN_TASK_MAX
               ? 0
               : err_set(err, ERR_INVALID, "the task is longer than %d KiB", RUN_TASK_MAX >> 10);
}

static int check_money(const struct live_run *l, const struct operator_request *r,
                       struct err *err) {
    if (!r->money.is || (l->row && l->row->priced))
        return 0;
    err_set(err, ERR_INVALID, "nobody knows what '%s' costs, so money cannot be a limit",
            l->provider.model);
    return err_remedy(err, "add its price to carrel.conf: model = NAME in=... out=...");
}

/* Before there is a machine: what a client that is bound to one may have. */
static const struct tool *find_any(void *arg, const char *name) {
    (void)arg;
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, name) == 0)
            return tools[i].hints & TOOL_ALONE ? NULL : &tools[i];
    return NULL;
}

static int find_mode(struct live_run *l, const char *mode, const char *menu, struct err *err) {
    l->mode = mode_find(mode, err);
    if (!l->mode)
        return -1;
    bool takes = l->mode->calls == MODE_CALLS_MENU;
    if (takes != (menu != NULL))
        return err_set(err, ERR_INVALID, "the mode '%s' takes %s menu", l->mode->name,
                       takes ? "a" : "no");
    const struct run_tools may = {find_any, NULL, ""};
    return menu ? mode_menu_check(menu, &may, err) : 0;
}

void operator_start(struct runs *o, const struct caller *who, const struct operator_request *r,
                    operator_fn *done, void *arg) {
    struct live_run *l = live_new(o, who);
    struct err err;
    if (runs_allowed(who, SCOPE_RUN, &err) < 0 || check_task(r, &err) < 0 ||
        find_model(l, who, r->model, r->script, &r->keys, &err) < 0 || check_tries(r, &err) < 0 ||
        check_money(l, r, &err) < 0 || find_mode(l, r->mode, r->menu, &err) < 0) {
        live_free(l);
        done(arg, NULL, &err);
        return;
    }
    struct starting *s = calloc(1, sizeof(*s));
    if (!s)
        abort();
    *s = (struct starting){.live = l, .who = *who, .guard = r->guard, .done = done, .arg = arg};
    s->start = (struct run_event){
        .kind = RUN_START,
        .task = copy(&s->arena, r->task),
        .script = l->provider.codec ? NULL : copy(&s->arena, r->script),
        .model = arena_printf(&s->arena, "%s/%s", l->provider.name, l->provider.model),
        .window = model_window(l->row),
        .mode = r->mode ? l->mode->name : NULL,
        .menu = copy(&s->arena, r->menu),
        .asks = r->asks,
        .budget = {.steps = r->steps.is ? r->steps.value : OPERATOR_STEPS_DEFAULT,
                   .tokens = r->tokens.value,
                   .micro = r->money.value,
                   .wall_ms = r->wall.value},
    };
    l->menu = s->start.menu;
    if (r->tries.is)
        start_tries(s, r);
    else if (r->machine)
        service_show(o->service, &l->who, r->machine, with_machine, s);
    else
        make_machine(s);
}

/* ---- finding one ---- */

static int may_see(const struct caller *who, const struct run *r, struct err *err) {
    if (strcmp(who->owner, r->start.owner) == 0 || who->scopes & SCOPE_ADMIN)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "there is no run '%s'", r->start.run);
}

static int check_id(const char *id, struct err *err) {
    if (id_valid(id, strlen(id), 'r'))
        return 0;
    err_set(err, ERR_NOT_FOUND, "there is no run '%.40s'", id);
    return err_remedy(err, "a run's id begins with r-: carrel do --ls lists them");
}

/* One that is under way; *ret NULL and 0: it is not. */
int runs_find_live(struct runs *o, const struct caller *who, enum token_scope scope, const char *id,
                   struct live_run **ret, struct err *err) {
    if (runs_allowed(who, scope, err) < 0 || check_id(id, err) < 0)
        return -1;
    *ret = map_get(&o->live, id);
    return *ret ? may_see(who, &(*ret)->run, err) : 0;
}

int runs_load(struct runs *o, const struct caller *who, const char *id, struct run *run,
              struct transcript *t, struct err *err) {
    return transcript_open(o->dir, id, t, run, err) < 0 || may_see(who, run, err) < 0 ? -1 : 0;
}

void operator_show(struct runs *o, const struct caller *who, const char *id, operator_fn *done,
                   void *arg) {
    struct run run DEFER(run_done) = {0};
    struct transcript t = {.fd = -1};
    struct live_run *l;
    struct err err;
    if (runs_find_live(o, who, SCOPE_READ, id, &l, &err) < 0 ||
        (!l && runs_load(o, who, id, &run, &t, &err) < 0))
        done(arg, NULL, &err);
    else
        answer_view(l ? &l->run : &run, l, done, arg);
    transcript_close(&t);
}

/* ---- resuming ---- */

/* An ended run goes on only with something to do. */
static int resume_event(const struct run *r, const char *comment, struct arena *a,
                        struct run_event *ret, struct err *err) {
    bool ended = r->phase == RUN_ENDED;
    *ret = (struct run_event){.kind = RUN_RESUME, .time_ms = wall_now_ms()};
    if (!ended && comment) {
        err_set(err, ERR_BUSY, "run '%s' has not ended: there is nothing to return", r->start.run);
        return err_remedy(err, "resume it first, and wait for its report");
    }
    if (!ended)
        return 0;
    if (!comment) {
        err_set(err, ERR_GONE, "run '%s' has ended: %s", r->start.run, r->status);
        return err_remedy(err, "return it with a comment, or start another one on its machine %s",
                          r->start.machine);
    }
    ret->kind = RUN_RETURN;
    ret->text =
        arena_printf(a, "Your work was looked at and returned, with this comment:\n%s", comment);
    return 0;
}

/* By the words that its parent gave it. */
static bool is_try(const char *parent) {
    return parent && strstr(parent, ".try.");
}

static int take_up(struct live_run *l, const struct caller *who, const struct texts *keys,
                   const char *id, const char *comment, struct err *err) {
    struct runs *o = l->runs;
    struct arena a DEFER(arena_done) = {0};
    struct run_event e;
    if (runs_load(o, who, id, &l->run, &l->transcript, err) < 0)
        return -1;
    if (resume_event(&l->run, comment, &a, &e, err) < 0)
        return -1;
    const struct cost limit = {l->run.start.budget.tokens, l->run.start.budget.micro};
    if (find_model(l, who, l->run.start.model, l->run.start.script, keys, err) < 0 ||
        (!l->run.start.tries &&
         service_run_account(o->service, l->run.start.owner, l->run.start.machine, id, &limit,
                             l->account, err) < 0) ||
        run_take(&l->run, &e, err) < 0 || transcript_add(&l->transcript, &e, err) < 0)
        return -1;
    snprintf(l->who.owner, sizeof(l->who.owner), "%s", l->run.start.owner);
    l->is_try = is_try(l->run.start.parent);
    l->is_child = l->run.start.parent && !l->is_try;
    return note_start(l, "run.resume", err);
}

void operator_resume(struct runs *o, const struct caller *who, const char *id,
                     const struct texts *keys, const char *comment, operator_fn *done, void *arg) {
    struct live_run *l;
    struct err err;
    if (runs_find_live(o, who, SCOPE_RUN, id, &l, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    if (l && comment) {
        err_set(&err, ERR_BUSY, "run '%s' is under way: there is nothing to return yet", id);
        done(arg, NULL, &err);
        return;
    }
    if (l) { /* it is under way already, which is what was wanted */
        answer_view(&l->run, l, done, arg);
        return;
    }
    l = live_new(o, who);
    if (take_up(l, who, keys, id, comment, &err) < 0) {
        live_free(l);
        done(arg, NULL, &err);
        return;
    }
    live_prepare(l);
    live_go(l);
    answer_view(&l->run, l, done, arg);
}

/* ---- runs within a run ---- */

static struct live_run *child_new(struct live_run *parent) {
    struct live_run *l = live_new(parent->runs, &parent->who);
    struct err none;
    l->is_child = l->borrows = true;
    l->provider = parent->provider;
    l->rehearsal = parent->rehearsal;
    l->row = parent->row;
    l->mode = mode_find(NULL, &none);
    memcpy(l->account, parent->account, sizeof(l->account));
    return l;
}

static int child_begin(struct live_run *l, struct run_event *start, struct err *err) {
    live_equip(l, start->machine);
    start->prompt_bytes = prompt_bytes(l);
    if (transcript_new(l->runs->dir, start->run, &l->transcript, err) < 0 ||
        run_take(&l->run, start, err) < 0 || transcript_add(&l->transcript, start, err) < 0)
        return -1;
    return note_start(l, "run.spawn", err);
}

int live_child(struct live_run *parent, const struct machine_view *view, const char *task,
               const char *key, struct run_budget budget, char ret_run[ID_SIZE], struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct live_run *l = child_new(parent);
    struct id id = id_new('r');
    struct run_event start = {
        .kind = RUN_START,
        .time_ms = wall_now_ms(),
        .run = id.text,
        .owner = l->who.owner,
        .machine = view->id,
        .task = task,
        .model = parent->run.start.model,
        .window = parent->run.start.window,
        .parent = key,
        .own_machine = true,
        .budget = budget,
        .card = arena_printf(&a,
                             "%s\nYou are a sub-agent: the task is a part of a larger one, and "
                             "your report goes to who gave it to you.",
                             card_of(&a, view)),
    };
    if (child_begin(l, &start, err) < 0) {
        live_free(l);
        return -1;
    }
    snprintf(ret_run, ID_SIZE, "%s", id.text);
    live_go(l);
    return 0;
}

/* ---- tries, each with its part of the budget ---- */

static uint64_t part_of(uint64_t all, uint64_t parts) {
    return !all ? 0 : all / parts ? all / parts : 1;
}

static struct live_run *try_new(struct live_run *parent) {
    struct live_run *l = child_new(parent);
    l->is_child = false;
    l->is_try = true;
    l->mode = mode_of(&parent->run);
    return l;
}

static int try_begin(struct live_run *l, const struct live_run *parent, struct run_event *start,
                     struct err *err) {
    struct service *s = l->runs->service;
    const struct cost limit = {start->budget.tokens, start->budget.micro};
    l->menu = start->menu;
    live_equip(l, start->machine);
    start->prompt_bytes = prompt_bytes(l);
    if ((parent->run.start.guard && service_net_guard(s, &l->who, start->machine, err) < 0) ||
        service_run_account(s, l->who.owner, start->machine, start->run, &limit, l->account, err) <
            0 ||
        transcript_new(l->runs->dir, start->run, &l->transcript, err) < 0 ||
        run_take(&l->run, start, err) < 0 || transcript_add(&l->transcript, start, err) < 0)
        return -1;
    l->menu = l->run.start.menu;
    return note_start(l, "run.start", err);
}

int live_try(struct live_run *parent, const struct machine_view *view, const char *key,
             char ret_run[ID_SIZE], struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct live_run *l = try_new(parent);
    const struct run_event *of = &parent->run.start;
    struct id id = id_new('r');
    struct run_event start = {
        .kind = RUN_START,
        .time_ms = wall_now_ms(),
        .run = id.text,
        .owner = l->who.owner,
        .machine = view->id,
        .task = of->task,
        .model = of->model,
        .script = of->script,
        .window = of->window,
        .mode = of->mode,
        .menu = of->menu,
        .parent = key,
        .budget = {of->budget.steps, part_of(of->budget.tokens, of->tries),
                   part_of(of->budget.micro, of->tries), of->budget.wall_ms},
        .card = card_for(&a, view, l->mode, of->menu),
    };
    if (try_begin(l, parent, &start, err) < 0) {
        live_free(l);
        return -1;
    }
    snprintf(ret_run, ID_SIZE, "%s", id.text);
    live_go(l);
    return 0;
}

int live_try_again(struct live_run *parent, const char *run, struct err *err) {
    struct run_event e = {.kind = RUN_RESUME, .time_ms = wall_now_ms()};
    struct live_run *l = try_new(parent);
    const struct run_event *start = &l->run.start;
    if (runs_load(parent->runs, &parent->who, run, &l->run, &l->transcript, err) < 0 ||
        service_run_account(l->runs->service, start->owner, start->machine, run,
                            &(struct cost){start->budget.tokens, start->budget.micro}, l->account,
                            err) < 0 ||
        run_take(&l->run, &e, err) < 0 || transcript_add(&l->transcript, &e, err) < 0 ||
        note_start(l, "run.resume", err) < 0) {
        live_free(l);
        return -1;
    }
    live_prepare(l);
    live_go(l);
    return 0;
}

int live_child_again(struct live_run *parent, const char *run, struct err *err) {
    struct run_event e = {.kind = RUN_RESUME, .time_ms = wall_now_ms()};
    if (map_get(&parent->runs->live, run))
        return 0;
    struct live_run *l = child_new(parent);
    int status = runs_load(parent->runs, &parent->who, run, &l->run, &l->transcript, err);
    if (status == 0 && l->run.phase == RUN_ENDED) {
        live_free(l);
        return 0;
    }
    if (status < 0 || run_take(&l->run, &e, err) < 0 ||
        transcript_add(&l->transcript, &e, err) < 0 || note_start(l, "run.resume", err) < 0) {
        live_free(l);
        return -1;
    }
    live_equip(l, l->run.start.machine);
    live_go(l);
    return 0;
}

void live_child_leave(struct runs *o, const char *run) {
    struct live_run *l = map_get(&o->live, run);
    if (l)
        live_close(l);
}

/* ---- cancelling, answering ---- */

static int end_by_will(struct run *r, struct transcript *t, struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct run_event e = run_end_event(r, "cancelled", "by its owner", &a);
    e.time_ms = wall_now_ms();
    return transcript_add(t, &e, err) < 0 || run_take(r, &e, err) < 0 ? -1 : 0;
}

static void cancel_live(struct live_run *l, operator_fn *done, void *arg) {
    struct err err;
    if (l->model)
        model_call_cancel(TAKE(l->model));
    acts_cut(l, "The run was cancelled while this ran: it was ended.");
    tries_cancel(l);
    if (end_by_will(&l->run, &l->transcript, &err) < 0 || note_start(l, "run.cancel", &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    answer_view(&l->run, l, done, arg);
    live_close(l);
}

void operator_cancel(struct runs *o, const struct caller *who, const char *id, operator_fn *done,
                     void *arg) {
    struct run run DEFER(run_done) = {0};
    struct transcript t = {.fd = -1};
    struct live_run *l;
    struct err err;
    if (runs_find_live(o, who, SCOPE_RUN, id, &l, &err) < 0 ||
        (!l && runs_load(o, who, id, &run, &t, &err) < 0))
        done(arg, NULL, &err);
    else if (l)
        cancel_live(l, done, arg);
    else if (run.phase != RUN_ENDED && end_by_will(&run, &t, &err) < 0)
        done(arg, NULL, &err);
    else
        answer_view(&run, NULL, done, arg);
    transcript_close(&t);
}

void operator_answer(struct runs *o, const struct caller *who, const char *id, const char *action,
                     const char *answer, operator_fn *done, void *arg) {
    struct live_run *l;
    struct err err;
    if (runs_find_live(o, who, SCOPE_RUN, id, &l, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    for (size_t i = 0; l && i < MODEL_CALLS_MAX; i++) {
        struct acting *x = &l->acting[i];
        if (!x->asked)
            continue;
        struct act *asked = TAKE(x->asked);
        x->answer(asked, action, answer);
        answer_view(&l->run, l, done, arg);
        return;
    }
    err_set(&err, ERR_INVALID, "run '%s' waits for no answer", id);
    done(arg, NULL, &err);
}

/* ---- what is not in the plan ---- */

static int note_word(struct live_run *l, const struct caller *who, bool approve, struct err *err) {
    char detail[160];
    uint64_t intent;
    snprintf(detail, sizeof(detail), "{\"run\":\"%s\",\"index\":%" PRIu64 ",\"approved\":%s}",
             l->run.start.run, l->run.word_index, approve ? "true" : "false");
    const struct run_record what = {"run.approve", l->run.start.machine, detail};
    if (service_run_intent(l->runs->service, who, &what, &intent, err) < 0)
        return -1;
    service_run_result(l->runs->service, who, &what, intent, NULL);
    return 0;
}

void operator_decide(struct runs *o, const struct caller *who, const char *id, bool approve,
                     operator_fn *done, void *arg) {
    struct live_run *l = NULL;
    struct err err;
    int status = runs_find_live(o, who, SCOPE_RUN, id, &l, &err);
    if (status == 0 && !who->local && !(who->scopes & SCOPE_ADMIN))
        status = err_set(&err, ERR_DENIED, "only the owner approves");
    if (status == 0 && (!l || !l->run.wants_word))
        status = err_set(&err, ERR_NOT_FOUND, "run '%s' waits for no approval", id);
    struct run_event e = {
        .kind = RUN_WORD, .index = status == 0 ? l->run.word_index : 0, .good = approve};
    if (status < 0 || note_word(l, who, approve, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    (void)live_add(l, &e);
    live_again(l);
    answer_view(&l->run, l, done, arg);
}

void operator_pending(struct runs *o, const struct caller *who, service_row_fn *row, void *arg) {
    struct live_run *l;
    struct err none;
    for (size_t at = 0; (l = map_next(&o->live, &at));)
        if (l->run.wants_word && may_see(who, &l->run, &none) == 0)
            row(arg, l->run.held);
}

/* ---- life ---- */

struct runs *operator_new(struct loop *loop, struct service *service) {
    struct runs *o = calloc(1, sizeof(*o));
    struct err err;
    if (!o)
        abort();
    *o = (struct runs){.loop = loop, .service = service, .access = service_model_access(service)};
    if (service_run_dir(o->service, o->dir, sizeof(o->dir), &err) < 0)
        log_line(LOG_ERROR, "operator", "%s", err.text);
    holds_watch(o);
    return o;
}

void operator_free(struct runs *o) {
    if (!o)
        return;
    struct live_run *l;
    holds_unwatch(o);
    for (size_t at; at = 0, (l = map_next(&o->live, &at));) { /* children go with their parents */
        map_take(&o->live, l->run.start.run);
        forget_work(l);
        live_free(l);
    }
    map_done(&o->live);
    free(o);
}

size_t operator_busy(const struct runs *o) {
    return o->live.count;
}
