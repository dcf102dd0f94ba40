/* Drives a run: carries out the actions that run_next() returns until the run ends or waits. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "base/defer.h"
#include "base/log.h"
#include "operator/inner.h"
#include "operator/own.h"
#include "service/runs.h"

enum { REPORT_RESERVE_MS = 60000, CALL_MAX_MS = 30 * 60 * 1000 };

void live_again(struct live_run *l) {
    loop_defer(l->runs->loop, &l->step);
}

static void tell_followers(struct live_run *l) {
    for (struct run_follower *f = l->followers, *next; f; f = next) {
        next = f->next;
        f->changed(f->arg);
    }
}

int live_add(struct live_run *l, struct run_event *e) {
    e->time_ms = wall_ms();
    if (l->broken)
        return -1;
    if (transcript_add(&l->transcript, e, &l->broke) < 0 || run_take(&l->run, e, &l->broke) < 0) {
        log_line(LOG_ERROR, "operator", "%s run=%s", l->broke.text, l->run.start.run);
        l->broken = true;
        live_again(l);
        return -1;
    }
    tell_followers(l);
    return 0;
}

/* ---- flushing ---- */

struct flushing {
    struct live_run *live; /* NULL: the run was closed */
    struct service *service;
    int fd;
    void (*fn)(struct live_run *l);
    bool failed;
    struct err err;
};

static void flush_work(void *arg) {
    struct flushing *f = arg;
    f->failed = transcript_sync(f->fd, &f->err) < 0 || service_run_flush(f->service, &f->err) < 0;
}

static void flush_over(void *arg) {
    struct flushing *f = arg;
    struct live_run *l = f->live;
    close_fd(&f->fd);
    if (l) {
        l->flushing = NULL;
        if (f->failed) {
            l->broke = f->err;
            l->broken = true;
        }
        f->fn(l);
    }
    free(f);
}

void live_flush(struct live_run *l, void (*fn)(struct live_run *l)) {
    struct flushing *f = xnew(struct flushing);
    *f = (struct flushing){
        .live = l, .service = l->runs->service, .fd = dup(l->transcript.fd), .fn = fn};
    l->flushing = f;
    loop_work(l->runs->loop, flush_work, flush_over, f);
}

void live_unflush(struct live_run *l) {
    if (l->flushing)
        l->flushing->live = NULL;
    l->flushing = NULL;
}

/* ---- model calls ---- */

static struct run_record ask_record(const struct live_run *l, char detail[160]) {
    snprintf(detail, 160, "{\"run\":\"%s\",\"turn\":%zu,\"bytes\":%" PRIu64 "}", l->run.start.run,
             l->run.count, l->model_bytes);
    return (struct run_record){"run.ask", l->run.start.machine, detail};
}

static void model_note(struct live_run *l, const char *failed) {
    char detail[160];
    struct run_record what = ask_record(l, detail);
    service_run_result(l->runs->service, &l->who, &what, l->model_intent, failed);
}

static void model_failed(struct live_run *l, enum model_failure failure, const struct err *err) {
    char text[sizeof(err->text) + sizeof(err->remedy) + 4];
    snprintf(text, sizeof(text), "%s%s%s", err->text, err->remedy[0] ? ": " : "", err->remedy);
    struct run_event e = {.kind = RUN_NOTE, .text = text};
    if (failure == MODEL_FAIL_BUDGET)
        e.note = RUN_NOTE_SPENT;
    else if (failure == MODEL_FAIL_CONTEXT)
        e.note = RUN_NOTE_FULL;
    else
        e.kind = RUN_STOPPED;
    (void)live_add(l, &e);
    live_again(l);
}

static void model_done(void *arg, struct model_answer *answer, enum model_failure failure,
                       const struct err *err) {
    struct live_run *l = arg;
    l->model = NULL;
    model_note(l, answer ? NULL : err->text);
    if (!answer) {
        model_failed(l, failure, err);
        return;
    }
    struct run_event e = {
        .kind = RUN_ANSWER,
        .purpose = l->purpose,
        .stop = answer->stop,
        .has_usage = answer->has_usage,
        .usage = answer->usage,
        .request_bytes = l->model_bytes,
        .parts = answer->parts,
        .count = answer->count,
    };
    e.micro = model_cost(l->row, &e.usage).micro;
    (void)live_add(l, &e);
    live_again(l);
}

static void model_retry(void *arg, unsigned attempt, uint64_t wait_ms, const struct err *why) {
    struct live_run *l = arg;
    log_line(LOG_NOTE, "operator",
             "call the model: attempt %u failed, next attempt in %" PRIu64 " ms: %s run=%s",
             attempt, wait_ms, why->text, l->run.start.run);
    struct run_event e = {
        .kind = RUN_RETRY, .attempt = attempt, .wait_ms = wait_ms, .text = why->text};
    (void)live_add(l, &e);
}

static uint64_t deadline_ms(const struct live_run *l) {
    uint64_t limit = l->run.start.budget.timeout_ms, spent = run_active_ms(&l->run, wall_ms());
    uint64_t left = limit > spent ? limit - spent : 0;
    return !limit ? CALL_MAX_MS : left + REPORT_RESERVE_MS;
}

