/*
 * The tools inspect and map: each text is read by a separate model call without tools, which sees
 * only that text and the question. The answer reaches the run only as a record that fits a bounded
 * schema.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "model/failure.h"
#include "operator/inner.h"
#include "operator/mode.h"
#include "operator/own.h"
#include "operator/prompt.h"
#include "operator/shape.h"
#include "service/files.h"
#include "service/runs.h"
#include "tools/pull.h"

enum { ANSWER_TOKENS = 1024, RECORDS_MAX = 1 << 20 };

struct aside {
    struct act *act;
    struct live_run *live; /* NULL: the run was closed; the pending file read frees this struct */
    const char *const *items;
    size_t count, at;
    const char *question;
    const json_t *schema;
    char *schema_text;
    struct model_call *call;
    uint64_t intent;
    struct arena arena; /* memory for the current item */
    struct buf file;
    bool reading, stop, whole;
    struct buf text;
    struct jot json;
    uint64_t fitting;
};

static void next_item(struct aside *s);

static void aside_free(struct aside *s) {
    arena_done(&s->arena);
    buf_done(&s->file);
    buf_done(&s->text);
    free(s->schema_text);
    free(s);
}

static void aside_fail(struct aside *s, const struct err *err) {
    struct act *a = s->act;
    aside_free(s);
    act_fail(a, err);
}

static void cancelled(struct act *a) {
    struct aside *s = a->user;
    struct err err;
    s->live = NULL;
    if (s->call)
        model_call_cancel(TAKE(s->call));
    s->stop = true;
    err_set(&err, ERR_GONE, "the tool call was cancelled");
    if (!s->reading)
        aside_fail(s, &err);
}

/* ---- records ---- */

static void put_item(struct aside *s, const char *record, const char *error) {
    struct jot *j = &s->json;
    jot_object(j, NULL);
    jot_string(j, "item", s->items[s->at]);
    if (record)
        jot_raw(j, "record", record);
    else
        jot_string(j, "error", error);
    jot_end(j, '}');
    s->fitting += record != NULL;
    s->at++;
    arena_done(&s->arena);
    s->arena = (struct arena){0};
}

/* The model's answer must be one JSON object; a Markdown code fence around it is allowed. */
static json_t *record_in(const struct model_answer *answer) {
    for (size_t i = 0; i < answer->count; i++) {
        const struct model_part *p = &answer->parts[i];
        const char *from = p->kind == MODEL_TEXT ? memchr(p->text, '{', p->n) : NULL;
        if (!from)
            continue;
        size_t n = p->n - (size_t)(from - p->text);
        while (n && from[n - 1] != '}')
            n--;
        return json_loadb(from, n, JSON_REJECT_DUPLICATES, NULL);
    }
    return NULL;
}

/* An answer that does not match the schema is never quoted: hostile text would reach the run. */
static void take_answer(struct aside *s, const struct model_answer *answer) {
    struct err err;
    json_t *record = record_in(answer);
    char *text DEFER_FREE = NULL;
    if (record && shape_record_fits(s->schema, record, &err) == 0)
        text = json_dumps(record, JSON_COMPACT | JSON_SORT_KEYS);
    put_item(s, text, "the answer does not fit the schema");
    json_decref(record);
}

/* ---- model calls ---- */

static void aside_note(struct aside *s, const char *failed) {
    const struct run_record what = {"run.aside", s->live->run.start.machine, NULL};
    service_run_result(s->live->runs->service, &s->live->who, &what, s->intent, failed);
}

static void answered(void *arg, struct model_answer *answer, enum model_failure failure,
                     const struct err *err) {
    struct aside *s = arg;
    struct live_run *l = s->live;
    struct err why;
    s->call = NULL;
    aside_note(s, answer ? NULL : err->text);
    if (!answer) { /* the provider's error may quote the text, so only the journal gets it */
        model_failure_err(failure, NULL, &why);
        aside_fail(s, &why);
        return;
    }
    struct run_event e = {
        .kind = RUN_ASIDE, .has_usage = answer->has_usage, .usage = answer->usage};
    e.micro = model_cost(l->row, &e.usage).micro;
    (void)live_add(l, &e);
    take_answer(s, answer);
    next_item(s);
}

