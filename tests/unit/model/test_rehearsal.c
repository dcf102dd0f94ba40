/* A model that plays written turns. */
#include "tests/unit/unit.h"

#include "base/defer.h"
#include "model/rehearsal.h"

static const char script[] = "{\"turns\":["
                             "{\"turn\":0,\"say\":\"I "
                             "look.\",\"calls\":[{\"tool\":\"exec\",\"arguments\":{\"cmd\":\"ls\"}}"
                             ",{\"tool\":\"read\",\"raw\":\"{oops\"}]},"
                             "{\"turn\":1,\"failed\":true,\"say\":\"It failed.\"},"
                             "{\"turn\":1,\"after\":\"ok\",\"say\":\"Good.\",\"usage\":{\"in\":7,"
                             "\"out\":3,\"cache_read\":5}},"
                             "{\"turn\":2,\"fault\":{\"kind\":\"status\",\"status\":429,\"retry_"
                             "after_ms\":5,\"times\":2},\"say\":\"At last.\",\"usage\":false},"
                             "{\"after\":\"anything\",\"stop\":\"length\"}]}";

static struct rehearsal *parse(const char *text) {
    struct rehearsal *r = NULL;
    struct err err = {0};
    if (rehearsal_parse(text, strlen(text), &r, &err) < 0)
        fail_msg("%s", err.text);
    return r;
}

static const struct rehearsal_turn *find(const struct rehearsal *r, uint64_t turns,
                                         const char *last, bool failed) {
    struct rehearsal_ask ask = {.turns = turns, .last = last, .n = strlen(last), .failed = failed};
    return rehearsal_find(r, &ask, NULL);
}

static void turns_are_chosen_by_number_and_last_result(void **state) {
    (void)state;
    struct rehearsal *r DEFER(rehearsal_freep) = parse(script);
    assert_int_equal(find(r, 0, "task", false)->calls, 2);
    assert_string_equal(find(r, 1, "exit 1", true)->parts[0].text, "It failed.");
    assert_string_equal(find(r, 1, "all ok", false)->parts[0].text, "Good.");
    assert_int_equal(find(r, 99, "anything goes", false)->stop, MODEL_STOP_LENGTH);
    /* Asked again, the same turn: retries and side requests change nothing. */
    assert_ptr_equal(find(r, 0, "task", false), find(r, 0, "task", false));
}

static void a_missing_turn_is_an_error_that_names_it(void **state) {
    (void)state;
    struct rehearsal *r DEFER(rehearsal_freep) = parse(script);
    struct rehearsal_ask ask = {.turns = 5, .last = "what now", .n = 8};
    struct err err = {0};
    assert_null(rehearsal_find(r, &ask, &err));
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_non_null(strstr(err.text, "turn 5 after 'what now'"));
}

static void an_answer_is_made_of_the_turn(void **state) {
    (void)state;
    struct rehearsal *r DEFER(rehearsal_freep) = parse(script);
    struct model_answer a DEFER(model_answer_done) = {0};
    struct rehearsal_ask ask = {.turns = 0};
    rehearsal_answer(find(r, 0, "", false), &ask, "m", &a);
    assert_int_equal(a.stop, MODEL_STOP_CALLS);
    assert_int_equal(a.count, 3);
    assert_string_equal(a.parts[1].text, "{\"cmd\":\"ls\"}");
    assert_string_equal(a.parts[1].id, "call_0_1");
    assert_null(a.parts[1].bad);
    assert_non_null(a.parts[2].bad);
    assert_true(a.has_usage);
}

static void a_fault_comes_so_often_and_then_no_more(void **state) {
    (void)state;
    struct rehearsal *r DEFER(rehearsal_freep) = parse(script);
    const struct rehearsal_turn *t = find(r, 2, "", false);
    assert_int_equal(rehearsal_fault(r, t), REHEARSAL_STATUS);
    assert_int_equal(rehearsal_fault(r, t), REHEARSAL_STATUS);
    assert_int_equal(rehearsal_fault(r, t), REHEARSAL_FINE);
    assert_int_equal(t->status, 429);
    assert_int_equal(t->retry_after_ms, 5);
    assert_false(t->has_usage);
}

static void what_a_request_is_about_is_its_newest_result(void **state) {
    (void)state;
    const struct model_part task[] = {{.kind = MODEL_TEXT, .text = "do it", .n = 5}};
    const struct model_part call[] = {
        {.kind = MODEL_CALL, .id = "a", .name = "exec", .text = "{}", .n = 2}};
    const struct model_part result[] = {
        {.kind = MODEL_RESULT, .id = "a", .text = "exit 1", .n = 6, .failed = true},
        {.kind = MODEL_TEXT, .text = "time left", .n = 9}};
    const struct model_message m[] = {
        {MODEL_USER, task, 1}, {MODEL_ASSISTANT, call, 1}, {MODEL_USER, result, 2}};
    struct model_request r = {.messages = m, .message_count = 1};
    struct rehearsal_ask ask = rehearsal_read(&r);
    assert_int_equal(ask.turns, 0);
    assert_string_equal(ask.last, "do it");
    r.message_count = 3;
    ask = rehearsal_read(&r);
    assert_int_equal(ask.turns, 1);
    assert_string_equal(ask.last, "exit 1");
    assert_true(ask.failed);
}

static void bad_scripts_are_refused_with_the_turn(void **state) {
    (void)state;
    static const struct {
        const char *text, *why;
    } bad[] = {
        {"", "not JSON"},
        {"[]", "not a JSON object"},
        {"{}", "no turns"},
        {"{\"turns\":[]}", "no turns"},
        {"{\"turn\":[]}", "unknown member 'turn'"},
        {"{\"turns\":[{\"sya\":\"x\"}]}", "turn 0 of the rehearsal script: unknown member 'sya'"},
        {"{\"turns\":[{},{\"turn\":-1}]}", "turn 1 of the rehearsal script: 'turn'"},
        {"{\"turns\":[{\"calls\":[{\"tool\":\"\"}]}]}", "call 0: 'tool'"},
        {"{\"turns\":[{\"calls\":[{\"tool\":\"x\",\"arguments\":[]}]}]}", "'arguments'"},
        {"{\"turns\":[{\"stop\":\"never\"}]}", "'stop' is 'never'"},
        {"{\"turns\":[{\"fault\":{\"kind\":\"fire\"}}]}", "unknown kind"},
        {"{\"turns\":[{\"fault\":{\"kind\":\"status\",\"status\":200}}]}", "must be 400 to 599"},
        {"{\"turns\":[{\"failed\":1}]}", "'failed'"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        struct rehearsal *r = NULL;
        struct err err = {0};
        assert_int_equal(rehearsal_parse(bad[i].text, strlen(bad[i].text), &r, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        if (!strstr(err.text, bad[i].why))
            fail_msg("'%s' does not say '%s'", err.text, bad[i].why);
        assert_null(r);
    }
}

UNIT_MAIN(cmocka_unit_test(turns_are_chosen_by_number_and_last_result),
          cmocka_unit_test(a_missing_turn_is_an_error_that_names_it),
          cmocka_unit_test(an_answer_is_made_of_the_turn),
          cmocka_unit_test(a_fault_comes_so_often_and_then_no_more),
          cmocka_unit_test(what_a_request_is_about_is_its_newest_result),
          cmocka_unit_test(bad_scripts_are_refused_with_the_turn))
