/* The rate of requests that cost nothing. */
#include "model/free_calls.h"

#include <stdio.h>

#include "tests/unit/unit.h"

static size_t take_many(struct free_calls *c, const char *account, size_t n, uint64_t now_ms) {
    size_t taken = 0;
    for (size_t i = 0; i < n; i++)
        taken += free_calls_take(c, account, now_ms);
    return taken;
}

static void an_account_has_a_burst_and_then_a_rate(void **state) {
    struct free_calls c = {0};
    (void)state;
    assert_int_equal(take_many(&c, "a", 1000, 5000), FREE_CALLS_BURST);
    assert_int_equal(take_many(&c, "a", 1000, 5000), 0);
    assert_int_equal(take_many(&c, "a", 1000, 15000), 10 * FREE_CALLS_PER_S);
    assert_int_equal(take_many(&c, "a", 1000, 4000), 0); /* a clock that goes back adds nothing */
    free_calls_done(&c);
}

static void an_account_takes_nothing_from_another(void **state) {
    struct free_calls c = {0};
    (void)state;
    assert_int_equal(take_many(&c, "a", 1000, 1), FREE_CALLS_BURST);
    assert_int_equal(take_many(&c, "b", 1000, 1), FREE_CALLS_BURST);
    free_calls_done(&c);
}

static void accounts_that_rested_are_forgotten_and_others_are_not(void **state) {
    struct free_calls c = {0};
    char name[24];
    (void)state;
    take_many(&c, "busy", 1000, 1);
    for (size_t i = 0; i < 10000; i++) {
        snprintf(name, sizeof(name), "m-%zu", i);
        assert_true(free_calls_take(&c, name, 1 + i));
    }
    assert_true(c.accounts.count < 1000);
    assert_true(take_many(&c, "busy", 1000, 10001) <= 10 * FREE_CALLS_PER_S);
    free_calls_done(&c);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_account_has_a_burst_and_then_a_rate),
        cmocka_unit_test(an_account_takes_nothing_from_another),
        cmocka_unit_test(accounts_that_rested_are_forgotten_and_others_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
