#include "tests/unit/unit.h"

#include "base/buf.h"
#include "base/defer.h"

static void appending_keeps_a_final_nul(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(16);
    assert_true(buf_add(&b, "abc", 3));
    assert_true(buf_addf(&b, "%d", 42));
    assert_string_equal(b.data, "abc42");
    assert_int_equal(b.len, 5);
}

static void past_the_cap_nothing_changes(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(4);
    assert_true(buf_add(&b, "1234", 4));
    assert_false(buf_add(&b, "5", 1));
    assert_false(buf_addf(&b, "x"));
    assert_string_equal(b.data, "1234");
}

static void formatted_text_grows_the_buffer_or_leaves_it(void **state) {
    (void)state;
    char text[300];
    struct buf b DEFER(buf_done) = BUF(400);
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    assert_true(buf_addf(&b, "%d", 7));
    assert_true(buf_addf(&b, "%s", text));
    assert_int_equal(b.len, 300);
    assert_int_equal(strlen(b.data), 300);
    assert_false(buf_addf(&b, "%s", text));     /* more than the room, and more than the limit */
    assert_false(buf_addf(&b, "%.101s", text)); /* less than the room */
    assert_int_equal(b.len, 300);
    assert_int_equal(strlen(b.data), 300);
    assert_true(buf_addf(&b, "%.100s", text));
    assert_int_equal(strlen(b.data), 400);
}

static void taken_bytes_leave_an_empty_buffer(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(16);
    assert_true(buf_add(&b, "abc", 3));
    char *taken DEFER_FREE = buf_take(&b);
    assert_string_equal(taken, "abc");
    assert_int_equal(b.len, 0);
}

static void dropped_bytes_make_way_for_the_rest(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(16);
    buf_drop(&b, 0); /* of nothing, nothing */
    assert_true(buf_add(&b, "abc", 3));
    buf_drop(&b, 2);
    assert_string_equal(b.data, "c");
    buf_drop(&b, 1);
    assert_int_equal(b.len, 0);
    assert_string_equal(b.data, "");
}

UNIT_MAIN(cmocka_unit_test(appending_keeps_a_final_nul),
          cmocka_unit_test(past_the_cap_nothing_changes),
          cmocka_unit_test(formatted_text_grows_the_buffer_or_leaves_it),
          cmocka_unit_test(taken_bytes_leave_an_empty_buffer),
          cmocka_unit_test(dropped_bytes_make_way_for_the_rest))