static int aside_ask(struct aside *s, const char *text, struct err *err) {
    struct live_run *l = s->live;
    const char *words = arena_printf(
        &s->arena,
        "%s\nQuestion: %s\nSchema: %s\nThe text, %zu bytes, follows up to the end.\n\n%s",
        prompt_aside, s->question, s->schema_text, strlen(text), text);
    const struct model_part part = {.kind = MODEL_TEXT, .text = words, .n = strlen(words)};
    const struct model_message message = {MODEL_USER, &part, 1};
    const struct model_request request = {.model = l->run.start.model,
                                          .system = prompt_aside_system,
                                          .choice = MODEL_CHOICE_NONE,
                                          .messages = &message,
                                          .message_count = 1,
                                          .max_tokens = ANSWER_TOKENS,
                                          .stream = true};
    const struct model_call_events events = {.on_done = answered};
    const struct model_call_options options = live_call_options(l);
    const struct run_record what = {"run.aside", l->run.start.machine, NULL};
    if (service_run_intent(l->runs->service, &l->who, &what, &s->intent, err) < 0)
        return -1;
    return model_call_start(l->runs->loop, l->runs->access.fetcher, &request, &options, &events, s,
                            &s->call, err);
}

static void ask_or_fail(struct aside *s, const char *text) {
    struct err err;
    if (aside_ask(s, text, &err) < 0)
        aside_fail(s, &err);
}

/* ---- the items ---- */

static bool piece_came(void *arg, const uint8_t *bytes, size_t n) {
    struct aside *s = arg;
    return !s->stop && buf_add(&s->file, bytes, n);
}

static void file_ended(void *arg, const struct err *err, bool whole) {
    struct aside *s = arg;
    struct err gone;
    s->reading = false;
    if (!s->live) {
        err_set(&gone, ERR_GONE, "the tool call was cancelled");
        aside_fail(s, &gone);
        return;
    }
    if (err || !whole) {
        put_item(s, NULL, err ? err_code_name(err->code) : "the text is longer than 256 KiB");
        next_item(s);
        return;
    }
    const char *text = arena_copy(&s->arena, s->file.data ? s->file.data : "", s->file.len);
    ask_or_fail(s, text);
}

static void read_file(struct aside *s, const char *path) {
    struct pull_from from = {.service = act_service(s->act),
                             .who = act_who(s->act),
                             .machine = s->act->machine,
                             .path = path,
                             .stop = &s->stop};
    struct err err;
    if (file_user(NULL, &from.uid, &err) < 0) {
        aside_fail(s, &err);
        return;
    }
    buf_done(&s->file);
    s->file = BUF(ASIDE_TEXT_MAX);
    s->reading = true;
    pull(&from, piece_came, file_ended, s);
}

static void done(struct aside *s) {
    struct act *a = s->act;
    struct err err;
    jot_end(&s->json, ']');
    if (s->json.failed) {
        err_set(&err, ERR_LIMIT,
                "the answers about all items are larger than %d MiB: pass fewer items",
                RECORDS_MAX >> 20);
        aside_fail(s, &err);
        return;
    }
    struct buf text DEFER(buf_done) = s->text;
    const struct records_output out = {text.data, s->fitting};
    s->text = (struct buf){0};
    aside_free(s);
    act_done(a, &out);
}

static void next_item(struct aside *s) {
    if (s->at == s->count) {
        done(s);
        return;
    }
    const char *item = s->items[s->at];
    const char *text = mode_content(&s->live->run, item, &s->arena);
    if (text) {
        ask_or_fail(s, text);
    } else if (item[0] == '/') {
        read_file(s, item);
    } else {
        put_item(s, NULL, "not a known handle and not an absolute path");
        next_item(s);
    }
}

static void aside_start(struct act *a, const struct texts *items, const char *question,
                        const json_t *schema) {
    struct err err;
    if (shape_record_check(schema, &err) < 0) {
        act_fail(a, &err);
        return;
    }
    struct aside *s = xnew(struct aside);
    *s = (struct aside){.act = a,
                        .live = ((struct acting *)a->events.arg)->live,
                        .items = items->v,
                        .count = items->count,
                        .question = question,
                        .schema = schema,
                        .schema_text = json_dumps(schema, JSON_COMPACT | JSON_SORT_KEYS),
                        .file = BUF(ASIDE_TEXT_MAX),
                        .text = BUF(RECORDS_MAX)};
    s->json = JOT(&s->text);
    a->user = s;
    a->cancel = cancelled;
    jot_array(&s->json, NULL);
    next_item(s);
}

void tool_map(struct act *a) {
    const struct map_input *in = a->request;
    aside_start(a, &in->items, in->question, in->schema);
}

void tool_inspect(struct act *a) {
    const struct inspect_input *in = a->request;
    aside_start(a, &(struct texts){(const char **)&in->handle, 1}, in->question, in->schema);
}
