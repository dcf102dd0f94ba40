/* The tool calls of a run: each is written to the transcript and flushed before it is made. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/defer.h"
#include "base/utf8.h"
#include "operator/inner.h"
#include "operator/own.h"
#include "operator/prompt.h"
#include "service/runs.h"

enum { JOURNAL_ARGUMENTS = 2000, TRANSCRIPT_LINES = 200, TRANSCRIPT_SHOWN = 48 << 10 };

#define TRANSCRIPT_PATH "/run/carrel/transcript.jsonl"

static struct run_call *call_of(const struct acting *x) {
    struct run_turn *t = &x->live->run.turns[x->live->run.count - 1];
    return &t->calls[x->index];
}

/* ---- results ---- */

/* Shortens a text longer than RUN_RESULT_MAX to its beginning and its end. */
static const char *clipped(const char *text, struct buf *to) {
    size_t n = strlen(text), half = RUN_RESULT_MAX / 2 - 64;
    if (n <= RUN_RESULT_MAX)
        return text;
    const char *tail = text + n - half;
    size_t head = utf8_end(text, half), skip = utf8_begin(tail, half);
    if (!buf_add(to, text, head) ||
        !buf_addf(to, "\n[... %zu bytes left out ...]\n", n - head - (half - skip)) ||
        !buf_add(to, tail + skip, half - skip))
        abort(); /* unreachable: the buffer is larger than a clipped text */
    return to->data;
}

static void acting_free(struct acting *x) {
    free(x->question);
    *x = (struct acting){.live = x->live, .index = x->index};
}

static void over(struct acting *x, bool failed, const char *text, const char *image,
                 const char *media) {
    struct live_run *l = x->live;
    struct buf cut DEFER(buf_done) = BUF(RUN_RESULT_MAX + 1024);
    size_t n = strlen(text);
    struct run_event e = {.kind = RUN_RESULT,
                          .index = x->index,
                          .failed = failed,
                          .text = clipped(text, &cut),
                          .bytes = n > RUN_RESULT_MAX ? n : 0,
                          .took_ms = monotonic_ms() - x->begun_ms,
                          .fallback = x->fallback,
                          .image = image,
                          .media = image ? media : NULL};
    const struct run_record what = {"run.call", l->run.start.machine, NULL};
    service_run_result(l->runs->service, &l->who, &what, x->intent, failed ? text : NULL);
    l->active--;
    if (x->question && !l->gated)
        hold_end(l);
    acting_free(x);
    (void)live_add(l, &e);
    hold_next(l);
    live_again(l);
}

static void act_over(void *arg, const struct act_result *result) {
    struct acting *x = arg;
    struct buf text DEFER(buf_done) = BUF(1 << 20);
    const struct err *err = result->err;
    x->fallback = result->fallback;
    if (!err) {
        const struct act_image none = {NULL, NULL};
        const struct act_image *first = result->image_count ? result->images : &none;
        over(x, false, result->json, first->base64, first->media);
        return;
    }
    bool fits = buf_addf(&text, "%s: %s%s%s%s%s", err_code_name(err->code), err->text,
                         err->remedy[0] ? "\n" : "", err->remedy, result->detail ? "\n\n" : "",
                         result->detail ? result->detail : "");
    over(x, true, fits ? text.data : err->text, NULL, NULL);
}

/* ---- questions of the tool ask ---- */

static void asked(void *arg, struct act *a, const struct act_question *q, act_answer_fn *fn) {
    struct acting *x = arg;
    struct buf text DEFER(buf_done) = BUF(64 << 10);
    struct jot j = JOT(&text);
    memcpy(x->question_id, id_new('q').text, ID_SIZE);
    jot_object(&j, NULL);
    jot_string(&j, "id", x->question_id);
    jot_string(&j, "question", q->text);
    jot_array(&j, "options");
    for (size_t i = 0; i < q->options.count; i++)
        jot_string(&j, NULL, q->options.v[i]);
    jot_end(&j, ']');
    jot_end(&j, '}');
    if (j.failed || x->live->is_try) {
        fn(a, j.failed ? NULL : "decline", NULL);
        return;
    }
    x->asked = a;
    x->answer = fn;
    x->question = buf_take(&text);
    hold_begin(x->live, x->question);
    service_run_tell(x->live->runs->service, &x->live->who, x->live->run.start.machine, "run.ask",
                     x->question);
}

