/* The operator's core: what a run is, and what it does next, told from its transcript alone. */
#include "tests/unit/unit.h"

#include <jansson.h>

#include "base/defer.h"
#include "operator/run.h"

/* ---- a run that is driven by hand ---- */

struct play {
    struct run run;
    struct buf text; /* its transcript */
    int64_t now_ms;
    size_t asks;
};

static const struct tool *find(void *arg, const char *name) {
    (void)arg;
    for (size_t i = 0; i < tool_count; i++)
        if (strcmp(tools[i].name, name) == 0)
            return &tools[i];
    return NULL;
}

static const struct run_tools all_tools = {find, NULL, "exec, read"};

static void add(struct play *p, struct run_event e) {
    struct err err = {0};
    e.time_ms = p->now_ms += 10;
    if (run_event_write(&e, &p->text, &err) < 0 || run_take(&p->run, &e, &err) < 0)
        fail_msg("%s", err.text);
}

static void begin(struct play *p, struct run_budget budget, uint64_t window) {
    *p = (struct play){.text = BUF(8 << 20), .now_ms = 1000};
    add(p, (struct run_event){.kind = RUN_START,
                              .run = "r-abcdefghijkl",
                              .owner = "ann",
                              .machine = "m-abcdefghijkl",
                              .task = "do it",
                              .model = "rehearsal/x",
                              .card = "a machine",
                              .window = window,
                              .budget = budget});
}

static void end(struct play *p) {
    run_done(&p->run);
    buf_done(&p->text);
}

static void answer_as(struct play *p, enum run_purpose purpose, const char *tool,
                      const char *arguments, const char *bad) {
    char id[24];
    snprintf(id, sizeof(id), "c%zu", ++p->asks);
    const struct model_part parts[] = {
        {.kind = MODEL_TEXT, .text = "so", .n = 2},
        {.kind = MODEL_CALL,
         .id = id,
         .name = tool,
         .text = arguments,
         .n = arguments ? strlen(arguments) : 0,
         .bad = bad},
    };
    add(p, (struct run_event){.kind = RUN_ANSWER,
                              .purpose = purpose,
                              .stop = tool ? MODEL_STOP_CALLS : MODEL_STOP_DONE,
                              .usage = {.in = 90, .out = 10},
                              .has_usage = true,
                              .request_bytes = 360,
                              .parts = parts,
                              .count = tool ? 2 : 1});
}

static struct run_intent next(struct play *p, struct arena *a) {
    struct run_intent in;
    run_next(&p->run, &all_tools, p->now_ms, a, &in);
    return in;
}

/* Plays until the model, a call or the end is next; marks succeed. */
static struct run_intent settle(struct play *p, struct arena *a) {
    for (;;) {
        struct run_intent in = next(p, a);
        if (in.what == RUN_DO_TELL && in.event.kind != RUN_END) {
            add(p, in.event);
        } else if (in.what == RUN_DO_POINT || in.what == RUN_DO_BACK) {
            struct run_event e = in.event;
            const char *name = arena_copy(a, e.name, strlen(e.name));
            if (!in.begun)
                add(p, e);
            e.name = name;
            e.step = "s-abcdefghijkl";
            add(p, e);
        } else {
            return in;
        }
    }
}

static void result(struct play *p, const char *text, bool failed) {
    add(p, (struct run_event){.kind = RUN_RESULT, .index = 0, .text = text, .failed = failed});
}

/* One turn with one call that is made. */
static void turn(struct play *p, struct arena *a, const char *tool, const char *arguments,
                 const char *text, bool failed) {
    struct run_intent in = settle(p, a);
    assert_int_equal(in.what, RUN_DO_ASK);
    answer_as(p, in.purpose, tool, arguments, NULL);
    in = settle(p, a);
    if (in.what != RUN_DO_CALL)
        return;
    add(p, (struct run_event){.kind = RUN_CALL, .tool = tool, .arguments = arguments});
    result(p, text, failed);
}

