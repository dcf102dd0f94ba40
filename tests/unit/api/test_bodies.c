/* Bodies of the API: what a request becomes, what is refused, and what an answer looks like. */
#include "tests/unit/unit.h"

#include <jansson.h>

#include "api/bodies.h"
#include "api/body_fields.h"
#include "base/defer.h"
#include "base/wire/changes.h"
#include "service/view.h"
#include "store/execs.h"
#include "store/machines.h"
#include "store/steps.h"

static json_t *json_of(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    return value;
}

static void refused(const struct schema *schema, void *into, const char *text) {
    json_t *body DEFER(json_decrefp) = json_of(text);
    struct err err = {0};
    int r = schema_read(schema, body, into, &err);
    schema_done(schema, into);
    if (r == 0)
        fail_msg("taken: %s", text);
    assert_int_equal(err.code, ERR_INVALID);
}

static void an_exec_request_is_read_into_its_struct(void **state) {
    (void)state;
    json_t *body DEFER(json_decrefp) =
        json_of("{\"argv\":[\"make\",\"test\"],\"env\":{\"A\":\"1\"},\"cwd\":\"/srv\","
                "\"timeout\":\"1m\",\"terminal\":true,\"size\":{\"rows\":50},\"key\":\"k\"}");
    struct exec_request r;
    struct err err = {0};
    assert_int_equal(schema_read(&exec_request_schema, body, &r, &err), 0);
    assert_int_equal(r.argv.count, 2);
    assert_string_equal(r.argv.v[1], "test");
    assert_int_equal(r.env.count, 2);
    assert_string_equal(r.env.v[0], "A");
    assert_string_equal(r.env.v[1], "1");
    assert_string_equal(r.cwd, "/srv");
    assert_true(r.timeout.is);
    assert_int_equal(r.timeout.value, 60000);
    assert_true(r.terminal);
    assert_int_equal(r.pty.rows.value, 50);
    assert_false(r.pty.cols.is);
    assert_string_equal(r.key, "k");
    assert_null(r.command);
    assert_null(r.user);
    assert_false(r.background);
    schema_done(&exec_request_schema, &r);
}

static void sizes_and_times_are_numbers_or_texts(void **state) {
    (void)state;
    static const char *const same[] = {
        "{\"limits\":{\"mem\":67108864,\"cpus\":1.5},\"ttl\":90}",
        "{\"limits\":{\"mem\":\"64M\",\"cpus\":\"1.5\"},\"ttl\":\"90s\"}",
    };
    for (size_t i = 0; i < 2; i++) {
        json_t *body DEFER(json_decrefp) = json_of(same[i]);
        struct machine_request r;
        struct err err = {0};
        if (schema_read(&machine_request_schema, body, &r, &err) < 0)
            fail_msg("%s", err.text);
        assert_int_equal(r.limits.mem.value, 67108864);
        assert_int_equal(r.limits.cpus.value, 1500);
        assert_int_equal(r.ttl.value, 90000);
        assert_false(r.limits.disk.is);
        schema_done(&machine_request_schema, &r);
    }
}

static void requests_that_do_not_fit_their_table_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "[]",
        "null",
        "{\"argv\":\"ls\"}",
        "{\"argv\":[1]}",
        "{\"argv\":[\"ls\"],\"unknown\":1}",
        "{\"terminal\":1}",
        "{\"timeout\":-1}",
        "{\"timeout\":\"soon\"}",
        "{\"size\":{\"rows\":0}}",
        "{\"size\":{\"rows\":1001}}",
        "{\"size\":{\"rows\":2.5}}",
        "{\"size\":[]}",
        "{\"env\":{\"A\":1}}",
        "{\"stdio\":[\"fd\",\"fd\",\"fd\",\"fd\"]}",
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        refused(&exec_request_schema, &(struct exec_request){0}, bad[i]);
    refused(&run_request_schema, &(struct run_request){0},
            "{\"machine\":{}}"); /* exec is required */
    refused(&signal_request_schema, &(struct signal_request){0}, "{}");
}

static json_t *written(const struct schema *schema, const void *view) {
    struct buf text DEFER(buf_done) = BUF(1 << 16);
    struct jot j = JOT(&text);
    schema_write(schema, &j, NULL, view);
    assert_false(j.failed);
    return json_of(text.data);
}

