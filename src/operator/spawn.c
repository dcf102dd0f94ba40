/*
 * Sub-agents: a run for a part of the task, on a fork of the machine, charged to its parent. The
 * call waits for the report; one directory may be copied back.
 *
 * A child uses the account and the provider of its parent, ends with it, and has no children. A
 * resumed parent finds it by the call that started it.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "operator/inner.h"
#include "operator/own.h"
#include "service/exec/tool_run.h"
#include "service/runs.h"
#include "service/steps/steps.h"
#include "service/taint.h"

enum { BRING_MAX = 64 << 20, BRING_LIMIT_MS = 120000, TURNS_DEFAULT = 50 };

struct spawning {
    struct act *act;
    struct live_run *parent; /* NULL: the parent run was closed */
    struct runs *runs;
    struct caller who;
    const struct spawn_input *in;
    char key[48]; /* key of the call that starts the sub-agent */
    char machine[ID_SIZE], run[ID_SIZE];
    struct run_follower follower;
    json_t *report;
    char status[32];
    struct tool_run *tool;
    struct buf bytes;
    size_t fed;
    bool busy; /* an operation that cannot be cancelled is in progress */
};

static void spawning_free(struct spawning *s) {
    operator_unfollow(&s->follower);
    json_decref(s->report);
    buf_done(&s->bytes);
    free(s);
}

static void spawn_gone(void *arg, const struct machine_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err;
}

/* Deletes the sub-agent's machine, which is no longer needed. */
static void drop_machine(struct spawning *s) {
    if (s->machine[0])
        service_destroy(s->runs->service, &s->who, s->machine, spawn_gone, NULL);
}

/* A report or a file from a tainted fork (one that has read untrusted data) taints the parent's
 * machine. */
static int join(struct spawning *s, enum taint_flow flow, struct err *err) {
    if (!s->machine[0])
        return 0;
    return service_taint_flow(s->runs->service, &s->who, flow, s->machine, s->act->machine, err);
}

static void spawn_fail(struct spawning *s, const struct err *err) {
    struct act *a = s->act;
    struct err unstored;
    if (join(s, TAINT_REPORT, &unstored) < 0)
        err = &unstored;
    drop_machine(s);
    spawning_free(s);
    act_fail(a, err);
}

static void fail_gone(struct spawning *s) {
    struct err err;
    err_set(&err, ERR_GONE, "the tool call was cancelled");
    spawn_fail(s, &err);
}

/* ---- result of the call ---- */

static void done(struct spawning *s, const char *brought) {
    static const char *const lists[] = {"evidence", "outputs", "open_issues"};
    struct act *a = s->act;
    struct err err;
    char *texts[3] = {0};
    if (join(s, TAINT_REPORT, &err) < 0) {
        spawn_fail(s, &err);
        return;
    }
    for (size_t i = 0; i < 3; i++)
        texts[i] = json_dumps(json_object_get(s->report, lists[i]), JSON_COMPACT);
    const struct spawn_output out = {
        .run = s->run,
        .status = s->status,
        .summary = json_string_value(json_object_get(s->report, "summary")),
        .evidence = texts[0] ? texts[0] : "[]",
        .outputs = texts[1] ? texts[1] : "[]",
        .open_issues = texts[2] ? texts[2] : "[]",
        .brought = brought,
    };
    drop_machine(s);
    act_done(a, &out); /* does not free s */
    for (size_t i = 0; i < 3; i++)
        free(texts[i]);
    spawning_free(s);
}

/* ---- copying a directory back ---- */

static void unpacked(void *arg, int status, const char *answer, const char *said,
                     const struct err *err) {
    struct spawning *s = arg;
    struct err why;
    (void)answer;
    s->tool = NULL;
    if (!err && status != 0) {
        tool_said(said, &why);
        err = &why;
    }
    done(s, err ? err->text : "all of it");
}