static const char done[] = "{\"status\":\"done\",\"summary\":\"s\",\"evidence\":[\"e\"]}";
static const char partial[] = "{\"status\":\"partial\",\"summary\":\"s\",\"open_issues\":[\"o\"]}";

/* ---- ---- */

static void done_is_checked_once_more(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    begin(&p, (struct run_budget){0}, 100000);
    turn(&p, &a, "finish", done, NULL, false);
    assert_int_equal(p.run.checks, 1);
    assert_null(p.run.accepted);
    turn(&p, &a, "exec", "{\"cmd\":\"true\"}", "{\"exit_code\":0}", false);
    turn(&p, &a, "finish", done, NULL, false);
    struct run_intent in = settle(&p, &a);
    assert_int_equal(in.event.kind, RUN_END);
    assert_string_equal(in.event.status, "done");
}

static void a_budget_warns_then_leaves_only_the_report(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    begin(&p, (struct run_budget){.tokens = 1000}, 100000);
    char arguments[40];
    for (int i = 0; i < 9; i++) {
        snprintf(arguments, sizeof(arguments), "{\"cmd\":\"echo %d\"}", i);
        turn(&p, &a, "exec", arguments, arguments, false);
    }
    assert_true(p.run.noted & 1u << RUN_NOTE_WARN_TOKENS);
    assert_false(p.run.noted & 1u << RUN_NOTE_BUDGET);
    turn(&p, &a, "exec", "{\"cmd\":\"x\"}", "y", false);
    struct run_intent in = settle(&p, &a);
    assert_int_equal(in.what, RUN_DO_ASK);
    assert_int_equal(in.purpose, RUN_REPORT);
    answer_as(&p, RUN_REPORT, "exec", "{\"cmd\":\"more\"}", NULL);
    in = settle(&p, &a);
    assert_int_equal(in.event.kind, RUN_END);
    assert_string_equal(in.event.status, "budget");
}

static void stuck_is_a_note_then_a_rewind_then_the_end(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    begin(&p, (struct run_budget){0}, 100000);
    for (int i = 0; i < 9; i++) {
        turn(&p, &a, "exec", "{\"cmd\":\"same\"}", "{\"exit_code\":1,\"wall_ms\":7}", false);
        (void)settle(&p, &a);
        assert_int_equal(p.run.stuck_level, (unsigned)(i + 1) / 3);
        assert_int_equal(p.run.backs, i >= 5);
    }
    struct run_intent in = settle(&p, &a);
    assert_int_equal(in.purpose, RUN_REPORT);
    answer_as(&p, RUN_REPORT, "finish", partial, NULL);
    in = settle(&p, &a);
    assert_string_equal(in.event.status, "stuck");
}

static void three_malformed_answers_end_it(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    begin(&p, (struct run_budget){0}, 100000);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(settle(&p, &a).what, RUN_DO_ASK);
        answer_as(&p, RUN_WORK, "exec", "{oops", "it is not JSON");
    }
    struct run_intent in = settle(&p, &a);
    assert_string_equal(in.event.status, "format_error");
}

static void a_point_comes_before_the_first_change_and_before_risk(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    begin(&p, (struct run_budget){0}, 100000);
    turn(&p, &a, "read", "{\"path\":\"/a\"}", "r", false);
    assert_int_equal(p.run.points, 0);
    turn(&p, &a, "exec", "{\"cmd\":\"echo 1\"}", "1", false);
    assert_int_equal(p.run.points, 1);
    turn(&p, &a, "exec", "{\"cmd\":\"echo 2\"}", "2", false);
    assert_int_equal(p.run.points, 1);
    turn(&p, &a, "exec", "{\"cmd\":\"rm -rf /\"}", "3", false);
    assert_int_equal(p.run.points, 2);
    turn(&p, &a, "exec", "{\"argv\":[\"git\",\"reset\",\"--hard\"]}", "4", false);
    assert_int_equal(p.run.points, 3);
}

