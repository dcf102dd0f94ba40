#include <stdlib.h>

#include "api/bodies.h"
#include "api/route.h"
#include "base/defer.h"
#include "service/check.h"

/* The problems, while they are found. */
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
    struct report *r = calloc(1, sizeof(*r));
    if (!r)
        abort();
    *r = (struct report){.call = c, .text = BUF(CALL_BODY_MAX)};
    r->json = (struct jot)JOT(&r->text);
    jot_object(&r->json, NULL);
    jot_array(&r->json, "problems");
    service_store_check(c->service, &c->who, add_problem, checked, r);
}
