/*
 * Hibernation. To save processes, CRIU would have to restore a box with all its parts, which is not
 * tested. So the request is refused, unless it asks to save only the files.
 */
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "io/criu.h"
#include "service/state.h"
#include "service/steps/live.h"

struct hibernating {
    struct live *live;
    struct caller who;
    uint64_t intent;
    struct err err;
    service_machine_fn *done;
    void *arg;
};

static void hibernate_refuse(struct hibernating *h, const struct err *err) {
    struct live *l = h->live;
    struct journal_record what = verb_record("machine.hibernate", l);
    note_result(l->service, &h->who, &what, h->intent, err);
    h->done(h->arg, NULL, err);
    live_unref(l);
    free(h);
}

static void ask_criu(void *arg) {
    struct hibernating *h = arg;
    if (criu_check(&h->err) < 0)
        return;
    err_set(&h->err, ERR_UNSUPPORTED,
            "Carrel does not support restoring a box with CRIU on this host: its mounts and user "
            "ids are untested");
}

static void criu_known(void *arg) {
    struct hibernating *h = arg;
    err_wrap(&h->err, "cannot hibernate machine '%s'", h->live->row.id);
    err_remedy(&h->err, "pause keeps memory while the host runs; --files-only keeps the files");
    hibernate_refuse(h, &h->err);
}

/* The files are saved as a step, so the processes may end. */
static void hibernate_kept(void *arg, const struct step_row *row, const struct err *err) {
    struct hibernating *h = arg;
    struct live *l = h->live;
    (void)row;
    if (err) {
        hibernate_refuse(h, err);
        return;
    }
    struct journal_record what = verb_record("machine.hibernate", l);
    note_result(l->service, &h->who, &what, h->intent, NULL);
    service_stop(l->service, &h->who, l->row.id, h->done, h->arg);
    live_unref(l);
    free(h);
}

void service_hibernate(struct service *s, const struct caller *who, const char *ref,
                       const struct hibernate_request *r, service_machine_fn *done, void *arg) {
    struct err err;
    uint64_t intent;
    struct live *l =
        allow(who, SCOPE_RUN, &err) < 0 ? NULL : live_find(s, who, ref, LIVE_ANY, &err);
    struct journal_record what =
        l ? verb_record("machine.hibernate", l) : (struct journal_record){0};
    if (!l || note_intent(s, who, &what, &intent, &err) < 0) {
        done(arg, NULL, &err);
        return;
    }
    struct hibernating *h = xnew(struct hibernating);
    *h = (struct hibernating){.live = l, .who = *who, .intent = intent, .done = done, .arg = arg};
    live_ref(l);
    struct step_cause cause = {.kind = STEP_SNAP, .what = "hibernate", .status = -1};
    if (r->files_only)
        steps_take(l, &cause, hibernate_kept, h);
    else
        loop_work(s->loop, ask_criu, criu_known, h);
}
