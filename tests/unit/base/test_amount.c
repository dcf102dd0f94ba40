#include "tests/unit/unit.h"

#include "base/amount.h"
#include "base/parse.h"

static void durations_have_two_parts_at_most(void **state) {
    static const struct {
        uint64_t us;
        const char *want;
    } rows[] = {{0, "0s"},
                {1, "1us"},
                {999, "999us"},
                {250000, "250ms"},
                {999999, "999ms"},
                {1000000, "1s"},
                {1500000, "1.5s"},
                {9990000, "9.9s"},
                {45000000, "45s"},
                {60000000, "1m"},
                {61000000, "1m 1s"},
                {5400000000, "1h 30m"},
                {7200000000, "2h"},
                {187200000000, "2d 4h"},
                {315360000000000, "3650d"}};
    char text[AMOUNT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        amount_duration(rows[i].us, text);
        assert_string_equal(text, rows[i].want);
    }
}

static void sizes_have_one_unit_and_at_most_two_decimals(void **state) {
    static const struct {
        uint64_t bytes;
        const char *want;
    } rows[] = {{0, "0"},
                {1, "1B"},
                {1023, "1023B"},
                {1024, "1K"},
                {1536, "1.5K"},
                {1 << 20, "1M"},
                {(4 << 20) - 1, "3.99M"},
                {(1 << 20) + (1 << 18), "1.25M"},
                {(1 << 20) + (1 << 16), "1088K"},
                {1025 << 20, "1025M"},
                {123456789, "117.73M"},
                {24 << 20, "24M"},
                {(24 << 20) - 1, "23.99M"},
                {3ull << 29, "1.5G"},
                {(10ull << 30) + (1ull << 29), "10.5G"},
                {900ull << 40, "900T"},
                {1ull << 40, "1T"},
                {1ull << 50, "1024T"},
                {UINT64_MAX, "16777215.99T"}};
    char text[AMOUNT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        amount_size(rows[i].bytes, text);
        assert_string_equal(text, rows[i].want);
    }
}

static void sizes_are_read_again_as_typed(void **state) {
    static const char *const typed[] = {"512B", "4M",    "1.5G",  "100M",
                                        "16T",  "1.25K", "1025M", "3000K"};
    char text[AMOUNT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(typed) / sizeof(*typed); i++) {
        uint64_t bytes;
        struct err err;
        assert_int_equal(parse_size(typed[i], &bytes, &err), 0);
        amount_size(bytes, text);
        assert_string_equal(text, typed[i]);
    }
}

static void each_unit_has_its_form(void **state) {
    static const struct {
        enum amount_unit unit;
        uint64_t value;
        const char *want;
    } rows[] = {
        {AMOUNT_ONES, 4000000, "4000000"}, {AMOUNT_BYTES, 4 << 20, "4M"},
        {AMOUNT_MILLIS, 10, "0.01"},       {AMOUNT_MILLIS, 1024000, "1024"},
        {AMOUNT_MICROS, 1500000, "1.5"},   {AMOUNT_MICROS, 1ull << 50, "1125899906.842624"},
        {AMOUNT_MILLIS, 9950, "9.95"},     {AMOUNT_MICROS, 0, "0"},
        {AMOUNT_MICROS, 9950000, "9.95"},  {AMOUNT_MICROS, UINT64_MAX, "18446744073709.551615"},
        {AMOUNT_MS, 5400000, "1h 30m"}};
    char text[AMOUNT_SIZE];
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(*rows); i++) {
        amount_show(rows[i].unit, rows[i].value, text);
        assert_string_equal(text, rows[i].want);
    }
}

UNIT_MAIN(cmocka_unit_test(durations_have_two_parts_at_most),
          cmocka_unit_test(sizes_have_one_unit_and_at_most_two_decimals),
          cmocka_unit_test(sizes_are_read_again_as_typed), cmocka_unit_test(each_unit_has_its_form))
