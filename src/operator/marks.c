/* Checkpoints and rewinds that the run makes itself, with the same tools as the model. */
#include <string.h>

#include "base/defer.h"
#include "operator/inner.h"
#include "service/runs.h"

static struct run_record marks_record_of(const struct live_run *l) {
    return (struct run_record){l->is_back ? "run.rewind" : "run.checkpoint", l->run.start.machine,
                               NULL};
}

static const struct run_mark *mark_of(const struct live_run *l) {
    return l->is_back ? &l->run.back : &l->run.point;
}

static void marked(void *arg, const struct act_result *result) {
    struct live_run *l = arg;
    json_t *out = result->err ? NULL : json_loads(result->json, 0, NULL);
    const char *reason = json_string_value(json_object_get(out, "reason"));
    bool there = out && json_is_true(json_object_get(out, "restorable"));
    struct run_event e = {.kind = l->is_back ? RUN_BACK : RUN_POINT, .name = mark_of(l)->name};
    if (result->err)
        e.text = result->err->text;
    else if (!there)
        e.text = reason ? reason : "the checkpoint cannot be restored";
    else
        e.step = json_string_value(json_object_get(out, "step"));
    struct run_record what = marks_record_of(l);
    service_run_result(l->runs->service, &l->who, &what, l->mark_intent, e.text);
    l->mark = NULL;
    l->marking = false;
    (void)live_add(l, &e);
    json_decref(out);
    live_again(l);
}

static void marks_flushed(struct live_run *l) {
    const struct run_mark *m = mark_of(l);
    const struct tool *t = tool_find(l->box, l->is_back ? "rewind" : "checkpoint");
    if (l->broken || l->run.phase != RUN_RUNNING) {
        l->marking = false;
        live_again(l);
        return;
    }
    const struct act_events events = {
        .arg = l, .again = m->recover, .since_ms = m->begun_ms, .done = marked};
    json_t *arguments = json_pack("{s:s}", l->is_back ? "to" : "name", m->name);
    struct act *act = act_start(l->box, t, arguments, &events);
    if (act)
        l->mark = act;
    json_decref(arguments);
}

void mark_start(struct live_run *l, const struct run_intent *in) {
    struct run_event e = in->event;
    struct err err;
    l->is_back = in->what == RUN_DO_BACK;
    struct run_record what = marks_record_of(l);
    if (!in->begun && live_add(l, &e) < 0)
        return;
    if (service_run_intent(l->runs->service, &l->who, &what, &l->mark_intent, &err) < 0) {
        l->broke = err;
        l->broken = true;
        live_again(l);
        return;
    }
    l->marking = true;
    live_flush(l, marks_flushed);
}
