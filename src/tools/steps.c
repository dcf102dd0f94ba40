/* The tools checkpoint, rewind and fork. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "service/steps/steps.h"
#include "tools/requests.h"
#include "tools/tables.h"
#include "tools/toolbox.h"

enum { FORKS_TEXT_MAX = 64 << 10 };

static void answer_step(void *arg, const struct step_view *view, const struct err *err) {
    if (err) {
        act_fail(arg, err);
        return;
    }
    struct act *a = arg;
    if (!view->restorable)
        a->fallback = "the step has no restore point";
    act_done(a, &(struct step_output){
                    .machine = view->machine,
                    .step = view->id,
                    .name = view->name,
                    .reason = view->reason,
                    .number = view->number,
                    .restorable = view->restorable,
                });
}

static void snapped(void *arg, const struct step_view *view, const struct err *err) {
    struct err why;
    if (err && err->code == ERR_BUSY) {
        why = *err;
        err_remedy(&why, "wait for the running command with session, or end it, then try again");
        err = &why;
    }
    answer_step(arg, view, err);
}

/* Step names are unique, so the same call made an existing step of that name before a crash. */
static void checkpoint_now(void *arg) {
    struct act *a = arg;
    const struct checkpoint_input *in = a->request;
    struct err err;
    bool there = a->events.again && in->name &&
                 service_step_show(act_service(a), act_who(a), a->machine, in->name, answer_step, a,
                                   &err) == 0;
    if (!there)
        service_snap(act_service(a), act_who(a), a->machine,
                     &(struct snap_request){.name = in->name}, snapped, a);
}

/* Waits for the step of the previous command, which may be in progress, to keep steps in order. */
void tool_checkpoint(struct act *a) {
    service_settled(act_service(a), act_who(a), a->machine, checkpoint_now, a);
}

static void rewound(void *arg, const struct step_view *view, const struct err *err) {
    struct err why;
    if (err && err->code == ERR_NOT_FOUND) {
        why = *err;
        err_remedy(&why, "return to a step that checkpoint returned");
        err = &why;
    }
    answer_step(arg, view, err);
}

enum { LOOK_BACK = 8 };

struct looking {
    int64_t since_ms;
    char step[ID_SIZE];
};

/* Called for each step, newest first. A rewind since l->since_ms is the one of this call. */
static void steps_look_at(void *arg, const void *of) {
    const struct step_view *view = of;
    struct looking *l = arg;
    if (!l->step[0] && strcmp(view->kind, "rewind") == 0 &&
        (int64_t)view->created_ms >= l->since_ms)
        snprintf(l->step, sizeof(l->step), "%s", view->id);
}

static bool was_rewound(struct act *a) {
    struct looking l = {.since_ms = a->events.since_ms};
    const struct list_request r = {.limit = LOOK_BACK};
    char next[CURSOR_SIZE];
    struct err err;
    return a->events.again &&
           service_step_list(act_service(a), act_who(a), a->machine, &r, steps_look_at, &l, next,
                             &err) == 0 &&
           l.step[0] &&
           service_step_show(act_service(a), act_who(a), a->machine, l.step, answer_step, a,
                             &err) == 0;
}

static void rewind_now(void *arg) {
    struct act *a = arg;
    const struct rewind_input *in = a->request;
    const struct rewind_request r = {.step = in->to};
    if (!was_rewound(a))
        service_rewind(act_service(a), act_who(a), a->machine, &r, rewound, a);
}

void tool_rewind(struct act *a) {
    service_settled(act_service(a), act_who(a), a->machine, rewind_now, a);
}

/* ---- fork ---- */

struct forks {
    struct act *act;
    struct buf text;
    struct jot json;
};

static void add_fork(void *arg, const void *view) {
    struct forks *f = arg;
    struct machine_output out = machine_output_of(view);
    schema_write(&machine_output_schema, &f->json, NULL, &out);
}

static void forked(void *arg, const struct err *err) {
    struct forks *f = arg;
    jot_end(&f->json, ']');
    if (err)
        act_fail(f->act, err);
    else
        act_done(f->act, &(struct machine_list_output){f->text.data});
    buf_done(&f->text);
    free(f);
}

void tool_fork(struct act *a) {
    const struct fork_input *in = a->request;
    const struct fork_request r = {.step = in->step, .count = in->count};
    struct forks *f = xnew(struct forks);
    f->act = a;
    f->text = BUF(FORKS_TEXT_MAX);
    f->json = JOT(&f->text);
    jot_array(&f->json, NULL);
    service_fork(act_service(a), act_who(a), a->machine, &r, add_fork, forked, f);
}
