/* Steps of a machine: take, list, rewind and fork. */
#include <stdlib.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/review/diff.h"
#include "service/steps/steps.h"

static void answer_step(void *arg, const struct step_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, c->route->status, &step_schema, view);
}

void api_snap(struct call *c) {
    service_snap(c->service, &c->who, c->params[0], c->request, answer_step, c);
}

void api_step_name(struct call *c) {
    const struct step_name_request *r = c->request;
    service_step_name(c->service, &c->who, c->params[0], c->params[1], r->name, answer_step, c);
}

void api_rewind(struct call *c) {
    service_rewind(c->service, &c->who, c->params[0], c->request, answer_step, c);
}

static void show_now(void *arg) {
    struct call *c = arg;
    struct err err;
    if (service_step_show(c->service, &c->who, c->params[0], c->params[1], answer_step, c, &err) <
        0)
        call_error(c, &err);
}

void api_step_show(struct call *c) {
    service_measured(c->service, &c->who, c->params[0], show_now, c);
}

struct list_answer {
    struct buf text;
    struct jot json;
    const struct schema *schema;
};

static void steps_add_row(void *arg, const void *view) {
    struct list_answer *a = arg;
    schema_write(a->schema, &a->json, NULL, view);
}

static void list_now(void *arg) {
    struct call *c = arg;
    struct list_answer a = {.text = BUF(CALL_BODY_MAX), .schema = &step_schema};
    a.json = (struct jot)JOT(&a.text);
    struct list_request r = {.cursor = call_query(c, "cursor")};
    char next[CURSOR_SIZE];
    struct err err;
    jot_object(&a.json, NULL);
    jot_array(&a.json, "steps");
    if (call_number(c, "limit", 1, STORE_PAGE_MAX, &r.limit, &err) < 0 ||
        service_step_list(c->service, &c->who, c->params[0], &r, steps_add_row, &a, next, &err) <
            0) {
        call_error(c, &err);
    } else {
        jot_end(&a.json, ']');
        if (next[0])
            jot_string(&a.json, "next", next);
        jot_end(&a.json, '}');
        call_json(c, 200, &a.json, &a.text);
    }
    buf_done(&a.text);
}

void api_step_list(struct call *c) {
    service_measured(c->service, &c->who, c->params[0], list_now, c);
}

/* ---- fork ---- */

static void add_fork(void *arg, const void *view) {
    struct call *c = arg;
    steps_add_row(c->user, view);
}

static void forked(void *arg, const struct err *err) {
    struct call *c = arg;
    struct list_answer *a = c->user;
    if (err) {
        call_error(c, err);
    } else {
        jot_end(&a->json, ']');
        jot_end(&a->json, '}');
        call_json(c, c->route->status, &a->json, &a->text);
    }
    buf_done(&a->text);
    free(a);
}

void api_fork(struct call *c) {
    struct list_answer *a = xnew(struct list_answer);
    a->text = BUF(CALL_BODY_MAX);
    a->json = (struct jot)JOT(&a->text);
    a->schema = &machine_schema;
    c->user = a;
    jot_object(&a->json, NULL);
    jot_array(&a->json, "machines");
    struct fork_request *r = c->request;
    r->hash = c->hash;
    service_fork(c->service, &c->who, c->params[0], c->request, add_fork, forked, c);
}