/* ---- RUN_SURE: the hash of a file before it is written ---- */

static void sure_flushed(struct live_run *l) {
    if (l->broken) {
        live_again(l);
        return;
    }
    for (size_t i = 0; i < MODEL_CALLS_MAX; i++) {
        struct acting *x = &l->acting[i];
        if (x->go) {
            act_go_fn *go = TAKE(x->go);
            go(x->act);
            return;
        }
    }
}

static void sure(void *arg, struct act *a, const char *sha256, act_go_fn *go) {
    struct acting *x = arg;
    struct run_event e = {.kind = RUN_SURE, .index = x->index, .hash = sha256};
    x->act = a;
    x->go = go;
    if (live_add(x->live, &e) == 0) /* if the line cannot be written, the run stops */
        live_flush(x->live, sure_flushed);
}

/* ---- the transcript, which the model may read as a file ---- */

static bool reads_transcript(const struct acting *x, const json_t *arguments) {
    const char *path = json_string_value(json_object_get(arguments, "path"));
    return strcmp(x->tool->name, "read") == 0 && path && strcmp(path, TRANSCRIPT_PATH) == 0;
}

static void show_transcript(struct acting *x, const json_t *arguments) {
    struct buf lines DEFER(buf_done) = BUF(TRANSCRIPT_BYTES_MAX),
                     shown DEFER(buf_done) = BUF(TRANSCRIPT_SHOWN + 1024);
    json_int_t from = json_integer_value(json_object_get(arguments, "from_line"));
    struct err err;
    if (transcript_read(x->live->transcript.fd, 0, TRANSCRIPT_BYTES_MAX, &lines, &err) < 0) {
        over(x, true, err.text, NULL, NULL);
        return;
    }
    const char *at = lines.data;
    json_int_t number = 1;
    for (const char *end; at && *at && (end = strchr(at, '\n')); at = end + 1, number++) {
        int n = end - at > 2000 ? 2000 : (int)(end - at);
        if (number >= (from ? from : 1) && number < (from ? from : 1) + TRANSCRIPT_LINES &&
            !buf_addf(&shown, "%lld\t%.*s\n", (long long)number, n, at))
            break;
    }
    over(x, false, shown.data ? shown.data : "(the transcript has no such line)", NULL, NULL);
}

/* ---- making a call ---- */

/* A resumed run cannot find out whether input or a signal reached a session (a running command), or
 * whether an interpreter ran code, so it does not repeat such a call. */
static bool cannot_be_repeated(const struct acting *x, const json_t *arguments) {
    if (x->again && x->tool->recovery == TOOL_ONCE)
        return true;
    return x->again && strcmp(x->tool->name, "session") == 0 &&
           (json_object_get(arguments, "type") || json_object_get(arguments, "eof") ||
            json_object_get(arguments, "signal"));
}

/* Names a checkpoint to which the model gave no name, so that a resumed run finds it again. */
static void name_checkpoint(struct acting *x, json_t *arguments) {
    char name[64];
    const struct run *r = &x->live->run;
    if (strcmp(x->tool->name, "checkpoint") != 0 || json_object_get(arguments, "name"))
        return;
    snprintf(name, sizeof(name), "%s-t%zu.%zu", r->start.run, r->count - 1, x->index);
    json_object_set_new(arguments, "name", json_string(name));
}

