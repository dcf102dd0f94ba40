/* Starts a run: chooses its model, mode, machine or tries. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "service/net/net.h"
#include "service/rights.h"
#include "service/runs.h"

enum { CHECK_FILES_MAX = 1 << 20 };

/* ---- choice of the model ---- */

struct keys {
    const struct texts *given;
    const struct model_access *own; /* NULL: the caller does not own the daemon's keys */
};

static const char *key_of(void *arg, const char *name) {
    const struct keys *k = arg;
    for (size_t i = 0; i + 1 < k->given->count; i += 2)
        if (strcmp(k->given->v[i], name) == 0)
            return k->given->v[i + 1];
    return k->own ? k->own->env(k->own->env_arg, name) : NULL;
}

/*
 * A provider in carrel.conf belongs to the owner, even if it needs no key, so its use requires
 * RIGHT_RUN_MODEL. A provider URL makes this host connect to any server, so it requires
 * RIGHT_RUN_URL.
 */
static int check_provider(const struct runs *o, const struct caller *who, const char *wanted,
                          const struct texts *given, struct err *err) {
    if (model_is_configured(o->access.conf, wanted) && authorise(who, RIGHT_RUN_MODEL, err) < 0)
        return -1;
    for (size_t i = 0; i + 1 < given->count; i += 2)
        if (model_env_is_url(given->v[i]) && authorise(who, RIGHT_RUN_URL, err) < 0)
            return err_wrap(err, "variable '%s'", given->v[i]);
    return 0;
}

