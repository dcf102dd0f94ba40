#include "tests/unit/unit.h"

#include <string.h>

#include "base/parse.h"

struct row {
    const char *text;
    uint64_t want;
};

typedef int parse_fn(const char *, uint64_t *, struct err *);

static void accepts(parse_fn *parse, const struct row *rows, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t got = 7;
        struct err err;
        if (parse(rows[i].text, &got, &err) < 0)
            fail_msg("'%s': %s", rows[i].text, err.text);
        assert_int_equal(got, rows[i].want);
    }
}

/* Refused, the text is named, and the output is untouched. */
static void refuses(parse_fn *parse, const char *const *texts, size_t count) {
    for (size_t i = 0; i < count; i++) {
        uint64_t got = 7;
        struct err err = {0};
        if (parse(texts[i], &got, &err) == 0)
            fail_msg("'%s' was read as %llu", texts[i], (unsigned long long)got);
        assert_int_equal(got, 7);
        assert_int_equal(err.code, ERR_INVALID);
        assert_non_null(strstr(err.text, texts[i]));
    }
}

#define ROWS(array) array, sizeof(array) / sizeof(*(array))

static void sizes(void **state) {
    (void)state;
    static const struct row good[] = {
        {"0", 0},
        {"1", 1},
        {"512M", 512ull << 20},
        {"1.5G", 3ull << 29},
        {"2GiB", 2ull << 30},
        {"3kb", 3072},
        {"1T", 1ull << 40},
        {"10B", 10},
        {"0.5k", 512},
        {"00012", 12},
    };
    static const char *const bad[] = {
        "",         " 1",  "1 ", "-1", "+1",   "1..5G", "1.G",
        ".5G",      "1.5", "1X", "M",  "0x10", "1e3",   "99999999999999999999",
        "4194305T", "1MM", "nan"};
    accepts(parse_size, ROWS(good));
    refuses(parse_size, ROWS(bad));
}

static void durations(void **state) {
    (void)state;
    static const struct row good[] = {{"10", 10000},  {"10s", 10000},  {"250ms", 250},
                                      {"5m", 300000}, {"2h", 7200000}, {"1d", 86400000},
                                      {"0.3", 300},   {"1.5m", 90000}};
    static const char *const bad[] = {"",    "s",   "1w", "-5s", "1.5ms", "99999999999999999d",
                                      "1 s", "1:30"};
    accepts(parse_duration, ROWS(good));
    refuses(parse_duration, ROWS(bad));
}

static void fractions(void **state) {
    (void)state;
    static const struct row good[] = {{"2", 2000},   {"0.5", 500}, {"1.25", 1250},
                                      {"0.0001", 0}, {"0", 0},     {"1.9999999999", 1999}};
    static const char *const bad[] = {"",   "none", "1,5",      "1.5x",
                                      "-1", "1.",   "infinity", "9999999999999999999"};
    accepts(parse_milli, ROWS(good));
    refuses(parse_milli, ROWS(bad));
}

static void whole_numbers_in_a_range(void **state) {
    (void)state;
    uint64_t n = 7;
    struct err err;
    assert_int_equal(parse_u64("5", 1, 10, &n, &err), 0);
    assert_int_equal(n, 5);
    assert_int_equal(parse_u64("1", 1, 10, &n, &err), 0);
    assert_int_equal(parse_u64("10", 1, 10, &n, &err), 0);
    static const char *const bad[] = {"0", "11", "", "1.0", "5k", "-1", "18446744073709551616"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_int_equal(parse_u64(bad[i], 1, 10, &n, &err), -1);
    assert_int_equal(n, 10);
    assert_int_equal(parse_u64("x", 1, 10, &n, NULL), -1);
}

static void millionths(void **state) {
    (void)state;
    static const struct row good[] = {
        {"0", 0}, {"3", 3000000}, {"0.3", 300000}, {"15.000001", 15000001}, {"1.50", 1500000}};
    static const char *const bad[] = {"-1", "1.", ".5", "1.0000001", "1e6", "1 ", "1M"};
    accepts(parse_micro, ROWS(good));
    refuses(parse_micro, ROWS(bad));
}

/* Sweeps remove what has the number of nobody: a name that only begins with one has none. */
static void numbers_in_names(void **state) {
    static const char *const wrong[] = {"",    "x",   "12x", "x12", "12.new",
                                        "012", "00",  "+1",  "-1",  " 1",
                                        "1 ",  "1.0", "0x1", "1k",  "4294967308"};
    uint64_t n = 7;
    (void)state;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++)
        assert_false(parse_name(wrong[i], UINT32_MAX, &n));
    assert_true(parse_name("0", UINT32_MAX, &n) && n == 0);
    assert_true(parse_name("12", UINT32_MAX, &n) && n == 12);
    assert_true(parse_name("4294967295", UINT32_MAX, &n) && n == UINT32_MAX);
    assert_false(parse_name("4294967296", UINT32_MAX, &n));
}

UNIT_MAIN(cmocka_unit_test(sizes), cmocka_unit_test(durations), cmocka_unit_test(fractions),
          cmocka_unit_test(whole_numbers_in_a_range), cmocka_unit_test(millionths),
          cmocka_unit_test(numbers_in_names))
