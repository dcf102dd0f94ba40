/* When a machine is idle: what counts as use, and what does not. */
#include "service/idle.h"
#include "tests/unit/unit.h"

enum { MINUTE = 60000 };

/* A minute of that after a minute of rest; how long it has been idle then. */
static uint64_t idle_after(struct idle_sample second) {
    struct idle_state s = {0};
    const struct idle_sample first = {.now_ms = MINUTE, .cpu_us = 100, .io_bytes = 100};
    assert_int_equal(idle_feed(&s, &first), 0); /* the first is no rest: nothing was counted yet */
    second.now_ms = 2 * MINUTE;
    second.cpu_us += first.cpu_us;
    second.io_bytes += first.io_bytes;
    return idle_feed(&s, &second);
}

static void use_of_each_kind_counts(void **state) {
    (void)state;
    assert_int_equal(idle_after((struct idle_sample){0}), MINUTE);
    assert_int_equal(idle_after((struct idle_sample){.commands = 1}), 0);
    assert_int_equal(idle_after((struct idle_sample){.open = 1}), 0);
    assert_int_equal(idle_after((struct idle_sample){.pending = 1}), 0);
    assert_int_equal(idle_after((struct idle_sample){.busy = true}), 0);
}

static void a_murmur_is_rest_and_more_is_not(void **state) {
    (void)state;
    const uint64_t cpu = IDLE_MURMUR_CPU_US * 60, io = IDLE_MURMUR_IO_BYTES * 60;
    assert_int_equal(idle_after((struct idle_sample){.cpu_us = cpu, .io_bytes = io}), MINUTE);
    assert_int_equal(idle_after((struct idle_sample){.cpu_us = cpu + 1}), 0);
    assert_int_equal(idle_after((struct idle_sample){.io_bytes = io + 1}), 0);
}

static void counters_that_went_back_are_no_use(void **state) {
    (void)state;
    struct idle_state s = {0};
    idle_feed(&s, &(struct idle_sample){.now_ms = 1000, .cpu_us = 1 << 30, .io_bytes = 1 << 30});
    assert_int_equal(idle_feed(&s, &(struct idle_sample){.now_ms = 5000}), 4000);
}

static void a_touch_counts_and_never_goes_back(void **state) {
    (void)state;
    struct idle_state s = {0};
    idle_feed(&s, &(struct idle_sample){.now_ms = 1000});
    idle_touch(&s, 3000);
    idle_touch(&s, 2000);
    assert_int_equal(idle_feed(&s, &(struct idle_sample){.now_ms = 5000}), 2000);
}

static void it_is_looked_at_often_enough(void **state) {
    (void)state;
    assert_int_equal(idle_next_ms(1), 200);
    assert_int_equal(idle_next_ms(20000), 2000);
    assert_int_equal(idle_next_ms(3600000), 10000);
}

UNIT_MAIN(cmocka_unit_test(use_of_each_kind_counts),
          cmocka_unit_test(a_murmur_is_rest_and_more_is_not),
          cmocka_unit_test(counters_that_went_back_are_no_use),
          cmocka_unit_test(a_touch_counts_and_never_goes_back),
          cmocka_unit_test(it_is_looked_at_often_enough))
