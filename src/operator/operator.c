#include "operator/operator.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "operator/inner.h"
#include "operator/word.h"
#include "service/models/models.h"
#include "service/review/changesets.h"
#include "service/rights.h"
#include "service/runs.h"

enum { ORPHANS_MAX = 64 };

/* ---- the view of a run ---- */

static const char *state_of(const struct run *r, const struct live_run *l) {
    if (r->phase == RUN_ENDED)
        return "ended";
    if (!l || r->phase == RUN_INTERRUPTED)
        return "interrupted";
    return r->held ? "waiting" : "running";
}

/* The machine that the view shows; with several tries, that of the best try once it is known. */
static const char *machine_of(const struct run *r) {
    return r->start.tries && r->phase == RUN_ENDED && r->tries[0].judged && !r->cancelling
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
        .turns = r->used_turns + (r->start.tries ? r->lent_turns : 0),
        .calls = r->calls,
        .tokens = r->tokens,
        .cost_micro = r->micro,
        .wall_ms = l ? run_active_ms(r, wall_ms()) : r->active_ms,
        .lines = r->lines,
    };
}

void live_answer(const struct run *r, const struct live_run *l, operator_fn *done, void *arg) {
    struct run_view view;
    view_of(r, l, &view);
    done(arg, &view, NULL);
}

/* ---- finding a run ---- */

int runs_allowed(const struct caller *who, enum token_scope scope, struct err *err) {
    return allow(who, scope, err);
}

static int may_see(const struct caller *who, const struct run *r, struct err *err) {
    if (strcmp(who->owner, r->start.owner) == 0 || who->scopes & SCOPE_ADMIN)
        return 0;
    return err_set(err, ERR_NOT_FOUND, "run '%s' does not exist", r->start.run);
}

static int check_id(const char *id, struct err *err) {
    if (id_valid(id, strlen(id), 'r'))
        return 0;
    err_set(err, ERR_NOT_FOUND, "run '%.40s' does not exist", id);
    return err_remedy(err, "run ids start with r-; list them with carrel do --ls");
}

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
        live_answer(l ? &l->run : &run, l, done, arg);
    transcript_close(&t);
}

/* ---- resuming ---- */

/* True for a request that is repeated because its answer was lost: the run has the comment. */
static bool was_returned(const struct run *r, const struct run_return *back) {
    return back->comment && back->key && r->returned && strcmp(back->key, r->returned) == 0;
}

/* An ended run continues only if the owner returned it with a comment. */
static int resume_event(const struct run *r, const struct run_return *back, struct arena *a,
                        struct run_event *ret, struct err *err) {
    const char *comment = was_returned(r, back) ? NULL : back->comment;
    bool ended = r->phase == RUN_ENDED;
    *ret = (struct run_event){.kind = RUN_RESUME, .time_ms = wall_ms()};
    if (!ended && comment) {
        err_set(err, ERR_BUSY, "run '%s' has not ended, so it cannot be returned with a comment",
                r->start.run);
        return err_remedy(err, "resume the run and wait for its report");
    }
    if (!ended)
        return 0;
    if (r->cancelling) {
        err_set(err, ERR_GONE, "run '%s' was cancelled and its machines were deleted",
                r->start.run);
        return err_remedy(err, "start a new run");
    }
    if (!comment) {
        err_set(err, ERR_GONE, "run '%s' has ended with status '%s'", r->start.run, r->status);
        return err_remedy(err, "return the run with a comment, or start a new run on machine %s",
                          r->start.machine);
    }
    ret->kind = RUN_RETURN;
    ret->name = back->key;
    ret->text =
        arena_printf(a, "Your work was reviewed and returned with this comment:\n%s", comment);
    return 0;
}

/* True for the `parent` member of a try; the `parent` member of a sub-agent has no ".try.". */
static bool is_try(const char *parent) {
    return parent && strstr(parent, ".try.");
}

