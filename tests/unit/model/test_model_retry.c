/* When a call is tried again. */
#include "tests/unit/unit.h"

#include "model/retry.h"

static void what_the_provider_says_is_obeyed(void **state) {
    (void)state;
    uint64_t ms = 0;
    const int64_t now = 1700000000; /* Tue, 14 Nov 2023 22:13:20 GMT */
    assert_true(model_retry_after("250", "9", now, &ms));
    assert_int_equal(ms, 250);
    assert_true(model_retry_after(NULL, "2", now, &ms));
    assert_int_equal(ms, 2000);
    assert_true(model_retry_after("0", "1.5", now, &ms));
    assert_int_equal(ms, 1500);
    assert_true(model_retry_after(NULL, "Tue, 14 Nov 2023 22:13:50 GMT", now, &ms));
    assert_int_equal(ms, 30000);
    assert_true(model_retry_after(NULL, "99999999", now, &ms));
    assert_int_equal(ms, 86400000);
}

static void what_cannot_be_used_is_left_to_the_back_off(void **state) {
    (void)state;
    static const char *const bad[] = {NULL,
                                      "",
                                      "0",
                                      "-1",
                                      "soon",
                                      "Tue, 14 Nov 2023 22:13:10 GMT",
                                      "Tue, 14 Nov 2023 22:13:50 GMT+1"};
    uint64_t ms;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
        assert_false(model_retry_after(NULL, bad[i], 1700000000, &ms));
}

static void the_back_off_doubles_to_a_minute_and_jitters_downwards(void **state) {
    (void)state;
    assert_int_equal(model_back_off(1, 500, 0), 500);
    assert_int_equal(model_back_off(3, 500, 0), 2000);
    assert_int_equal(model_back_off(30, 500, 0), 60000);
    assert_int_equal(model_back_off(3, 500, UINT32_MAX), 1500);
    for (uint32_t r = 0; r < UINT32_MAX - 99999999; r += 99999999) {
        uint64_t wait = model_back_off(2, 500, r);
        assert_true(wait >= 750 && wait <= 1000);
    }
}

UNIT_MAIN(cmocka_unit_test(what_the_provider_says_is_obeyed),
          cmocka_unit_test(what_cannot_be_used_is_left_to_the_back_off),
          cmocka_unit_test(the_back_off_doubles_to_a_minute_and_jitters_downwards))
