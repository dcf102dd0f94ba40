/* checkpoint, rewind, fork: an agent's way back, and side. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "service/steps.h"
#include "tools/requests.h"
#include "tools/tables.h"
#include "tools/toolbox.h"

enum { FORKS_TEXT_MAX = 64 << 10 };

static void answer_step(void *arg, const struct step_view *view, const struct err *err) {
    if (err) {
        act_fail(arg, err);
        return;
    }
    act_done(arg, &(struct step_output){
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
        err_remedy(&why, "wait for it with session, or end it, then try again");
        err = &why;
    }
    answer_step(arg, view, err);
}

void tool_checkpoint(struct act *a) {
    const struct checkpoint_input *in = a->request;
    service_snap(act_service(a), act_who(a), a->machine, in->name, snapped, a);
}

static void rewound(void *arg, const struct step_view *view, const struct err *err) {
    struct err why;
    if (err && err->code == ERR_NOT_FOUND) {
        why = *err;
        err_remedy(&why, "checkpoint answers with the step to return to");
        err = &why;
    }
    answer_step(arg, view, err);
}

void tool_rewind(struct act *a) {
    const struct rewind_input *in = a->request;
    const struct rewind_request r = {.step = in->to};
    service_rewind(act_service(a), act_who(a), a->machine, &r, rewound, a);
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
    struct forks *f = calloc(1, sizeof(*f));
    if (!f)
        abort();
    f->act = a;
    f->text = BUF(FORKS_TEXT_MAX);
    f->json = JOT(&f->text);
    jot_array(&f->json, NULL);
    service_fork(act_service(a), act_who(a), a->machine, &r, add_fork, forked, f);
}
