#include "tests/unit/unit.h"

#include <string.h>

#include "io/http_range.h"

static struct http_range parse(const char *s) {
    return http_range_parse((struct http_text){s, strlen(s)});
}

static void what_is_no_single_range_is_not_there(void **state) {
    static const char *const wrong[] = {
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=a-b",
        "bytes=1",
        "bytes=2-1",
        "bytes=1-2,3-4",
        "lines=1-2",
        "bytes=1-2 ",
        "bytes= 1-2",
        "bytes=--1",
        "bytes=1--2",
        "bytes=1-2-",
        "bytes=99999999999999999999-",
        "bytes=0-99999999999999999999",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        if (parse(wrong[i]).given)
            fail_msg("'%s' was taken", wrong[i]);
}

static void a_range_is_cut_to_what_there_is(void **state) {
    static const struct {
        const char *text;
        uint64_t size, first, end; /* end 0: not satisfiable */
    } table[] = {
        {"bytes=0-", 10, 0, 10},    {"bytes=0-0", 10, 0, 1},
        {"bytes=9-", 10, 9, 10},    {"bytes=10-", 10, 0, 0},
        {"bytes=3-5", 10, 3, 6},    {"bytes=3-99", 10, 3, 10},
        {"bytes=99-100", 10, 0, 0}, {"bytes=-3", 10, 7, 10},
        {"bytes=-30", 10, 0, 10},   {"bytes=-0", 10, 0, 0},
        {"bytes=0-", 0, 0, 0},      {"bytes=-1", 0, 0, 0},
        {"BYTES=1-1", 10, 1, 2},    {"bytes=0-9223372036854775807", 5, 0, 5},
        {"none", 10, 0, 10},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
        uint64_t first = 77, end = 78;
        struct http_range r = parse(table[i].text);
        bool any = http_range_of(&r, table[i].size, &first, &end);
        assert_int_equal(any, table[i].end > 0);
        assert_int_equal(first, any ? table[i].first : 77);
        assert_int_equal(end, any ? table[i].end : 78);
    }
}

#define CASE(f) cmocka_unit_test(f)
UNIT_MAIN(CASE(what_is_no_single_range_is_not_there), CASE(a_range_is_cut_to_what_there_is))
