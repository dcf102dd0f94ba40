#include "tests/unit/unit.h"

#include "machine/vm/tsc.h"

/* The busy time of the host is in no measurement: both clocks run on. */
static void rate_of_the_counter_is_steady(void **state) {
    (void)state;
    uint32_t first = tsc_khz();
    if (first == 0)
        skip(); /* the processor has no counter */
    for (int i = 0; i < 5; i++) {
        uint32_t next = tsc_khz();
        assert_in_range(next, first - first / 100, first + first / 100);
    }
}

UNIT_MAIN(cmocka_unit_test(rate_of_the_counter_is_steady))
