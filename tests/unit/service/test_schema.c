/* Bodies as tables: each kind of field, what is refused, what is written and how it is described.
 */
#include "tests/unit/unit.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/defer.h"
#include "service/schema.h"

#define AT(type, member) offsetof(type, member)

struct point {
    struct given x;
    struct texts labels;
};

struct sample {
    const char *text, *colour;
    bool flag;
    struct given number, size, cpus, money, duration;
    struct texts list, map;
    struct point point;
    struct rows points;
    const json_t *json;
};

static const char *const colours[] = {"red", "green", NULL};

static const struct field point_fields[] = {
    {"x", FIELD_NUMBER, AT(struct point, x), "distance", .required = true, .min = 1, .max = 9},
    {"labels", FIELD_TEXTS, AT(struct point, labels), NULL, .max = 2},
};
static const struct schema point_schema = SCHEMA("Point", struct point, point_fields);

static const struct field sample_fields[] = {
    {"text", FIELD_TEXT, AT(struct sample, text), "a text", .max = 5},
    {"colour", FIELD_TEXT, AT(struct sample, colour), NULL, .choices = colours},
    {"flag", FIELD_FLAG, AT(struct sample, flag), NULL},
    {"number", FIELD_NUMBER, AT(struct sample, number), NULL, .min = 2, .max = 100},
    {"size", FIELD_SIZE, AT(struct sample, size), NULL, .min = 1 << 10},
    {"cpus", FIELD_CPUS, AT(struct sample, cpus), NULL, .min = 10, .max = 4000},
    {"money", FIELD_MONEY, AT(struct sample, money), NULL},
    {"duration", FIELD_DURATION, AT(struct sample, duration), NULL, .max = 600000},
    {"list", FIELD_TEXTS, AT(struct sample, list), NULL, .max = 2},
    {"map", FIELD_MAP, AT(struct sample, map), NULL, .max = 2},
    {"point", FIELD_OBJECT, AT(struct sample, point), NULL, .sub = &point_schema},
    {"points", FIELD_OBJECTS, AT(struct sample, points), NULL, .max = 2, .sub = &point_schema},
    {"json", FIELD_JSON, AT(struct sample, json), NULL},
};
static const struct schema sample_schema = SCHEMA("Sample", struct sample, sample_fields);

static json_t *json_of(const char *text) {
    json_t *value = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!value)
        fail_msg("not JSON: %s", text);
    return value;
}

/* ---- reading ---- */

static void a_body_fills_each_field_in_its_unit(void **state) {
    (void)state;
    json_t *body DEFER(json_decrefp) = json_of(
        "{\"text\":\"hello\",\"colour\":\"green\",\"flag\":true,\"number\":7,\"size\":\"64M\","
        "\"cpus\":1.5,\"money\":\"2.5\",\"duration\":\"5m\",\"list\":[\"a\",\"b\"],"
        "\"map\":{\"A\":\"1\"},\"point\":{\"x\":3,\"labels\":[\"p\"]},"
        "\"points\":[{\"x\":1},{\"x\":9,\"labels\":[\"q\",\"r\"]}],\"json\":[1]}");
    struct sample s;
    struct err err = {0};
    if (schema_read(&sample_schema, body, &s, &err) < 0)
        fail_msg("%s", err.text);
    assert_string_equal(s.text, "hello");
    assert_string_equal(s.colour, "green");
    assert_true(s.flag);
    assert_int_equal(s.number.value, 7);
    assert_int_equal(s.size.value, 64 << 20);
    assert_int_equal(s.cpus.value, 1500);
    assert_int_equal(s.money.value, 2500000);
    assert_int_equal(s.duration.value, 300000);
    assert_int_equal(s.list.count, 2);
    assert_string_equal(s.list.v[1], "b");
    assert_int_equal(s.map.count, 2);
    assert_string_equal(s.map.v[0], "A");
    assert_string_equal(s.map.v[1], "1");
    assert_int_equal(s.point.x.value, 3);
    assert_string_equal(s.point.labels.v[0], "p");
    assert_int_equal(s.points.count, 2);
    const struct point *points = s.points.v;
    assert_int_equal(points[0].x.value, 1);
    assert_int_equal(points[1].x.value, 9);
    assert_string_equal(points[1].labels.v[1], "r");
    assert_int_equal(json_array_size(s.json), 1);
    schema_done(&sample_schema, &s);
}

