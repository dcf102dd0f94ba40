#include "tests/unit/unit.h"

#include "base/amount.h"

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

UNIT_MAIN(cmocka_unit_test(durations_have_two_parts_at_most))