/* Every call has its result, and requests of a run share their beginning. */
static void check_pairs(const struct model_request *r) {
    for (size_t i = 0; i < r->message_count; i++) {
        const struct model_message *m = &r->messages[i];
        assert_int_equal(m->role, i % 2 ? MODEL_ASSISTANT : MODEL_USER);
        for (size_t k = 0; m->role == MODEL_ASSISTANT && k < m->count; k++) {
            if (m->parts[k].kind != MODEL_CALL)
                continue;
            bool found = false;
            assert_true(i + 1 < r->message_count);
            const struct model_message *after = &r->messages[i + 1];
            for (size_t n = 0; n < after->count; n++)
                found |= after->parts[n].kind == MODEL_RESULT &&
                         strcmp(after->parts[n].id, m->parts[k].id) == 0;
            assert_true(found);
        }
    }
}

static void long_runs_are_pruned_and_handed_over(void **state) {
    (void)state;
    static char long_text[2001];
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    const struct run_prompt prompt = {.system = "you are"};
    memset(long_text, 'x', 2000);
    begin(&p, (struct run_budget){0}, 4000); /* 16,000 bytes */
    size_t hand_overs = 0, pruned = 0;
    for (int i = 0; i < 60; i++) {
        char arguments[1200];
        snprintf(arguments, sizeof(arguments), "{\"cmd\":\"echo %d %01000d\"}", i, 0);
        struct run_intent in = settle(&p, &a);
        assert_int_equal(in.what, RUN_DO_ASK);
        struct model_request request;
        size_t bytes;
        run_render(&p.run, in.purpose, 10, &prompt, &a, &request, &bytes);
        check_pairs(&request);
        assert_true(bytes < 16000 + 8000);
        hand_overs += in.purpose == RUN_HAND_OVER;
        answer_as(&p, in.purpose, "exec", arguments, NULL);
        if (in.purpose == RUN_HAND_OVER)
            continue;
        if (settle(&p, &a).what != RUN_DO_CALL)
            continue;
        add(&p, (struct run_event){.kind = RUN_CALL, .tool = "exec", .arguments = arguments});
        snprintf(long_text, 12, "%010d", i);
        long_text[10] = 'x';
        result(&p, long_text, false);
        pruned = p.run.prune_before;
    }
    assert_true(hand_overs >= 2);
    assert_true(pruned > 0);
}

/* ---- a transcript that was cut anywhere ---- */

static void fill(struct play *p, struct arena *a) {
    begin(p, (struct run_budget){.turns = 4}, 100000);
    turn(p, a, "exec", "{\"cmd\":\"rm x\"}", "{\"exit_code\":0}", false);
    turn(p, a, "nothing", "{}", NULL, false);
    add(p, (struct run_event){.kind = RUN_STOPPED, .text = "a pause"});
    add(p, (struct run_event){.kind = RUN_RESUME});
    turn(p, a, "write", "{\"path\":\"/a\",\"content\":\"\\u00e9\"}", "{}", false);
    turn(p, a, "finish", partial, NULL, false);
    add(p, settle(p, a).event);
    assert_int_equal(p->run.phase, RUN_ENDED);
}

static void a_cut_transcript_is_the_run_before_the_cut(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    fill(&p, &a);
    size_t lines = 0;
    for (size_t cut = 0; cut <= p.text.len; cut++) {
        struct run r DEFER(run_done) = {0};
        struct err err = {0};
        size_t used = 0;
        lines += cut && p.text.data[cut - 1] == '\n';
        if (run_take_bytes(&r, p.text.data, cut, &used, &err) < 0)
            fail_msg("cut at %zu: %s", cut, err.text);
        assert_int_equal(r.lines, lines);
        assert_true(used <= cut && (!used || p.text.data[used - 1] == '\n'));
        if (!r.lines || r.phase == RUN_ENDED)
            continue;
        struct run_event resume = {.kind = RUN_RESUME, .time_ms = 5};
        struct run_intent in;
        assert_int_equal(run_take(&r, &resume, &err), 0);
        run_next(&r, &all_tools, 2000, &a, &in);
        assert_int_not_equal(in.what, RUN_DO_NOTHING);
        assert_int_not_equal(in.what, RUN_DO_WAIT);
    }
}