static void acts_make(struct acting *x) {
    struct live_run *l = x->live;
    const struct act_events events = {.arg = x,
                                      .key = x->key,
                                      .again = x->again,
                                      .since_ms = x->since_ms,
                                      .expected = x->expected,
                                      .done = act_over,
                                      .sure = sure,
                                      .ask = asked};
    json_t *arguments = json_loads(call_of(x)->part->text, 0, NULL);
    if (reads_transcript(x, arguments)) {
        show_transcript(x, arguments);
    } else if (cannot_be_repeated(x, arguments)) {
        over(x, true, prompt_unknown_outcome, NULL, NULL);
    } else {
        name_checkpoint(x, arguments);
        mode_fill(&l->run, x->tool->name, arguments);
        struct act *act = act_start(l->box, x->tool, arguments, &events);
        if (act)
            x->act = act;
    }
    json_decref(arguments);
}

static void acts_flushed(struct live_run *l) {
    if (l->broken || l->run.phase != RUN_RUNNING) {
        live_again(l);
        return;
    }
    for (size_t i = l->first; i < l->first + l->count; i++)
        if (l->acting[i].active)
            acts_make(&l->acting[i]);
}

static int acts_note(struct acting *x, struct err *err) {
    const struct run *r = &x->live->run;
    const struct model_part *p = call_of(x)->part;
    struct buf text DEFER(buf_done) = BUF(16 << 10);
    struct jot j = JOT(&text);
    jot_object(&j, NULL);
    jot_string(&j, "run", r->start.run);
    jot_u64(&j, "turn", r->count - 1);
    jot_u64(&j, "index", x->index);
    jot_string(&j, "tool", p->name);
    jot_bytes(&j, "arguments", p->text, p->n < JOURNAL_ARGUMENTS ? p->n : JOURNAL_ARGUMENTS);
    jot_bool(&j, "again", x->again);
    jot_end(&j, '}');
    const struct run_record what = {"run.call", r->start.machine, j.failed ? NULL : text.data};
    return service_run_intent(x->live->runs->service, &x->live->who, &what, &x->intent, err);
}

static int acts_announce(struct acting *x) {
    struct live_run *l = x->live;
    const struct run_call *c = call_of(x);
    struct run_event e = {
        .kind = RUN_CALL, .index = x->index, .tool = c->part->name, .arguments = c->part->text};
    struct err err;
    x->again = c->recover;
    x->since_ms = c->begun_ms;
    x->begun_ms = monotonic_ms();
    x->expected = c->sure;
    x->tool = live_tool(l, c->part->name);
    snprintf(x->key, sizeof(x->key), "%s.%zu.%zu", l->run.start.run, l->run.count - 1, x->index);
    if (live_add(l, &e) < 0)
        return -1;
    if (acts_note(x, &err) < 0) {
        l->broke = err;
        l->broken = true;
        live_again(l);
        return -1;
    }
    x->active = true;
    l->active++;
    return 0;
}

void acts_start(struct live_run *l, const struct run_intent *in) {
    l->first = in->first;
    l->count = in->count;
    for (size_t i = in->first; i < in->first + in->count; i++) {
        struct acting *x = &l->acting[i];
        *x = (struct acting){.live = l, .index = i};
        if (acts_announce(x) < 0)
            return;
    }
    live_flush(l, acts_flushed);
}

/* A file write that waits for its RUN_SURE line notices that it is cancelled only in go(). */
static void acts_let_go(struct acting *x, bool leaving) {
    act_go_fn *go = TAKE(x->go);
    struct act *act = x->act;
    if (!act)
        return;
    /* The tools in own.c use the live run, so their calls cannot continue without it. */
    if (leaving && !own_tool_find(x->tool->name))
        act_abandon(act);
    else
        act_cancel(act);
    if (go)
        go(act);
}

void acts_cut(struct live_run *l, const char *why) {
    for (size_t i = 0; i < MODEL_CALLS_MAX; i++) {
        struct acting *x = &l->acting[i];
        if (!x->active)
            continue;
        acts_let_go(x, false);
        over(x, true, why, NULL, NULL);
    }
}

void acts_leave(struct live_run *l) {
    l->leaving = true;
    for (size_t i = 0; i < MODEL_CALLS_MAX; i++) {
        struct acting *x = &l->acting[i];
        if (!x->active)
            continue;
        acts_let_go(x, true);
        acting_free(x);
    }
}