int live_find_model(struct live_run *l, const struct caller *who, const char *wanted,
                    const char *script, const struct texts *given, struct err *err) {
    struct runs *o = l->runs;
    struct keys keys = {given, service_has_model_keys(who) ? &o->access : NULL};
    if (check_provider(o, who, wanted, given, err) < 0 ||
        model_provider_find(o->access.conf, wanted, key_of, &keys, &l->provider, err) < 0)
        return -1;
    l->row = model_row(o->access.conf->known, o->access.conf->known_count, l->provider.model);
    if (l->provider.codec)
        return 0;
    if (!script) {
        err_set(err, ERR_INVALID, "the provider 'rehearsal' requires a script");
        return err_remedy(err, "name the script: carrel do --provider rehearsal --script FILE");
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
    live_run_free(s->live);
    starting_free(s);
    done(arg, NULL, err);
}

static int start_begin(struct starting *s, const struct machine_view *view, struct err *err) {
    struct live_run *l = s->live;
    struct runs *o = l->runs;
    struct id id = id_new('r');
    s->start.run = id.text;
    s->start.machine = view->id;
    s->start.owner = l->who.owner;
    s->start.time_ms = wall_ms();
    s->start.card = live_card_for(o->service, &s->arena, view, l->mode, s->start.menu);
    live_equip(l, view->id);
    s->start.prompt_bytes = live_prompt_bytes(l);
    const struct cost limit = {s->start.budget.tokens, s->start.budget.micro};
    if ((s->guard && service_net_guard(o->service, &l->who, view->id, err) < 0) ||
        service_run_account(o->service, l->who.owner, view->id, id.text, &limit, l->account, err) <
            0 ||
        transcript_new(o->dir, id.text, &l->transcript, err) < 0 ||
        run_take(&l->run, &s->start, err) < 0 || transcript_add(&l->transcript, &s->start, err) < 0)
        return -1;
    return live_note(l, "run.start", err);
}

static void with_machine(void *arg, const struct machine_view *view, const struct err *failed) {
    struct starting *s = arg;
    struct err err;
    if (!failed && strcmp(view->state, "ended") == 0)
        failed = (err_set(&err, ERR_GONE, "machine '%s' has ended", view->id), &err);
    if (!failed && start_begin(s, view, &err) < 0)
        failed = &err;
    if (failed) {
        start_failed(s, failed);
        return;
    }
    s->live->menu = s->live->run.start.menu;
    live_go(s->live);
    live_answer(&s->live->run, s->live, s->done, s->arg);
    starting_free(s);
}

static void make_machine(struct starting *s) {
    s->start.own_machine = true;
    live_make_machine(s->live, NULL, with_machine, s);
}

/* ---- several tries ---- */

static const char *start_copy(struct arena *a, const char *text) {
    return text ? arena_copy(a, text, strlen(text)) : NULL;
}

/* Writes a RUN_TRY line for each machine that the request names, as for created machines. */
static int note_machines(struct live_run *l, const struct texts *machines, struct err *err) {
    for (size_t i = 0; i < machines->count; i++) {
        struct run_event e = {
            .kind = RUN_TRY, .time_ms = wall_ms(), .index = i, .machine = machines->v[i]};
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
    s->start.time_ms = wall_ms();
    s->start.card = "";
    if (transcript_new(l->runs->dir, id.text, &l->transcript, err) < 0 ||
        run_take(&l->run, &s->start, err) < 0 ||
        transcript_add(&l->transcript, &s->start, err) < 0 || note_machines(l, machines, err) < 0)
        return -1;
    return live_note(l, "run.start", err);
}

static void tries_go(struct starting *s, const char *machine, const struct texts *machines) {
    struct err err;
    if (begin_tries(s, machine, machines, &err) < 0) {
        start_failed(s, &err);
        return;
    }
    live_prepare(s->live);
    live_go(s->live);
    live_answer(&s->live->run, s->live, s->done, s->arg);
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

/* State of the check that each machine in the request exists and that the caller may use it. */
struct looking {
    struct err err;
    bool failed;
    char ids[RUN_TRIES_MAX][ID_SIZE];
    size_t count;
};

/* All machines but the best are deleted, so one machine must not stand for two tries. */
static void add_machine(struct looking *k, const char *id) {
    for (size_t i = 0; i < k->count; i++)
        if (strcmp(k->ids[i], id) == 0 && !k->failed) {
            k->failed = true;
            err_set(&k->err, ERR_INVALID, "field 'machines' lists machine '%s' twice", id);
            err_remedy(&k->err, "list a different machine for each try");
        }
    snprintf(k->ids[k->count++], ID_SIZE, "%s", id);
}

static void look_at_machine(void *arg, const struct machine_view *view, const struct err *failed) {
    struct looking *k = arg;
    if (failed && !k->failed) {
        k->failed = true;
        k->err = *failed;
    }
    if (!failed)
        add_machine(k, view->id);
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

/* The check files as JSON, as the transcript stores them. */
static const char *files_text(struct arena *a, const struct texts *files) {
    struct buf text DEFER(buf_done) = BUF(RUN_LINE_MAX);
    struct jot j = JOT(&text);
    if (!files->count)
        return NULL;
    jot_object(&j, NULL);
    for (size_t i = 0; i + 1 < files->count; i += 2)
        jot_string(&j, files->v[i], files->v[i + 1]);
    jot_end(&j, '}');
    return j.failed ? NULL : arena_copy(a, text.data, text.len);
}

static void start_tries(struct starting *s, const struct operator_request *r) {
    static const struct texts none;
    s->start.tries = r->tries.value;
    s->start.check = start_copy(&s->arena, r->check);
    s->start.check_files = files_text(&s->arena, &r->check_files);
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
        return err_set(err, ERR_INVALID, "field '%s' needs field 'tries'",
                       r->check ? "check" : "machines");
    if (r->check_files.count && !r->check)
        return err_set(err, ERR_INVALID, "field 'check_files' needs field 'check'");
    size_t bytes = 0;
    for (size_t i = 0; i + 1 < r->check_files.count; i += 2) {
        bytes += strlen(r->check_files.v[i + 1]);
        if (r->check_files.v[i][0] != '/')
            return err_set(err, ERR_INVALID, "field 'check_files': '%.80s' is not an absolute path",
                           r->check_files.v[i]);
    }
    if (bytes > CHECK_FILES_MAX)
        return err_set(err, ERR_LIMIT,
                       "the files in field 'check_files' are larger than %d KiB in total",
                       CHECK_FILES_MAX >> 10);
    if (r->machines.count && (r->machine || r->machines.count != r->tries.value))
        return err_set(
            err, ERR_INVALID,
            "field 'machines' must list one machine per try (attempt), without field 'machine'");
    return 0;
}

static int check_task(const struct operator_request *r, struct err *err) {
    size_t n = r->task ? strlen(r->task) : 0;
    if (!n)
        return err_set(err, ERR_INVALID, "the task is empty");
    return n <= RUN_TASK_MAX
               ? 0
               : err_set(err, ERR_INVALID, "the task is longer than %d KiB", RUN_TASK_MAX >> 10);
}

static int check_money(const struct live_run *l, const struct operator_request *r,
                       struct err *err) {
    if (!r->money.is || (l->row && l->row->priced))
        return 0;
    err_set(err, ERR_INVALID, "model '%s' has no price, so a money budget is not possible",
            l->provider.model);
    return err_remedy(err,
                      "add the price of the model to carrel.conf: model = NAME in=... out=...");
}

/* The machine does not exist yet, so find tools in the whole table. A run is bound to one machine
 * and gets no TOOL_ALONE tools. Its model has no host for TOOL_OUTSIDE. */
static const struct tool *find_any(void *arg, const char *name) {
    (void)arg;
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, name) == 0)
            return tools[i].hints & (TOOL_ALONE | TOOL_OUTSIDE) ? NULL : &tools[i];
    return NULL;
}

static int find_mode(struct live_run *l, const char *mode, const char *menu, struct err *err) {
    l->mode = mode_find(mode, err);
    if (!l->mode)
        return -1;
    bool takes = l->mode->calls == MODE_CALLS_MENU;
    if (takes != (menu != NULL))
        return err_set(err, ERR_INVALID, "mode '%s' of a run takes %s menu (list of allowed calls)",
                       l->mode->name, takes ? "a" : "no");
    const struct run_tools may = {find_any, NULL, ""};
    return menu ? mode_menu_check(menu, &may, err) : 0;
}

void operator_start(struct runs *o, const struct caller *who, const struct operator_request *r,
                    operator_fn *done, void *arg) {
    struct live_run *l = live_run_new(o, who);
    struct err err;
    if (runs_allowed(who, SCOPE_RUN, &err) < 0 || check_task(r, &err) < 0 ||
        live_find_model(l, who, r->model, r->script, &r->keys, &err) < 0 ||
        check_tries(r, &err) < 0 || check_money(l, r, &err) < 0 ||
        find_mode(l, r->mode, r->menu, &err) < 0) {
        live_run_free(l);
        done(arg, NULL, &err);
        return;
    }
    struct starting *s = xnew(struct starting);
    *s = (struct starting){.live = l, .who = *who, .guard = r->guard, .done = done, .arg = arg};
    s->start = (struct run_event){
        .kind = RUN_START,
        .task = start_copy(&s->arena, r->task),
        .script = l->provider.codec ? NULL : start_copy(&s->arena, r->script),
        .model = arena_printf(&s->arena, "%s/%s", l->provider.name, l->provider.model),
        .window = model_window(l->row),
        .mode = r->mode ? l->mode->name : NULL,
        .menu = start_copy(&s->arena, r->menu),
        .asks = r->asks,
        .budget = {.turns = r->turns.is ? r->turns.value : OPERATOR_TURNS_DEFAULT,
                   .tokens = r->tokens.value,
                   .micro = r->money.value,
                   .timeout_ms = r->timeout.value},
    };
    l->menu = s->start.menu;
    if (r->tries.is)
        start_tries(s, r);
    else if (r->machine)
        service_show(o->service, &l->who, r->machine, with_machine, s);
    else
        make_machine(s);
}
