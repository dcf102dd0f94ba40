#include "tests/unit/unit.h"

#include <unistd.h>

#include "base/clock.h"

static void the_wall_clock_agrees_with_time(void **state) {
    (void)state;
    time_t before = time(NULL);
    int64_t now = wall_ms() / 1000;
    time_t after = time(NULL);
    /* time() may read a coarse clock that is one tick behind. */
    assert_true(now >= (int64_t)before && now <= (int64_t)after + 1);
}

static void monotonic_and_boot_clocks_never_go_back(void **state) {
    (void)state;
    uint64_t us = monotonic_us(), ms = monotonic_ms(), boot = boot_ms();
    for (int i = 0; i < 1000; i++) {
        uint64_t next_us = monotonic_us(), next_ms = monotonic_ms(), next_boot = boot_ms();
        assert_true(next_us >= us && next_ms >= ms && next_boot >= boot);
        us = next_us, ms = next_ms, boot = next_boot;
    }
}

static void milliseconds_are_a_thousandth_of_a_second(void **state) {
    (void)state;
    uint64_t us = monotonic_us(), ms = monotonic_ms(), boot = boot_ms();
    usleep(20000);
    assert_true(monotonic_us() - us >= 20000);
    assert_true(monotonic_ms() - ms >= 19 && boot_ms() - boot >= 19);
}

static void the_boot_clock_counts_sleep_too(void **state) {
    (void)state;
    uint64_t before = monotonic_ms();
    assert_true(boot_ms() >= before);
}

UNIT_MAIN(cmocka_unit_test(the_wall_clock_agrees_with_time),
          cmocka_unit_test(monotonic_and_boot_clocks_never_go_back),
          cmocka_unit_test(milliseconds_are_a_thousandth_of_a_second),
          cmocka_unit_test(the_boot_clock_counts_sleep_too))
