/*
 * Property: whatever a transcript holds, taking it ends in a run or a refusal; a run that was taken
 * is a trajectory in JSON, can be resumed, wants something that its own next line allows, and
 * renders to whole pairs.
 */
#include <assert.h>
#include <jansson.h>
#include <string.h>

#include "base/defer.h"
#include "operator/export.h"
#include "operator/run.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const struct tool *find(void *arg, const char *name) {
    (void)arg;
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, name) == 0)
            return &tools[i];
    return NULL;
}

/* A few lines that need nobody but us. */
static void go_on(struct run *r) {
    const struct run_tools may = {find, NULL, "exec"};
    struct err err;
    for (int i = 0; i < 32; i++) {
        struct arena a DEFER(arena_done) = {0};
        struct run_intent in;
        run_next(r, &may, r->last_ms, &a, &in);
        if (in.what == RUN_DO_CALL) {
            const struct run_turn *t = run_turn_now(r);
            assert(in.count && in.first + in.count <= t->call_count);
        }
        if (in.what != RUN_DO_TELL)
            return;
        in.event.time_ms = r->last_ms;
        if (run_take(r, &in.event, &err) < 0)
            return; /* only where a cap is reached */
    }
}

static void render(const struct run *r) {
    struct arena a DEFER(arena_done) = {0};
    const struct run_prompt prompt = {.system = "s"};
    struct model_request request;
    size_t bytes;
    run_render(r, RUN_WORK, 100, &prompt, &a, &request, &bytes);
    assert(request.message_count && request.messages[0].role == MODEL_USER);
    for (size_t i = 1; i < request.message_count; i++)
        assert(request.messages[i].role != request.messages[i - 1].role);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct run r DEFER(run_done) = {0};
    struct err err = {0};
    size_t used = 0;
    if (size > 1 << 20)
        return 0;
    if (run_take_bytes(&r, (const char *)data, size, &used, &err) < 0)
        assert(err.text[0]);
    assert(used <= size);
    if (!r.lines)
        return 0;
    const struct run_event resume = {.kind = RUN_RESUME, .time_ms = r.last_ms};
    if (run_take(&r, &resume, &err) < 0) {
        assert(r.phase == RUN_ENDED);
        return 0;
    }
    struct buf trajectory DEFER(buf_done) = BUF(16 << 20);
    if (run_export((const char *)data, used, &trajectory, &err) == 0) {
        json_t *json = json_loadb(trajectory.data, trajectory.len, 0, NULL);
        assert(json_is_array(json_object_get(json, "steps")));
        json_decref(json);
    }
    render(&r);
    go_on(&r);
    render(&r);
    return 0;
}
