/* The tools plan, ask and finish: communication between the agent and its user. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "service/reports.h"
#include "tools/requests.h"
#include "tools/toolbox.h"

enum { TALK_MAX = 256 << 10 };

/* ---- plan ---- */

void tool_plan(struct act *a) {
    const struct plan_input *in = a->request;
    const struct plan_row *rows = in->items.v;
    struct buf text DEFER(buf_done) = BUF(TALK_MAX);
    struct jot j = JOT(&text);
    struct plan_output out = {0};
    struct err err;
    jot_array(&j, NULL);
    for (size_t i = 0; i < in->items.count; i++) {
        jot_object(&j, NULL);
        jot_string(&j, "text", rows[i].text);
        jot_string(&j, "status", rows[i].status);
        jot_end(&j, '}');
        out.left += strcmp(rows[i].status, "done") != 0;
    }
    jot_end(&j, ']');
    if (j.failed) {
        err_set(&err, ERR_LIMIT, "the plan is longer than %d KiB", TALK_MAX >> 10);
        act_fail(a, &err);
        return;
    }
    free(a->box->plan);
    a->box->plan = buf_take(&text);
    out.items = a->box->plan;
    act_done(a, &out);
}

/* ---- ask ---- */

static void answered(struct act *a, const char *action, const char *answer) {
    struct err err;
    if (action) {
        act_done(a, &(struct ask_output){.action = action, .answer = answer});
        return;
    }
    err_set(&err, ERR_UNSUPPORTED, "no user is available to answer the question");
    err_remedy(&err, "decide yourself, or finish with the status blocked and say what is missing");
    act_fail(a, &err);
}

static void talk_give_up(struct act *a) {
    answered(a, NULL, NULL);
}

void tool_ask(struct act *a) {
    const struct ask_input *in = a->request;
    a->cancel = talk_give_up;
    const struct act_question q = {in->question, in->options};
    if (a->events.ask)
        a->events.ask(a->events.arg, a, &q, answered);
    else
        answered(a, NULL, NULL);
}

/* ---- finish ---- */

static void put_texts(struct jot *j, const char *name, const struct texts *texts) {
    jot_array(j, name);
    for (size_t i = 0; i < texts->count; i++)
        jot_string(j, NULL, texts->v[i]);
    jot_end(j, ']');
}

int finish_check(const struct finish_input *in, struct err *err) {
    if (strcmp(in->status, "done") == 0 && !in->evidence.count) {
        err_set(err, ERR_INVALID, "status done needs argument 'evidence'");
        return err_remedy(err, "run a check that proves the result and quote its output");
    }
    if (strcmp(in->status, "done") != 0 && !in->open_issues.count) {
        err_set(err, ERR_INVALID, "status %s needs argument 'open_issues'", in->status);
        return err_remedy(err, "say what is left to do and what it needs");
    }
    return 0;
}

void tool_finish(struct act *a) {
    const struct finish_input *in = a->request;
    struct buf text DEFER(buf_done) = BUF(TALK_MAX);
    struct jot j = JOT(&text);
    struct err err;
    jot_object(&j, NULL);
    jot_string(&j, "status", in->status);
    jot_string(&j, "summary", in->summary);
    put_texts(&j, "evidence", &in->evidence);
    put_texts(&j, "outputs", &in->outputs);
    put_texts(&j, "open_issues", &in->open_issues);
    jot_end(&j, '}');
    const char *machine = a->box->machine;
    if (j.failed)
        err_set(&err, ERR_LIMIT, "the report is longer than %d KiB", TALK_MAX >> 10);
    if (j.failed || finish_check(in, &err) < 0 ||
        service_report(act_service(a), act_who(a), machine, text.data, &err) < 0) {
        act_fail(a, &err);
        return;
    }
    act_done(a, &(struct finish_output){in->status, machine[0] ? machine : NULL});
}
