/* Failed authentications: who guesses must wait, and nobody else. */
#include "tests/unit/unit.h"

#include <stdio.h>

#include "api/e2b/failures.h"

static void add(struct failures *f, const char *peer, unsigned count, uint64_t now_ms) {
    while (count--)
        failures_add(f, peer, now_ms);
}

static void who_fails_often_waits_for_the_end_of_the_period(void **state) {
    (void)state;
    struct failures f = {0};
    add(&f, "192.0.2.1:1", FAILURES_MOST - 1, 1000);
    assert_int_equal(failures_wait_s(&f, "192.0.2.1:2", 1000), 0);
    add(&f, "192.0.2.1:3", 1, 2000);
    assert_int_equal(failures_wait_s(&f, "192.0.2.1:4", 2000), 59);
    assert_int_equal(failures_wait_s(&f, "192.0.2.1:4", 60999), 1);
    assert_int_equal(failures_wait_s(&f, "192.0.2.1:4", 61000), 0);
}

static void others_do_not_wait(void **state) {
    (void)state;
    struct failures f = {0};
    add(&f, "192.0.2.1:1", FAILURES_MOST, 1000);
    add(&f, "uid 1000 pid 7", FAILURES_MOST, 1000);
    add(&f, "[2001:db8::1]:7", FAILURES_MOST, 1000);
    assert_int_equal(failures_wait_s(&f, "192.0.2.11:1", 1000), 0);
    assert_int_equal(failures_wait_s(&f, "[2001:db8::2]:7", 1000), 0);
    assert_int_equal(failures_wait_s(&f, "uid 100 pid 7", 1000), 0);
    assert_int_equal(failures_wait_s(&f, "uid 1000 pid 8", 1000), 60);
    assert_int_equal(failures_wait_s(&f, "[2001:db8::1]:8", 1000), 60);
}

static void many_addresses_replace_the_oldest(void **state) {
    (void)state;
    struct failures f = {0};
    char peer[32];
    for (unsigned i = 0; i <= FAILURES_ROWS; i++) {
        snprintf(peer, sizeof(peer), "192.0.2.%u:1", i);
        add(&f, peer, FAILURES_MOST, 1000 + i);
    }
    assert_int_equal(failures_wait_s(&f, "192.0.2.0:1", 2000), 0);
    assert_true(failures_wait_s(&f, "192.0.2.1:1", 2000) > 0);
    assert_true(failures_wait_s(&f, peer, 2000) > 0);
}

UNIT_MAIN(cmocka_unit_test(who_fails_often_waits_for_the_end_of_the_period),
          cmocka_unit_test(others_do_not_wait), cmocka_unit_test(many_addresses_replace_the_oldest))
