#include "tests/unit/unit.h"

#include "api/e2b/history.h"

static void add(struct series *s, uint64_t at_ms, uint64_t cpu_ms) {
    series_add(s, 1000, 2, &(struct sample){.at_ms = at_ms, .cpu_us = cpu_ms * 1000});
}

static void the_use_is_that_since_the_sample_before(void **state) {
    (void)state;
    struct series s = {.count = 0};
    add(&s, 2000, 500);  /* of two processors, since the sandbox began at 1000 */
    add(&s, 7000, 5500); /* half of them */
    add(&s, 12000, 5500);
    add(&s, 17000, 1000); /* it was resumed, and the count began again */
    add(&s, 16000, 2000); /* the clock was set back */
    const double used[] = {25, 50, 0, 10, 0};
    assert_int_equal(s.count, 5);
    for (size_t i = 0; i < s.count; i++)
        assert_true(s.samples[i].used_percent > used[i] - 0.01 &&
                    s.samples[i].used_percent < used[i] + 0.01);
    series_done(&s);
}

static void the_oldest_samples_make_room(void **state) {
    (void)state;
    struct series s = {.count = 0};
    for (uint64_t i = 1; i <= SERIES_MAX + 2; i++)
        add(&s, 1000 + i * 5000, i);
    assert_int_equal(s.count, SERIES_MAX);
    assert_int_equal(s.samples[0].at_ms, 1000 + 3 * 5000);
    assert_int_equal(s.samples[SERIES_MAX - 1].at_ms, 1000 + (SERIES_MAX + 2) * 5000);
    series_done(&s);
}

UNIT_MAIN(cmocka_unit_test(the_use_is_that_since_the_sample_before),
          cmocka_unit_test(the_oldest_samples_make_room))