static void null_is_the_same_as_absent(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "{}", "{\"text\":null,\"flag\":null,\"number\":null,\"list\":null,\"map\":null,"
              "\"point\":null,\"points\":null,\"json\":null}"};
    for (size_t i = 0; i < 2; i++) {
        json_t *body DEFER(json_decrefp) = json_of(bodies[i]);
        struct sample s;
        struct err err = {0};
        memset(&s, 0xff, sizeof(s));
        assert_int_equal(schema_read(&sample_schema, body, &s, &err), 0);
        assert_null(s.text);
        assert_false(s.flag);
        assert_false(s.number.is);
        assert_int_equal(s.list.count, 0);
        assert_int_equal(s.points.count, 0);
        assert_null(s.json);
        schema_done(&sample_schema, &s);
    }
}

static void seconds_may_be_a_number_or_a_text(void **state) {
    (void)state;
    static const struct {
        const char *body;
        uint64_t ms;
    } same[] = {{"{\"duration\":90}", 90000},
                {"{\"duration\":\"90s\"}", 90000},
                {"{\"duration\":0.25}", 250},
                {"{\"duration\":600}", 600000}};
    for (size_t i = 0; i < sizeof(same) / sizeof(*same); i++) {
        json_t *body DEFER(json_decrefp) = json_of(same[i].body);
        struct sample s;
        struct err err = {0};
        assert_int_equal(schema_read(&sample_schema, body, &s, &err), 0);
        assert_true(s.duration.is);
        assert_int_equal(s.duration.value, same[i].ms);
        schema_done(&sample_schema, &s);
    }
}

/* `field`: the path that the message names. What was read before is freed by schema_done(). */
static void a_body_that_does_not_fit_is_refused_with_its_field(void **state) {
    (void)state;
    static const struct {
        const char *body, *field;
    } bad[] = {
        {"{\"text\":1}", "text"},
        {"{\"text\":\"longer\"}", "text"},
        {"{\"text\":\"a\\u0000b\"}", "text"},
        {"{\"colour\":\"blue\"}", "colour"},
        {"{\"flag\":1}", "flag"},
        {"{\"number\":1}", "number"},
        {"{\"number\":101}", "number"},
        {"{\"number\":2.5}", "number"},
        {"{\"number\":-3}", "number"},
        {"{\"number\":\"7\"}", "number"},
        {"{\"number\":1e300}", "number"},
        {"{\"size\":\"64X\"}", "size"},
        {"{\"size\":1023}", "size"},
        {"{\"cpus\":4.001}", "cpus"},
        {"{\"money\":true}", "money"},
        {"{\"duration\":\"11m\"}", "duration"},
        {"{\"list\":\"a\"}", "list"},
        {"{\"list\":[\"a\",1]}", "list"},
        {"{\"list\":[\"a\",\"b\",\"c\"]}", "list"},
        {"{\"map\":[\"a\"]}", "map"},
        {"{\"map\":{\"A\":\"1\",\"B\":2}}", "map.B"},
        {"{\"map\":{\"A\":\"1\",\"B\":\"2\",\"C\":\"3\"}}", "map"},
        {"{\"point\":[]}", "point"},
        {"{\"point\":{}}", "point.x"},
        {"{\"point\":{\"x\":null}}", "point.x"},
        {"{\"point\":{\"x\":10}}", "point.x"},
        {"{\"point\":{\"x\":1,\"y\":2}}", "point.y"},
        {"{\"points\":{}}", "points"},
        {"{\"points\":[{\"x\":1,\"labels\":[\"a\"]},{\"x\":2,\"labels\":[\"b\",3]}]}",
         "points.labels"},
        {"{\"points\":[{\"x\":1},{\"x\":1},{\"x\":1}]}", "points"},
        {"{\"json\":1}", "json"},
        {"{\"list\":[\"a\"],\"map\":{\"A\":\"1\"},\"other\":1}", "other"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        json_t *body DEFER(json_decrefp) = json_of(bad[i].body);
        char quoted[64];
        struct sample s;
        struct err err = {0};
        int r = schema_read(&sample_schema, body, &s, &err);
        schema_done(&sample_schema, &s);
        if (r == 0)
            fail_msg("taken: %s", bad[i].body);
        assert_int_equal(err.code, ERR_INVALID);
        snprintf(quoted, sizeof(quoted), "'%s'", bad[i].field);
        if (!strstr(err.text, quoted))
            fail_msg("%s: %s", bad[i].body, err.text);
    }
}

/* schema_done() frees the arrays of as many rows as are counted. */
static void a_refused_row_is_counted_so_that_its_arrays_are_freed(void **state) {
    (void)state;
    json_t *body DEFER(json_decrefp) =
        json_of("{\"points\":[{\"x\":1},{\"labels\":[\"b\"],\"x\":0}]}");
    struct sample s;
    struct err err = {0};
    assert_int_equal(schema_read(&sample_schema, body, &s, &err), -1);
    assert_int_equal(s.points.count, 2);
    schema_done(&sample_schema, &s);
}

static void a_body_that_is_not_an_object_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"[]", "1", "\"text\"", "null"};
    for (size_t i = 0; i < 4; i++) {
        json_t *body DEFER(json_decrefp) = json_of(bad[i]);
        struct sample s;
        struct err err = {0};
        assert_int_equal(schema_read(&sample_schema, body, &s, &err), -1);
        assert_int_equal(err.code, ERR_INVALID);
        schema_done(&sample_schema, &s);
    }
}

