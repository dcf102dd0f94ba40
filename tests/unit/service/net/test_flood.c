#include "tests/unit/unit.h"

#include "service/net/flood.h"

static const struct flood_limit limit = {.window_ms = 60000, .most = 10};

/* What is written and what is counted of so many events at one time. */
static uint64_t burst(struct flood *f, unsigned events) {
    uint64_t written = 0;
    for (unsigned i = 0; i < events; i++)
        written += flood_admit(f, &limit);
    return written;
}

static void the_first_ten_are_admitted_and_the_rest_is_counted(void **state) {
    (void)state;
    struct flood f = {.since_ms = 1000};
    assert_int_equal(burst(&f, 10), 10);
    assert_int_equal(f.counted, 0);
    assert_int_equal(burst(&f, 4711), 0);
    assert_int_equal(f.counted, 4711);
}

static void a_window_lasts_its_whole_time(void **state) {
    (void)state;
    struct flood f = {.since_ms = 1000};
    uint64_t counted = 99;
    burst(&f, 15);
    assert_false(flood_turn(&f, &limit, 60999, &counted));
    assert_int_equal(counted, 99);
    assert_int_equal(burst(&f, 1), 0);
    assert_true(flood_turn(&f, &limit, 61000, &counted));
    assert_int_equal(counted, 6);
}

static void a_new_window_admits_again_and_tells_nothing_twice(void **state) {
    (void)state;
    struct flood f = {.since_ms = 1000};
    uint64_t counted;
    burst(&f, 15);
    assert_true(flood_turn(&f, &limit, 70000, &counted));
    assert_int_equal(f.since_ms, 70000);
    assert_int_equal(burst(&f, 12), 10);
    assert_int_equal(flood_take(&f), 2);
    assert_int_equal(flood_take(&f), 0);
    assert_true(flood_turn(&f, &limit, 200000, &counted));
    assert_int_equal(counted, 0);
}

/* A machine that took what was counted at its end does not get a new ration by that. */
static void taking_the_count_does_not_open_the_window(void **state) {
    (void)state;
    struct flood f = {.since_ms = 1000};
    burst(&f, 11);
    assert_int_equal(flood_take(&f), 1);
    assert_int_equal(burst(&f, 5), 0);
}

UNIT_MAIN(cmocka_unit_test(the_first_ten_are_admitted_and_the_rest_is_counted),
          cmocka_unit_test(a_window_lasts_its_whole_time),
          cmocka_unit_test(a_new_window_admits_again_and_tells_nothing_twice),
          cmocka_unit_test(taking_the_count_does_not_open_the_window))