static void events_survive_writing_and_reading(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    fill(&p, &a);
    for (const char *at = p.text.data, *stop; *at; at = stop + 1) {
        struct buf again DEFER(buf_done) = BUF(1 << 20);
        struct run_event e;
        struct err err = {0};
        stop = strchr(at, '\n');
        if (run_event_read(at, (size_t)(stop - at), &a, &e, &err) < 0 ||
            run_event_write(&e, &again, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(again.len, stop + 1 - at);
        assert_memory_equal(again.data, at, again.len);
    }
}

static void lines_that_cannot_follow_are_refused(void **state) {
    (void)state;
    struct play p DEFER(end);
    begin(&p, (struct run_budget){0}, 100000);
    const struct run_event wrong[] = {
        {.kind = RUN_RESULT, .index = 0, .text = "x"},
        {.kind = RUN_CALL, .index = 3, .tool = "exec", .arguments = "{}"},
        {.kind = RUN_SURE, .hash = "x"},
        {.kind = RUN_POINT, .name = "n", .step = "s"},
        {.kind = RUN_PRUNE, .before = 900},
        {.kind = RUN_START, .run = "r", .task = "t"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
        struct err err = {0};
        uint64_t lines = p.run.lines;
        assert_int_equal(run_take(&p.run, &wrong[i], &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        assert_int_equal(p.run.lines, lines);
    }
}

/* A call that was answered without being made, as one that nobody allowed, is not made later. */
static void what_has_its_result_is_over(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    struct err err = {0};
    begin(&p, (struct run_budget){0}, 100000);
    answer_as(&p, settle(&p, &a).purpose, "exec", "{}", NULL);
    const struct run_event call = {.kind = RUN_CALL, .tool = "exec", .arguments = "{}"};
    const struct run_event again = {.kind = RUN_RESULT, .text = "x"};
    const struct run_event early = {.kind = RUN_ANSWER, .stop = MODEL_STOP_DONE};
    assert_int_equal(run_take(&p.run, &early, &err), -1);
    result(&p, "refused", true);
    assert_int_equal(run_take(&p.run, &call, &err), -1);
    assert_int_equal(run_take(&p.run, &again, &err), -1);
    assert_int_equal(run_take(&p.run, &early, &err), 0);
}

static void returned_work_goes_on_with_the_comment(void **state) {
    (void)state;
    struct arena a DEFER(arena_done) = {0};
    struct play p DEFER(end);
    begin(&p, (struct run_budget){0}, 100000);
    turn(&p, &a, "finish", partial, NULL, false);
    struct run_intent in = settle(&p, &a);
    assert_int_equal(in.event.kind, RUN_END);
    add(&p, in.event);
    assert_int_equal(next(&p, &a).what, RUN_DO_NOTHING);
    add(&p, (struct run_event){.kind = RUN_RETURN, .text = "once more, please"});
    in = next(&p, &a);
    assert_int_equal(in.what, RUN_DO_ASK);
    struct model_request request;
    size_t bytes;
    const struct run_prompt prompt = {.system = "s"};
    run_render(&p.run, RUN_WORK, 100, &prompt, &a, &request, &bytes);
    const struct model_message *last = &request.messages[request.message_count - 1];
    bool told = false;
    for (size_t i = 0; i < last->count; i++)
        told |= strstr(last->parts[i].text, "once more, please") != NULL;
    assert_true(told);
    turn(&p, &a, "finish", partial, NULL, false);
    assert_int_equal(settle(&p, &a).event.kind, RUN_END);
}

/* What somebody takes to answer is not the run's time. */
static void waiting_costs_nothing(void **state) {
    (void)state;
    struct play p DEFER(end);
    begin(&p, (struct run_budget){.timeout_ms = 1000}, 100000);
    add(&p, (struct run_event){.kind = RUN_HELD, .text = "{}"});
    uint64_t before = p.run.active_ms;
    p.now_ms += 60000;
    assert_int_equal(run_active_ms(&p.run, p.now_ms), before);
    add(&p, (struct run_event){.kind = RUN_FREED});
    assert_int_equal(p.run.active_ms, before);
    p.now_ms += 90;
    assert_int_equal(run_active_ms(&p.run, p.now_ms), before + 90);
}

/* Every line of two tries that may not come there is refused, and the best is the good one that
 * changed least. */
static void of_several_tries_a_good_one_that_changed_little_is_best(void **state) {
    const struct run_event start = {.kind = RUN_START,
                                    .run = "r-aaaaaaaaaaaa",
                                    .owner = "o",
                                    .machine = "",
                                    .task = "t",
                                    .model = "m",
                                    .card = "",
                                    .window = 8000,
                                    .tries = 3};
    static const struct {
        struct run_event e;
        bool fits;
    } rows[] = {{{.kind = RUN_JUDGED}, false},
                {{.kind = RUN_TRY, .machine = "m0", .run = "r0"}, false},
                {{.kind = RUN_TRY, .machine = "m0"}, true},
                {{.kind = RUN_TRY, .machine = "m0"}, false},
                {{.kind = RUN_TRY, .index = 3, .machine = "m3"}, false},
                {{.kind = RUN_TRY, .index = 1, .machine = "m1"}, true},
                {{.kind = RUN_TRY, .index = 2, .machine = "m2"}, true},
                {{.kind = RUN_TRY, .machine = "m1", .run = "r0"}, false},
                {{.kind = RUN_TRY, .machine = "m0", .run = "r0"}, true},
                {{.kind = RUN_TRY, .index = 1, .machine = "m1", .run = "r1"}, true},
                {{.kind = RUN_TRY, .index = 2, .machine = "m2", .run = "r2"}, true},
                {{.kind = RUN_JUDGED, .changes = 1}, true},
                {{.kind = RUN_JUDGED, .changes = 1}, false},
                {{.kind = RUN_JUDGED, .index = 1, .good = true, .changes = 9}, true},
                {{.kind = RUN_JUDGED, .index = 2, .good = true, .changes = 5}, true},
                {{.kind = RUN_CANCEL}, true},
                {{.kind = RUN_CANCEL}, false},
                {{.kind = RUN_RESUME}, true},
                {{.kind = RUN_END, .status = "cancelled", .report = "{}"}, true},
                {{.kind = RUN_RETURN, .text = "once more"}, false}};
    struct run r DEFER(run_done) = {0};
    struct err err;
    (void)state;
    assert_int_equal(run_take(&r, &start, &err), 0);
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        if ((run_take(&r, &rows[i].e, &err) == 0) != rows[i].fits)
            fail_msg("row %zu", i);
    assert_int_equal(run_best_try(&r), 2);
    assert_true(r.cancelling && r.phase == RUN_ENDED);
}

UNIT_MAIN(cmocka_unit_test(of_several_tries_a_good_one_that_changed_little_is_best),
          cmocka_unit_test(returned_work_goes_on_with_the_comment),
          cmocka_unit_test(waiting_costs_nothing), cmocka_unit_test(done_is_checked_once_more),
          cmocka_unit_test(a_budget_warns_then_leaves_only_the_report),
          cmocka_unit_test(stuck_is_a_note_then_a_rewind_then_the_end),
          cmocka_unit_test(three_malformed_answers_end_it),
          cmocka_unit_test(a_point_comes_before_the_first_change_and_before_risk),
          cmocka_unit_test(long_runs_are_pruned_and_handed_over),
          cmocka_unit_test(a_cut_transcript_is_the_run_before_the_cut),
          cmocka_unit_test(events_survive_writing_and_reading),
          cmocka_unit_test(lines_that_cannot_follow_are_refused),
          cmocka_unit_test(what_has_its_result_is_over))