static void an_unknown_field_is_answered_with_the_known_ones(void **state) {
    (void)state;
    json_t *body DEFER(json_decrefp) = json_of("{\"x\":1,\"label\":[]}");
    struct point p;
    struct err err = {0};
    assert_int_equal(schema_read(&point_schema, body, &p, &err), -1);
    assert_non_null(strstr(err.remedy, "x labels"));
    schema_done(&point_schema, &p);
}

/* ---- writing ---- */

struct inner_view {
    uint64_t n;
};

struct view {
    const char *text, *json;
    char chars[8], always[8];
    uint64_t number, time, cpus;
    int64_t balance;
    bool flag;
    struct inner_view inner;
};

static const struct field inner_fields[] = {{"n", SHOW_NUMBER, AT(struct inner_view, n), NULL}};
static const struct schema inner_schema = SCHEMA("Inner", struct inner_view, inner_fields);

static const struct field view_fields[] = {
    {"text", SHOW_TEXT, AT(struct view, text), NULL},
    {"json", SHOW_JSON, AT(struct view, json), NULL},
    {"chars", SHOW_CHARS, AT(struct view, chars), NULL},
    {"always", SHOW_CHARS, AT(struct view, always), NULL, .required = true},
    {"number", SHOW_NUMBER, AT(struct view, number), NULL},
    {"time", SHOW_TIME, AT(struct view, time), NULL},
    {"cpus", SHOW_CPUS, AT(struct view, cpus), NULL},
    {"balance", SHOW_SIGNED, AT(struct view, balance), NULL},
    {"flag", SHOW_FLAG, AT(struct view, flag), NULL},
    {"inner", SHOW_OBJECT, AT(struct view, inner), NULL, .sub = &inner_schema},
};
static const struct schema view_schema = SCHEMA("View", struct view, view_fields);

static void writes(const struct view *v, const char *expected) {
    struct buf text DEFER(buf_done) = BUF(4096);
    struct jot j = JOT(&text);
    schema_write(&view_schema, &j, NULL, v);
    assert_false(j.failed);
    assert_string_equal(text.data, expected);
}

static void a_view_is_written_by_its_table(void **state) {
    (void)state;
    writes(&(struct view){.text = "a \"b\"",
                          .json = "[1,2]",
                          .chars = "c",
                          .always = "d",
                          .number = UINT64_MAX,
                          .time = 1700000000123,
                          .cpus = 1500,
                          .balance = -5,
                          .flag = true,
                          .inner = {7}},
           "{\"text\":\"a \\\"b\\\"\",\"json\":[1,2],\"chars\":\"c\",\"always\":\"d\","
           "\"number\":18446744073709551615,\"time\":\"2023-11-14T22:13:20.123Z\",\"cpus\":1.500,"
           "\"balance\":-5,\"flag\":true,\"inner\":{\"n\":7}}");
}