static void feed(void *arg) {
    struct spawning *s = arg;
    s->fed += tool_feed(s->tool, s->bytes.data + s->fed, s->bytes.len - s->fed, true);
}

static void packed(void *arg, const uint8_t *bytes, uint32_t n) {
    struct spawning *s = arg;
    struct err err;
    if (buf_add(&s->bytes, bytes, n)) {
        tool_consumed(s->tool, n);
        return;
    }
    err_set(&err, ERR_LIMIT, "the directory in argument 'bring' is larger than %d MiB",
            BRING_MAX >> 20);
    tool_stop(s->tool, &err);
}

static void pack_over(void *arg, int status, const char *answer, const char *said,
                      const struct err *err) {
    struct spawning *s = arg;
    const char *const argv[] = {"untar", s->in->bring, NULL};
    const struct tool_events events = {
        .arg = s, .limit_ms = BRING_LIMIT_MS, .room = feed, .ended = unpacked};
    struct err why;
    (void)answer;
    s->tool = NULL;
    if (err || status != 0) {
        if (!err)
            tool_said(said, &why);
        done(s, err ? err->text : why.text);
        return;
    }
    if (join(s, TAINT_BRING, &why) < 0) {
        spawn_fail(s, &why);
        return;
    }
    s->tool = service_tool(s->runs->service, &s->who, s->act->machine, "file.untar", argv, NULL,
                           &events, &why);
    if (s->tool)
        feed(s);
    else
        done(s, why.text);
}

static void bring(struct spawning *s) {
    const char *const argv[] = {"tar", s->in->bring, NULL};
    const struct tool_events events = {
        .arg = s, .limit_ms = BRING_LIMIT_MS, .data = packed, .ended = pack_over};
    struct err err;
    s->tool =
        service_tool(s->runs->service, &s->who, s->machine, "file.tar", argv, NULL, &events, &err);
    if (s->tool)
        tool_feed(s->tool, "", 0, true);
    else
        done(s, err.text);
}

/* ---- the run of the sub-agent ---- */

static uint64_t number_in(const json_t *object, const char *name) {
    json_int_t n = json_integer_value(json_object_get(object, name));
    return n > 0 ? (uint64_t)n : 0;
}

/* The cost of the child is charged to the parent. */
static void charge(struct spawning *s) {
    struct run_event e = {.kind = RUN_ASIDE,
                          .usage = {.in = number_in(s->report, "input_tokens"),
                                    .cache_read = number_in(s->report, "cache_read_tokens"),
                                    .out = number_in(s->report, "output_tokens")},
                          .has_usage = true,
                          .micro = number_in(s->report, "cost_micro"),
                          .budget = {.turns = number_in(s->report, "turns")}};
    (void)live_add(s->parent, &e);
}

static void ended(void *arg, const struct run_view *view, const struct err *err) {
    struct spawning *s = arg;
    struct err why;
    if (!err && strcmp(view->state, "ended") != 0) {
        err_set(&why, ERR_UNKNOWN, "the sub-agent was interrupted: %s",
                view->reason ? view->reason : "unknown reason");
        err = &why;
    }
    if (err) {
        spawn_fail(s, err);
        return;
    }
    s->report = json_loads(view->report ? view->report : "{}", 0, NULL);
    snprintf(s->status, sizeof(s->status), "%s", view->status);
    charge(s);
    if (s->in->bring)
        bring(s);
    else
        done(s, NULL);
}

static void spawn_changed(void *arg) {
    struct spawning *s = arg;
    if (!s->follower.at && s->parent) /* the child is no longer live */
        operator_show(s->runs, &s->who, s->run, ended, s);
}

static void spawn_follow(struct spawning *s) {
    s->follower = (struct run_follower){.changed = spawn_changed, .arg = s};
    if (!operator_follow(s->runs, s->run, &s->follower))
        spawn_changed(s);
}

static uint64_t left(uint64_t limit, uint64_t spent) {
    return !limit ? 0 : limit > spent ? limit - spent : 1;
}

