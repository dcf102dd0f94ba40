/* Items that wait for approval: requests held by the gate, and tool calls that are not in a plan.
 */
#include "service/net/approvals.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "api/bodies.h"
#include "api/inner.h"
#include "api/route.h"
#include "base/defer.h"
#include "operator/operator.h"
#include "operator/word.h"
#include "service/calls/questions.h"

static void add_run(void *arg, const void *held) {
    json_t *what DEFER(json_decrefp) = json_loads(held, 0, NULL);
    json_t *item = json_object_get(what, "approval");
    if (item)
        json_array_append(arg, item);
}

static void answer_list(void *arg, const char *json, const struct err *err) {
    struct call *c = arg;
    json_t *all DEFER(json_decrefp) = err ? NULL : json_loads(json, 0, NULL);
    if (err) {
        call_error(c, err);
        return;
    }
    operator_pending(api_operator(c->api), &c->who, add_run, json_object_get(all, "pending"));
    char *text DEFER_FREE = json_dumps(all, JSON_COMPACT);
    call_told(c, text ? text : json, NULL);
}

void api_pending_list(struct call *c) {
    service_pending(c->service, &c->who, answer_list, c);
}

static void answer_decided(void *arg, const struct run_view *view, const struct err *err) {
    (void)view;
    call_told(arg, "{}", err);
}

void api_pending_decide(struct call *c) {
    const struct approval_request *r = c->request;
    const char *id = c->params[0];
    char run[ID_SIZE];
    bool answers = strcmp(r->decision, "answer") == 0;
    struct err err;
    if (answers && !question_is(id)) {
        err_set(&err, ERR_INVALID, "'%s' is not the id of a question", id);
        err_remedy(&err, "list questions with: carrel pending");
        call_error(c, &err);
    } else if (answers != (r->text != NULL)) {
        err_set(&err, ERR_INVALID, "a question is answered with decision 'answer' and a text");
        err_remedy(&err, "carrel answer ID TEXT, or carrel deny ID");
        call_error(c, &err);
    } else if (question_is(id) && strcmp(r->decision, "approve") == 0)
        service_question_approve(c->service, &c->who, id, call_told, c);
    else if (question_is(id))
        service_question_answer(c->service, &c->who, id, r->text, call_told, c);
    else if (word_run(id, run))
        operator_decide(api_operator(c->api), &c->who, id, strcmp(r->decision, "approve") == 0,
                        answer_decided, c);
    else
        service_approve(c->service, &c->who, id, r, call_told, c);
}