static void fields_without_a_value_are_left_out_of_a_view(void **state) {
    (void)state;
    writes(&(struct view){.json = ""},
           "{\"always\":\"\",\"number\":0,\"cpus\":0,\"balance\":0,\"flag\":false,"
           "\"inner\":{\"n\":0}}");
}

/* ---- describing ---- */

static json_t *described(const struct schema *schema, bool whole) {
    struct buf text DEFER(buf_done) = BUF(16384);
    struct jot j = JOT(&text);
    if (whole)
        schema_describe_whole(schema, &j, NULL);
    else
        schema_describe(schema, &j, NULL);
    assert_false(j.failed);
    return json_of(text.data);
}

static const json_t *member(const json_t *object, const char *a, const char *b) {
    return json_object_get(json_object_get(object, a), b);
}

static void a_schema_describes_its_fields(void **state) {
    (void)state;
    json_t *d DEFER(json_decrefp) = described(&sample_schema, false);
    assert_string_equal(json_string_value(json_object_get(d, "type")), "object");
    assert_true(json_is_false(json_object_get(d, "additionalProperties")));
    const json_t *fields = json_object_get(d, "properties");
    assert_int_equal(json_object_size(fields), sizeof(sample_fields) / sizeof(*sample_fields));
    assert_int_equal(json_integer_value(member(fields, "text", "maxLength")), 5);
    assert_string_equal(json_string_value(member(fields, "text", "description")), "a text");
    assert_int_equal(json_array_size(member(fields, "colour", "enum")), 2);
    assert_string_equal(json_string_value(member(fields, "number", "type")), "integer");
    assert_int_equal(json_integer_value(member(fields, "number", "minimum")), 2);
    assert_int_equal(json_array_size(member(fields, "size", "type")), 2);
    assert_int_equal(json_integer_value(member(fields, "cpus", "maximum")), 4);
    assert_int_equal(json_integer_value(member(fields, "duration", "maximum")), 600);
    assert_int_equal(json_integer_value(member(fields, "list", "maxItems")), 2);
    assert_int_equal(json_integer_value(member(fields, "map", "maxProperties")), 2);
}

static void a_schema_refers_to_others_or_contains_them(void **state) {
    (void)state;
    json_t *refers DEFER(json_decrefp) = described(&sample_schema, false);
    json_t *whole DEFER(json_decrefp) = described(&sample_schema, true);
    const json_t *point = member(refers, "properties", "point");
    assert_string_equal(json_string_value(json_object_get(point, "$ref")),
                        "#/components/schemas/Point");
    const json_t *points = member(refers, "properties", "points");
    assert_string_equal(json_string_value(member(points, "items", "$ref")),
                        "#/components/schemas/Point");
    point = member(whole, "properties", "point");
    assert_null(json_object_get(point, "$ref"));
    assert_int_equal(json_object_size(json_object_get(point, "properties")), 2);
    const json_t *required = json_object_get(point, "required");
    assert_int_equal(json_array_size(required), 1);
    assert_string_equal(json_string_value(json_array_get(required, 0)), "x");
}

UNIT_MAIN(cmocka_unit_test(a_body_fills_each_field_in_its_unit),
          cmocka_unit_test(null_is_the_same_as_absent),
          cmocka_unit_test(seconds_may_be_a_number_or_a_text),
          cmocka_unit_test(a_body_that_does_not_fit_is_refused_with_its_field),
          cmocka_unit_test(a_refused_row_is_counted_so_that_its_arrays_are_freed),
          cmocka_unit_test(a_body_that_is_not_an_object_is_refused),
          cmocka_unit_test(an_unknown_field_is_answered_with_the_known_ones),
          cmocka_unit_test(a_view_is_written_by_its_table),
          cmocka_unit_test(fields_without_a_value_are_left_out_of_a_view),
          cmocka_unit_test(a_schema_describes_its_fields),
          cmocka_unit_test(a_schema_refers_to_others_or_contains_them))