/*
 * to_end: the run is loaded only to be ended, so it needs no model. Returns 1 if the run was
 * already returned with this comment and has ended again.
 */
static int take_up(struct live_run *l, const struct caller *who, const struct texts *keys,
                   const char *id, const struct run_return *back, bool to_end, struct err *err) {
    struct runs *o = l->runs;
    struct arena a DEFER(arena_done) = {0};
    struct run_event e;
    if (runs_load(o, who, id, &l->run, &l->transcript, err) < 0)
        return -1;
    if (was_returned(&l->run, back) && l->run.phase == RUN_ENDED)
        return 1;
    if (resume_event(&l->run, back, &a, &e, err) < 0)
        return -1;
    const struct cost limit = {l->run.start.budget.tokens, l->run.start.budget.micro};
    if ((!to_end && !l->run.cancelling &&
         live_find_model(l, who, l->run.start.model, l->run.start.script, keys, err) < 0) ||
        (!l->run.start.tries &&
         service_run_account(o->service, l->run.start.owner, l->run.start.machine, id, &limit,
                             l->account, err) < 0) ||
        run_take(&l->run, &e, err) < 0 || transcript_add(&l->transcript, &e, err) < 0)
        return -1;
    snprintf(l->who.owner, sizeof(l->who.owner), "%s", l->run.start.owner);
    l->is_try = is_try(l->run.start.parent);
    l->is_child = l->run.start.parent && !l->is_try;
    const char *machine = *l->run.start.machine ? l->run.start.machine : NULL;
    if (e.kind == RUN_RETURN &&
        service_review_returned(o->service, who, l->run.start.owner, machine, id, err) < 0)
        return -1;
    return live_note(l, "run.resume", err);
}

