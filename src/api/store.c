/* Checks of the store, and boxes on the host that no machine owns. */
#include <stdlib.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/check.h"
#include "service/strays.h"

/* Collects problems while service_store_check() reports them one by one. */
struct report {
    struct call *call;
    struct buf text;
    struct jot json;
};

static void add_problem(void *arg, const struct store_problem *p) {
    struct report *r = arg;
    schema_write(&store_problem_schema, &r->json, NULL, p);
}

static void checked(void *arg, const struct store_check *check, const struct err *err) {
    struct report *r = arg;
    struct jot *j = &r->json;
    if (err) {
        call_error(r->call, err);
    } else {
        jot_end(j, ']');
        jot_bool(j, "whole", check->problems == 0);
        jot_u64(j, "machines", check->machines);
        jot_u64(j, "unchecked", check->unchecked);
        jot_u64(j, "stacks", check->stacks);
        jot_u64(j, "layers", check->layers);
        jot_u64(j, "leftovers", check->leftovers);
        jot_end(j, '}');
        call_json(r->call, 200, j, &r->text);
    }
    buf_done(&r->text);
    free(r);
}

void api_store_check(struct call *c) {
    struct report *r = xnew(struct report);
    *r = (struct report){.call = c, .text = BUF(CALL_BODY_MAX)};
    r->json = (struct jot)JOT(&r->text);
    jot_object(&r->json, NULL);
    jot_array(&r->json, "problems");
    service_store_check(c->service, &c->who, add_problem, checked, r);
}

static void add_stray(void *arg, const struct stray_view *view) {
    schema_write(&stray_schema, arg, NULL, view);
}

void api_store_boxes(struct call *c) {
    struct buf text DEFER(buf_done) = BUF(CALL_BODY_MAX);
    struct jot j = JOT(&text);
    struct err err;
    jot_object(&j, NULL);
    jot_string(&j, "store", service_store_id(c->service));
    jot_array(&j, "boxes");
    if (service_strays(c->service, &c->who, add_stray, &j, &err) < 0) {
        call_error(c, &err);
        return;
    }
    jot_end(&j, ']');
    jot_end(&j, '}');
    call_json(c, 200, &j, &text);
}

static void adopted(void *arg, const struct machine_view *view, const struct err *err) {
    struct call *c = arg;
    if (err)
        call_error(c, err);
    else
        call_view(c, c->route->status, &machine_schema, view);
}

void api_store_adopt(struct call *c) {
    service_stray_adopt(c->service, &c->who, c->params[0], adopted, c);
}
