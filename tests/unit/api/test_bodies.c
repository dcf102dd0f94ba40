/* Bodies of the API: what a request becomes, what is refused, and what an answer looks like. */
#include "tests/unit/unit.h"

#include <jansson.h>

#include "api/bodies.h"
#include "base/defer.h"
#include "service/view.h"

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

UNIT_MAIN(cmocka_unit_test(an_exec_request_is_read_into_its_struct),
          cmocka_unit_test(sizes_and_times_are_numbers_or_texts),
          cmocka_unit_test(requests_that_do_not_fit_their_table_are_refused),
          cmocka_unit_test(an_answer_has_the_fields_of_its_table))