void operator_resume(struct runs *o, const struct caller *who, const char *id,
                     const struct texts *keys, const struct run_return *back, operator_fn *done,
                     void *arg) {
    struct live_run *l;
    struct err err;
    if (runs_find_live(o, who, SCOPE_RUN, id, &l, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    if (l && back->comment && !was_returned(&l->run, back)) {
        err_set(&err, ERR_BUSY,
                "run '%s' is still running, so it cannot be returned with a comment", id);
        done(arg, NULL, &err);
        return;
    }
    if (l) { /* already live: nothing to do */
        live_answer(&l->run, l, done, arg);
        return;
    }
    l = live_run_new(o, who);
    int status = take_up(l, who, keys, id, back, false, &err);
    if (status < 0)
        done(arg, NULL, &err);
    else if (status > 0)
        live_answer(&l->run, NULL, done, arg);
    if (status != 0) {
        live_run_free(l);
        return;
    }
    live_prepare(l);
    live_go(l);
    live_answer(&l->run, l, done, arg);
}

/* ---- cancelling, answering ---- */

static int end_by_will(struct run *r, struct transcript *t, struct err *err) {
    struct arena a DEFER(arena_done) = {0};
    struct run_event e = run_end_event(r, "cancelled", "cancelled by its owner", &a);
    e.time_ms = wall_ms();
    return transcript_add(t, &e, err) < 0 || run_take(r, &e, err) < 0 ? -1 : 0;
}

static void nothing(void *arg, const struct run_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err;
}

/* With several tries, tries.c deletes the machines first and then ends the run. */
static int cancel_tries(struct live_run *l, struct err *err) {
    struct run_event e = {.kind = RUN_CANCEL};
    if (l->run.cancelling)
        return 0;
    if (live_add(l, &e) < 0) {
        *err = l->broke;
        return -1;
    }
    live_again(l);
    return live_note(l, "run.cancel", err);
}

static void cancel_live(struct live_run *l, operator_fn *done, void *arg) {
    struct err err;
    bool tries = l->run.start.tries;
    if (l->model)
        model_call_cancel(TAKE(l->model));
    acts_cut(l, "The run was cancelled during this call, and the call was ended.");
    if (tries ? cancel_tries(l, &err) < 0
              : end_by_will(&l->run, &l->transcript, &err) < 0 ||
                    live_note(l, "run.cancel", &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    live_answer(&l->run, l, done, arg);
    if (!tries)
        live_close(l);
}

/* Loads a run that is not live, only to end it. */
static int cancel_idle_tries(struct runs *o, const struct caller *who, const char *id,
                             struct live_run **ret, struct err *err) {
    static const struct texts no_keys;
    static const struct run_return resumed;
    struct live_run *l = live_run_new(o, who);
    if (take_up(l, who, &no_keys, id, &resumed, true, err) < 0) {
        live_run_free(l);
        return -1;
    }
    live_prepare(l);
    live_go(l);
    *ret = l;
    return cancel_tries(l, err);
}

struct orphans {
    const char *parent;
    char runs[ORPHANS_MAX][ID_SIZE];
    size_t count;
};

static void find_orphan(void *arg, const struct run *r) {
    struct orphans *f = arg;
    size_t n = strlen(f->parent);
    const char *of = r->start.parent;
    if (of && strncmp(of, f->parent, n) == 0 && of[n] == '.' && r->phase != RUN_ENDED &&
        f->count < ORPHANS_MAX)
        snprintf(f->runs[f->count++], ID_SIZE, "%s", r->start.run);
}

static void operator_gone(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err;
}

void runs_end_within(struct runs *o, const struct caller *who, const char *id) {
    struct orphans f = {.parent = id};
    runs_each(o, find_orphan, &f);
    for (size_t i = 0; i < f.count; i++)
        operator_cancel(o, who, f.runs[i], nothing, NULL);
}

/* Cancels a run that is not live, and the runs that it started. */
static int cancel_idle(struct runs *o, const struct caller *who, struct run *r,
                       struct transcript *t, struct err *err) {
    struct run_machines made = {.count = 0};
    runs_end_within(o, who, r->start.run);
    service_run_machines(o->service, who, r->start.run, &made);
    for (size_t i = 0; i < made.count; i++)
        service_destroy(o->service, who, made.ids[i], operator_gone, NULL);
    return end_by_will(r, t, err);
}

void operator_cancel(struct runs *o, const struct caller *who, const char *id, operator_fn *done,
                     void *arg) {
    struct run run DEFER(run_done) = {0};
    struct transcript t = {.fd = -1};
    struct live_run *l;
    struct err err;
    int status = runs_find_live(o, who, SCOPE_RUN, id, &l, &err);
    if (status == 0 && l) {
        cancel_live(l, done, arg);
        return;
    }
    if (status == 0)
        status = runs_load(o, who, id, &run, &t, &err);
    bool ends = status == 0 && run.phase != RUN_ENDED;
    if (ends && run.start.tries)
        status = cancel_idle_tries(o, who, id, &l, &err);
    else if (ends)
        status = cancel_idle(o, who, &run, &t, &err);
    if (status < 0)
        done(arg, NULL, &err);
    else
        live_answer(l ? &l->run : &run, l, done, arg);
    transcript_close(&t);
}

static int runs_exists(struct runs *o, const struct caller *who, const char *id, struct err *err) {
    struct run run DEFER(run_done) = {0};
    struct transcript t = {.fd = -1};
    int status = runs_load(o, who, id, &run, &t, err);
    transcript_close(&t);
    return status;
}

void operator_answer(struct runs *o, const struct caller *who, const char *id,
                     const struct run_answer *r, operator_fn *done, void *arg) {
    struct live_run *l;
    struct err err;
    if (runs_find_live(o, who, SCOPE_RUN, id, &l, &err) < 0 ||
        (!l && runs_exists(o, who, id, &err) < 0)) {
        done(arg, NULL, &err);
        return;
    }
    for (size_t i = 0; l && i < MODEL_CALLS_MAX; i++) {
        struct acting *x = &l->acting[i];
        if (!x->asked || strcmp(x->question_id, r->question) != 0)
            continue;
        struct act *asked = TAKE(x->asked);
        x->answer(asked, r->action ? r->action : "accept", r->answer);
        live_answer(&l->run, l, done, arg);
        return;
    }
    err_set(&err, ERR_BUSY, "run '%s' does not wait for an answer to question '%.40s'", id,
            r->question);
    err_remedy(&err, "read the run again: it may have ended, or ask another question now");
    done(arg, NULL, &err);
}

/* ---- approval of calls that are not in the plan ---- */

static int note_word(struct live_run *l, const struct caller *who, const struct run_event *e,
                     struct err *err) {
    char detail[240];
    uint64_t intent;
    snprintf(detail, sizeof(detail),
             "{\"run\":\"%s\",\"index\":%" PRIu64 ",\"sha256\":\"%s\",\"approved\":%s}",
             l->run.start.run, e->index, e->hash, e->good ? "true" : "false");
    const struct run_record what = {"run.approve", l->run.start.machine, detail};
    if (service_run_intent(l->runs->service, who, &what, &intent, err) < 0)
        return -1;
    service_run_result(l->runs->service, who, &what, intent, NULL);
    return 0;
}

/* The live run that waits for a decision about exactly this call. */
static struct live_run *find_waiting(struct runs *o, const struct caller *who, const char *item,
                                     struct err *err) {
    struct live_run *l = NULL;
    char id[ID_SIZE], waits[WORD_ITEM_SIZE];
    if (!word_run(item, id)) {
        err_set(err, ERR_NOT_FOUND, "item '%.60s' is not the id of a tool call of a run", item);
        return NULL;
    }
    if (runs_find_live(o, who, SCOPE_RUN, id, &l, err) < 0 ||
        authorise(who, RIGHT_APPROVE_CALL, err) < 0)
        return NULL;
    if (!l || !l->run.wants_word) {
        err_set(err, ERR_NOT_FOUND, "run '%s' is not waiting for an approval", id);
        return NULL;
    }
    word_item(&l->run, l->run.word_index, waits);
    if (strcmp(item, waits) == 0)
        return l;
    err_set(err, ERR_NOT_FOUND, "run '%s' is not waiting for a decision about call '%.60s'", id,
            item);
    err_remedy(err, "list the waiting items with `carrel pending`");
    return NULL;
}

void operator_decide(struct runs *o, const struct caller *who, const char *item, bool approve,
                     operator_fn *done, void *arg) {
    struct err err;
    struct live_run *l = find_waiting(o, who, item, &err);
    struct run_event e = {.kind = RUN_WORD, .good = approve};
    char hash[WORD_HASH_SIZE];
    if (l) {
        const struct model_part *call = run_turn_now(&l->run)->calls[l->run.word_index].part;
        word_hash(call, hash);
        e.index = l->run.word_index;
        e.tool = call->name;
        e.hash = hash;
    }
    if (!l || note_word(l, who, &e, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    (void)live_add(l, &e);
    live_again(l);
    live_answer(&l->run, l, done, arg);
}

void operator_pending(struct runs *o, const struct caller *who, service_row_fn *row, void *arg) {
    struct live_run *l;
    struct err none;
    for (size_t at = 0; (l = map_next(&o->live, &at));)
        if (l->run.wants_word && may_see(who, &l->run, &none) == 0)
            row(arg, l->run.held);
}

/* ---- creation and deletion ---- */

struct runs *operator_new(struct loop *loop, struct service *service) {
    struct runs *o = xnew(struct runs);
    struct err err;
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
    /* Closing a parent also closes its children, so start over each time. */
    for (size_t at; at = 0, (l = map_next(&o->live, &at));) {
        map_take(&o->live, l->run.start.run);
        live_forget(l);
        live_run_free(l);
    }
    map_done(&o->live);
    free(o);
}

size_t operator_busy(const struct runs *o) {
    return o->live.count;
}
