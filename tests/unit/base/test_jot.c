#include "tests/unit/unit.h"

#include <string.h>

#include "base/defer.h"
#include "base/jot.h"

static void nested_values_get_their_commas(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(1000);
    struct jot j = JOT(&b);
    jot_object(&j, NULL);
    jot_string(&j, "s", "x");
    jot_array(&j, "a");
    jot_u64(&j, NULL, UINT64_MAX);
    jot_i64(&j, NULL, INT64_MIN);
    jot_object(&j, NULL);
    jot_end(&j, '}');
    jot_null(&j, NULL);
    jot_end(&j, ']');
    jot_bool(&j, "t", true);
    jot_bool(&j, "f", false);
    jot_end(&j, '}');
    assert_false(j.failed);
    assert_string_equal(b.data, "{\"s\":\"x\",\"a\":[18446744073709551615,-9223372036854775808,{},"
                                "null],\"t\":true,\"f\":false}");
}

static void quoted(const char *bytes, size_t len, const char *want) {
    struct buf b DEFER(buf_done) = BUF(1000);
    struct jot j = JOT(&b);
    jot_bytes(&j, NULL, bytes, len);
    assert_string_equal(b.data, want);
}

static void what_json_cannot_hold_is_escaped(void **state) {
    (void)state;
    quoted("a\"b\\c/", 6, "\"a\\\"b\\\\c/\"");
    quoted("\n\t\r\0\x1f\x7f", 6, "\"\\n\\t\\r\\u0000\\u001f\\u007f\"");
    quoted("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", 9, "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"");
}

static void invalid_utf8_becomes_replacement_characters(void **state) {
    (void)state;
    quoted("\xff", 1, "\"\\ufffd\"");
    quoted("\x80z", 2, "\"\\ufffdz\"");
    quoted("\xc0\x80", 2, "\"\\ufffd\\ufffd\"");                       /* overlong */
    quoted("\xe2\x82", 2, "\"\\ufffd\\ufffd\"");                       /* cut short */
    quoted("\xed\xa0\x80", 3, "\"\\ufffd\\ufffd\\ufffd\"");            /* a surrogate */
    quoted("\xf5\x80\x80\x80", 4, "\"\\ufffd\\ufffd\\ufffd\\ufffd\""); /* beyond the last */
}

static void a_full_buffer_fails_and_stays_valid_memory(void **state) {
    (void)state;
    struct buf b DEFER(buf_done) = BUF(10);
    struct jot j = JOT(&b);
    jot_object(&j, NULL);
    jot_string(&j, "name", "a long value that does not fit");
    jot_end(&j, '}');
    assert_true(j.failed);
    assert_true(b.len <= 10);
}

UNIT_MAIN(cmocka_unit_test(nested_values_get_their_commas),
          cmocka_unit_test(what_json_cannot_hold_is_escaped),
          cmocka_unit_test(invalid_utf8_becomes_replacement_characters),
          cmocka_unit_test(a_full_buffer_fails_and_stays_valid_memory))