static void an_answer_has_the_fields_of_its_table(void **state) {
    (void)state;
    const struct exec_view view = {.id = "x-1",
                                   .machine = "m-1",
                                   .argv = "[\"ls\"]",
                                   .state = "exited",
                                   .end = EXEC_END_TIMEOUT,
                                   .reason = "timeout",
                                   .status = 124,
                                   .signal = 9,
                                   .started_ms = 1000,
                                   .usage = {.wall_us = 5}};
    json_t *x DEFER(json_decrefp) = written(&exec_schema, &view);
    assert_string_equal(json_string_value(json_object_get(x, "state")), "exited");
    assert_string_equal(json_string_value(json_object_get(x, "reason")), "timeout");
    assert_int_equal(json_integer_value(json_object_get(x, "status")), 124);
    assert_int_equal(json_integer_value(json_object_get(x, "signal")), 9);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(x, "usage"), "wall_us")),
                     5);
    assert_string_equal(json_string_value(json_array_get(json_object_get(x, "argv"), 0)), "ls");
    assert_true(json_is_string(json_object_get(x, "started")));
    assert_null(json_object_get(x, "ended")); /* 0: not yet */
    assert_null(json_object_get(x, "error"));
    assert_null(json_object_get(x, "end")); /* the enum stays inside */
}

static bool has_choice(const struct schema *schema, const char *field, const char *value) {
    const char *const *choice = NULL;
    for (size_t i = 0; i < schema->count; i++)
        if (strcmp(schema->fields[i].name, field) == 0)
            choice = schema->fields[i].choices;
    while (choice && *choice && strcmp(*choice, value) != 0)
        choice++;
    return choice && *choice;
}

static const char *name_of_state(int n) {
    return machine_state_name((enum machine_state)n);
}
static const char *name_of_state_by(int n) {
    return state_by_name((enum state_by)n);
}
static const char *name_of_action(int n) {
    return idle_action_name((enum idle_action)n);
}
static const char *name_of_ttl(int n) {
    return ttl_action_name((enum ttl_action)n);
}
static const char *name_of_policy(int n) {
    return step_policy_name((enum step_policy)n);
}
static const char *name_of_exec(int n) {
    return exec_state_name((enum exec_state)n);
}
static const char *name_of_step(int n) {
    return step_kind_name((enum step_kind)n);
}
static const char *name_of_code(int n) {
    return err_code_name((enum err_code)n);
}
static const char *name_of_change(int n) {
    return change_kind_name((enum change_kind)n);
}
static const char *name_of_content(int n) {
    return change_content_name((enum change_content)n);
}
static const char *name_of_cut(int n) {
    return changes_cut_name((enum changes_cut)n);
}

static void every_state_and_kind_is_a_value_of_its_enum(void **state) {
    static const struct {
        const struct schema *schema;
        const char *field;
        const char *(*name)(int);
        int first, last;
    } rows[] = {
        {&machine_schema, "state", name_of_state, 1, MACHINE_STATE_LAST},
        {&machine_schema, "state_by", name_of_state_by, STATE_BY_IDLE, STATE_BY_LAST},
        {&machine_schema, "idle_action", name_of_action, 1, IDLE_ACTION_LAST},
        {&machine_schema, "on_ttl", name_of_ttl, 0, TTL_ACTION_LAST},
        {&machine_schema, "steps", name_of_policy, 1, STEP_POLICY_LAST},
        {&exec_schema, "state", name_of_exec, 1, EXEC_STATE_LAST},
        {&step_schema, "kind", name_of_step, 1, STEP_FORK},
        {&error_inner_schema, "code", name_of_code, 0, ERR_TIMEOUT},
        {&change_schema, "change", name_of_change, 1, CHANGE_KINDS - 1},
        {&change_schema, "content", name_of_content, 1, CONTENT_KINDS - 1},
        {&diff_schema, "cut", name_of_cut, 1, CUT_KINDS - 1},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++)
        for (int n = rows[i].first; n <= rows[i].last; n++)
            if (!has_choice(rows[i].schema, rows[i].field, rows[i].name(n)))
                fail_msg("%s: '%s' is missing", rows[i].field, rows[i].name(n));
    assert_false(has_choice(&machine_schema, "state", "odd"));
}

UNIT_MAIN(cmocka_unit_test(an_exec_request_is_read_into_its_struct),
          cmocka_unit_test(sizes_and_times_are_numbers_or_texts),
          cmocka_unit_test(requests_that_do_not_fit_their_table_are_refused),
          cmocka_unit_test(an_answer_has_the_fields_of_its_table),
          cmocka_unit_test(every_state_and_kind_is_a_value_of_its_enum))