struct model_call_options live_call_options(const struct live_run *l) {
    return (struct model_call_options){
        .provider = &l->provider,
        .rehearsal = l->rehearsal,
        .turn = l->run.used_turns,
        .tells_turn = true,
        .ledger = l->runs->access.ledger,
        .account = l->account,
        .row = l->row,
        .deadline_ms = deadline_ms(l),
    };
}

static int ask_model(struct live_run *l, const struct run_intent *in, struct arena *a,
                     struct err *err) {
    struct runs *o = l->runs;
    struct model_request request;
    char detail[160];
    l->purpose = in->purpose;
    l->model_max = l->row && l->row->max_tokens && l->row->max_tokens < in->max_tokens
                       ? l->row->max_tokens
                       : in->max_tokens;
    run_render(&l->run, in->purpose, l->model_max, &l->prompt, a, &request, &l->model_bytes);
    struct run_record what = ask_record(l, detail);
    const struct model_call_options options = live_call_options(l);
    const struct model_call_events events = {.on_retry = model_retry, .on_done = model_done};
    if (service_run_intent(o->service, &l->who, &what, &l->model_intent, err) < 0)
        return -1;
    return model_call_start(o->loop, o->access.fetcher, &request, &options, &events, l, &l->model,
                            err);
}

static void do_ask(struct live_run *l, const struct run_intent *in, struct arena *a) {
    struct err err;
    if (ask_model(l, in, a, &err) < 0)
        model_failed(l, MODEL_FAIL_INVALID, &err);
}

/* ---- end of the run ---- */

void live_tell_end(struct live_run *l) {
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    struct jot j = JOT(&text);
    const struct run *r = &l->run;
    jot_object(&j, NULL);
    jot_string(&j, "run", r->start.run);
    jot_string(&j, "status", r->status);
    jot_raw(&j, "report", r->report);
    jot_end(&j, '}');
    char detail[120];
    snprintf(detail, sizeof(detail), "{\"run\":\"%s\",\"status\":\"%s\"}", r->start.run, r->status);
    const struct run_record what = {"run.end", r->start.machine, detail};
    uint64_t intent;
    struct err err;
    if (service_run_intent(l->runs->service, &l->who, &what, &intent, &err) == 0)
        service_run_result(l->runs->service, &l->who, &what, intent, NULL);
    if (!j.failed)
        service_run_tell(l->runs->service, &l->who, r->start.machine, "run.end", text.data);
}

/* Writes the hash of the fixed calls (the run's plan) to the journal before the first is made. */
static int note_frozen(struct live_run *l, const struct run_event *e) {
    const struct run_record what = {"run.freeze", l->run.start.machine, e->text};
    uint64_t intent;
    if (e->kind != RUN_RESULT || !e->status || strcmp(e->status, "frozen") != 0)
        return 0;
    if (service_run_intent(l->runs->service, &l->who, &what, &intent, &l->broke) < 0) {
        l->broken = true;
        live_again(l);
        return -1;
    }
    service_run_result(l->runs->service, &l->who, &what, intent, NULL);
    return 0;
}

static void do_tell(struct live_run *l, struct run_intent *in) {
    if (note_frozen(l, &in->event) < 0)
        return;
    if (live_add(l, &in->event) == 0 && in->event.kind == RUN_END)
        live_tell_end(l);
    live_again(l);
}

/* Stops a run whose transcript or journal cannot be written: it must make no more calls. */
static void drive_give_up(struct live_run *l) {
    struct run_event e = {.kind = RUN_STOPPED, .text = l->broke.text, .time_ms = wall_ms()};
    struct err err;
    if (l->run.phase == RUN_RUNNING)
        (void)run_take(&l->run, &e, &err);
    live_close(l);
}

const struct tool *live_tool(const struct live_run *l, const char *name) {
    const struct tool *own = own_tool_find(name), *t = own ? own : tool_find(l->box, name);
    if (l->is_child && own && own->start == tool_spawn)
        return NULL;
    return t && !(t->hints & TOOL_OUTSIDE) && mode_offers(l->mode, l->menu, name, own) ? t : NULL;
}

static const struct tool *find_tool(void *arg, const char *name) {
    return live_tool(arg, name);
}

void live_go_on(void *arg) {
    struct live_run *l = arg;
    struct arena a DEFER(arena_done) = {0};
    const struct run_tools may = {find_tool, l, l->tool_names};
    struct run_intent in;
    if (l->broken) {
        drive_give_up(l);
        return;
    }
    if (l->model || l->flushing || l->marking)
        return;
    if (l->run.start.tries) {
        tries_go_on(l);
        return;
    }
    if (project_reads(l))
        return;
    live_wall(l);
    run_next(&l->run, &may, wall_ms(), &a, &in);
    switch (in.what) {
    case RUN_DO_NOTHING:
        live_close(l);
        break;
    case RUN_DO_WAIT:
        break;
    case RUN_DO_TELL:
        do_tell(l, &in);
        break;
    case RUN_DO_ASK:
        do_ask(l, &in, &a);
        break;
    case RUN_DO_CALL:
        acts_start(l, &in);
        break;
    case RUN_DO_POINT:
    case RUN_DO_BACK:
        mark_start(l, &in);
        break;
    }
}