static struct run_budget budget_of(const struct spawning *s) {
    const struct run *r = &s->parent->run;
    const struct run_budget *b = &r->start.budget;
    uint64_t wanted = s->in->turns.is ? s->in->turns.value : TURNS_DEFAULT;
    uint64_t turns = left(b->turns, r->used_turns + r->lent_turns);
    return (struct run_budget){
        .turns = turns && turns < wanted ? turns : wanted,
        .tokens = left(b->tokens, r->tokens),
        .micro = left(b->micro, r->micro),
        .timeout_ms = left(b->timeout_ms, run_active_ms(r, wall_ms())),
    };
}

static void made(void *arg, const struct machine_view *view, const struct err *err) {
    struct spawning *s = arg;
    struct err why;
    s->busy = false;
    if (!s->parent) {
        fail_gone(s);
        return;
    }
    if (!err && live_child(s->parent, view, s->in->task, s->key, budget_of(s), s->run, &why) < 0)
        err = &why;
    if (err)
        spawn_fail(s, err);
    else
        spawn_follow(s);
}

static void forked_one(void *arg, const void *of) {
    struct spawning *s = arg;
    const struct machine_view *view = of;
    memcpy(s->machine, view->id, ID_SIZE);
}

static void forked(void *arg, const struct err *err) {
    struct spawning *s = arg;
    if (err)
        made(s, NULL, err);
    else
        service_show(s->runs->service, &s->who, s->machine, made, s);
}

/* ---- a call that may have been made before ---- */

struct finding {
    const char *key;
    struct spawning *spawning;
    bool found;
};

static void spawn_look_at(void *arg, const struct run *r) {
    struct finding *f = arg;
    if (f->found || !r->start.parent || strcmp(r->start.parent, f->key) != 0)
        return;
    f->found = true;
    snprintf(f->spawning->run, ID_SIZE, "%s", r->start.run);
    snprintf(f->spawning->machine, ID_SIZE, "%s", r->start.machine);
}

static bool take_up(struct spawning *s) {
    struct finding f = {s->key, s, false};
    struct err err;
    runs_each(s->runs, spawn_look_at, &f);
    if (!f.found)
        return false;
    if (live_inner_again(s->parent, INNER_CHILD, s->run, &err) < 0)
        spawn_fail(s, &err);
    else
        spawn_follow(s);
    return true;
}

/* ---- start and cancellation of the call ---- */

static void child_over(void *arg, const struct run_view *view, const struct err *err) {
    (void)arg;
    (void)view;
    (void)err;
}

/* Closing the parent closes the child too; a resumed parent finds the child again. */
static void cancelled(struct act *a) {
    struct spawning *s = a->user;
    bool leaving = s->parent->leaving;
    s->parent = NULL;
    operator_unfollow(&s->follower);
    if (s->run[0] && leaving)
        live_inner_leave(s->runs, s->run);
    else if (s->run[0])
        operator_cancel(s->runs, &s->who, s->run, child_over, NULL);
    if (leaving && s->run[0])
        s->machine[0] = '\0'; /* keep the fork: a resumed parent uses it again */
    if (s->tool)
        tool_cancel(TAKE(s->tool));
    if (!s->busy)
        fail_gone(s);
}

void tool_spawn(struct act *a) {
    struct acting *x = a->events.arg;
    struct spawning *s = xnew(struct spawning);
    *s = (struct spawning){.act = a,
                           .parent = x->live,
                           .runs = x->live->runs,
                           .who = x->live->who,
                           .in = a->request,
                           .bytes = BUF(BRING_MAX)};
    snprintf(s->key, sizeof(s->key), "%s", x->key);
    a->user = s;
    a->cancel = cancelled;
    if (a->events.again && take_up(s))
        return;
    const struct fork_request r = {.count = {1, true}, .key = s->key};
    s->busy = true;
    service_fork(s->runs->service, &s->who, a->machine, &r, forked_one, forked, s);
}
