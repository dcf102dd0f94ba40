#include "tests/unit/unit.h"

#include <stdlib.h>
#include <string.h>

#include "cli/top.h"

/* Rows as the daemon's answers make them; `names` in the order they have now. */
static void fill(struct top *t) {
    static const char *const rows[] = {
        "{\"id\":\"m-1\",\"name\":\"c\",\"created\":\"2020-01-03T00:00:00Z\",\"cpu_percent\":5.0,"
        "\"mem_bytes\":2048,\"disk_bytes\":1}",
        "{\"id\":\"m-2\",\"created\":\"2020-01-01T00:00:00Z\",\"state\":\"stopped\"}",
        "{\"id\":\"m-3\",\"name\":\"a\",\"created\":\"2020-01-02T00:00:00Z\",\"cpu_percent\":50.25,"
        "\"mem_bytes\":1024,\"disk_bytes\":1}",
    };
    *t = (struct top){.rows = calloc(3, sizeof(*t->rows)), .count = 3};
    for (size_t i = 0; i < 3; i++)
        t->rows[i] = json_loads(rows[i], 0, NULL);
}

static void every_order(void **state) {
    (void)state;
    static const struct {
        const char *name, *wanted;
    } cases[] = {{"cpu", "312"}, {"mem", "132"}, {"disk", "312"}, {"age", "231"}, {"name", "312"}};
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        struct top t;
        struct err err;
        enum top_order order;
        fill(&t);
        assert_int_equal(top_order_named(cases[i].name, &order, &err), 0);
        top_sort(&t, order);
        for (size_t k = 0; k < 3; k++)
            assert_int_equal(client_text(t.rows[k], "id")[2], cases[i].wanted[k]);
        top_done(&t);
    }
}

static void an_unknown_order_is_named(void **state) {
    (void)state;
    struct err err;
    enum top_order order;
    assert_int_equal(top_order_named("size", &order, &err), -1);
    assert_non_null(strstr(err.text, "size"));
}

static void assert_cell(const char *row, size_t column, const char *wanted) {
    json_t *json = json_loads(row, 0, NULL);
    assert_non_null(json);
    char *text = top_cell(json, column);
    assert_string_equal(text, wanted);
    free(text);
    json_decref(json);
}

static void cells_are_safe_and_say_what_is_not_known(void **state) {
    (void)state;
    assert_cell("{\"id\":\"m-1\",\"name\":\"a\\u001b[2J\"}", 0, "a\\x1b[2J");
    assert_cell("{\"id\":\"m-\\u0007\"}", 0, "m-\\x07");
    assert_cell("{\"state\":\"run\\nning\"}", 1, "run\\x0aning");
    assert_cell("{}", 2, "-");
    assert_cell("{\"cpu_percent\":99.96}", 2, "100.0%");
    assert_cell("{\"mem_bytes\":1536}", 3, "1.5K");
    assert_cell("{}", 3, "-");
    assert_cell("{\"disk_bytes\":0}", 4, "0B");
    assert_cell("{\"created\":\"soon\"}", 5, "-");
    assert_cell("{\"command\":[\"echo\",\"\\u202ea\",7,\"b\"]}", 6, "echo \\xe2\\x80\\xaea  b");
    assert_cell("{}", 6, "");
}

static void a_summary_adds_up(void **state) {
    (void)state;
    struct top t;
    fill(&t);
    char *text = top_summary(&t);
    assert_string_equal(text, "3 machines, cpu 55.2%, memory 3K");
    free(text);
    top_done(&t);
}

UNIT_MAIN(cmocka_unit_test(every_order), cmocka_unit_test(an_unknown_order_is_named),
          cmocka_unit_test(cells_are_safe_and_say_what_is_not_known),
          cmocka_unit_test(a_summary_adds_up))
