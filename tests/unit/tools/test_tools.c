#include "tests/unit/unit.h"

#include <jansson.h>

#include "base/defer.h"
#include "io/outlog_fd.h"
#include "tools/clip.h"
#include "tools/tool.h"

/* ---- the table ---- */

static void every_row_is_fit_for_a_model(void **state) {
    (void)state;
    for (size_t i = 0; i < tool_count; i++) {
        const struct tool *t = &tools[i];
        assert_true(strlen(t->description) > 40 || strcmp(t->name, "machine_list") == 0);
        assert_true(strlen(t->description) <= TOOL_DESCRIPTION_MAX);
        assert_true(strlen(t->title) > 0 && strlen(t->name) < 32);
        assert_int_equal(strspn(t->name, "abcdefghijklmnopqrstuvwxyz_"), strlen(t->name));
        assert_non_null(t->start);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(t->name, tools[k].name);
        if (t->hints & TOOL_READ_ONLY)
            assert_false(t->hints & TOOL_DESTRUCTIVE);
    }
}

static void schemas_are_json_schemas(void **state) {
    (void)state;
    for (size_t i = 0; i < tool_count; i++) {
        const struct schema *both[] = {tools[i].input, tools[i].output};
        for (size_t k = 0; k < 2; k++) {
            struct buf text DEFER(buf_done) = BUF(1 << 20);
            struct jot j = JOT(&text);
            schema_describe_whole(both[k], &j, NULL);
            json_t *schema = json_loads(text.data, 0, NULL);
            assert_true(json_is_object(schema));
            assert_string_equal(json_string_value(json_object_get(schema, "type")), "object");
            assert_null(strstr(text.data, "$ref"));
            assert_true(json_is_object(json_object_get(schema, "properties")));
            json_decref(schema);
        }
    }
}

/* The rows that act on a machine have its name first, where the caller looks for it. */
static void machines_are_named_where_they_are_looked_for(void **state) {
    (void)state;
    for (size_t i = 0; i < tool_count; i++)
        if (tools[i].hints & TOOL_MACHINE) {
            assert_string_equal(tools[i].input->fields[0].name, "machine");
            assert_int_equal(tools[i].input->fields[0].offset, 0);
        }
}

/* What no tool may be about. */
static void no_tool_widens_anything(void **state) {
    static const char *const words[] = {"grant",  "policy",  "secret", "token", "budget",
                                        "expose", "approve", "ship",   "dir"};
    (void)state;
    for (size_t i = 0; i < tool_count; i++)
        for (size_t w = 0; w < sizeof(words) / sizeof(*words); w++) {
            assert_null(strstr(tools[i].name, words[w]));
            for (size_t f = 0; f < tools[i].input->count; f++) {
                const char *name = tools[i].input->fields[f].name;
                if (strcmp(name, "direction") != 0) /* of scroll */
                    assert_null(strstr(name, words[w]));
            }
        }
}

/* ---- output ---- */

struct tape {
    struct outlog_fd log;
    struct outlog_writer writer;
};

static void tape_open(struct tape *t) {
    const struct outlog_caps caps = OUTLOG_CAPS_TWO;
    assert_int_equal(outlog_fd_make(&t->log, &caps, NULL), 0);
    assert_int_equal(outlog_write(&t->writer, t->log.log.map, outlog_bytes(&caps)), 0);
}

static void tape_put(struct tape *t, const char *text) {
    outlog_put(&t->writer, 0, text, strlen(text));
}

static void short_output_is_whole_and_shown_once(void **state) {
    struct buf out DEFER(buf_done) = BUF(1000), more DEFER(buf_done) = BUF(1000);
    struct tape t;
    uint64_t at = 0;
    (void)state;
    tape_open(&t);
    tape_put(&t, "hello\n");
    assert_int_equal(clip_stream(&t.log.log, 0, &at, 100, &out), 0);
    assert_string_equal(out.data, "hello\n");
    assert_int_equal(at, 6);
    assert_int_equal(clip_stream(&t.log.log, 0, &at, 100, &more), 0);
    assert_int_equal(more.len, 0);
    tape_put(&t, "again\n");
    clip_stream(&t.log.log, 0, &at, 100, &more);
    assert_string_equal(more.data, "again\n");
    outlog_fd_close(&t.log);
}

static void long_output_keeps_both_ends_and_whole_characters(void **state) {
    struct buf out DEFER(buf_done) = BUF(1000);
    struct tape t;
    uint64_t at = 0;
    (void)state;
    tape_open(&t);
    for (int i = 0; i < 100; i++)
        tape_put(&t, "\xc3\xa4"); /* two bytes each: a cut at an odd place splits one */
    assert_int_equal(clip_stream(&t.log.log, 0, &at, 10, &out), 190);
    assert_string_equal(out.data,
                        "\xc3\xa4\xc3\xa4\n[... 190 bytes left out ...]\n\xc3\xa4\xc3\xa4");
    assert_int_equal(at, 200);
    outlog_fd_close(&t.log);
}

static void the_last_line_is_found(void **state) {
    char line[16];
    struct tape t;
    (void)state;
    tape_open(&t);
    clip_last_line(&t.log.log, 0, line, sizeof(line));
    assert_string_equal(line, "");
    tape_put(&t, "first\nsecond line is long\n\n");
    clip_last_line(&t.log.log, 0, line, sizeof(line));
    assert_string_equal(line, "second line is ");
    outlog_fd_close(&t.log);
}

UNIT_MAIN(cmocka_unit_test(every_row_is_fit_for_a_model),
          cmocka_unit_test(schemas_are_json_schemas),
          cmocka_unit_test(machines_are_named_where_they_are_looked_for),
          cmocka_unit_test(no_tool_widens_anything),
          cmocka_unit_test(short_output_is_whole_and_shown_once),
          cmocka_unit_test(long_output_keeps_both_ends_and_whole_characters),
          cmocka_unit_test(the_last_line_is_found))
