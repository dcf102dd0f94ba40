#include "tests/unit/unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/defer.h"
#include "cli/safe.h"

static void shown(bool name, const char *bytes, size_t len, const char *want) {
    char *got DEFER_FREE = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&got, &size);
    if (name)
        safe_name(f, bytes);
    else
        safe_text(f, bytes, len);
    fclose(f);
    assert_string_equal(got, want);
}

static void plain_text_stays(void **state) {
    (void)state;
    shown(true, "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80", 0,
          "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80");
    shown(false, "a\tb\n", 4, "a\tb\n");
}

static void control_characters_are_spelled_out(void **state) {
    (void)state;
    shown(true, "a\nb\t\x1b[2J\x7f\r", 0, "a\\x0ab\\x09\\x1b[2J\\x7f\\x0d");
    shown(false, "a\x1b\r\0b", 5, "a\\x1b\\x0d\\x00b");
    shown(true, "\xc2\x9b", 0, "\\xc2\\x9b");
}

static void direction_marks_are_spelled_out(void **state) {
    (void)state;
    shown(true,
          "\xe2\x80\xae"
          "gnp",
          0, "\\xe2\\x80\\xaegnp");
    shown(true, "\xe2\x81\xa6\xe2\x80\x8f\xd8\x9c", 0, "\\xe2\\x81\\xa6\\xe2\\x80\\x8f\\xd8\\x9c");
}

static void invalid_utf8_is_spelled_out(void **state) {
    (void)state;
    shown(true, "\xff\xc0\x80\xe2\x82z", 0, "\\xff\\xc0\\x80\\xe2\\x82z");
    shown(true, "\xed\xa0\x80", 0, "\\xed\\xa0\\x80");
}

UNIT_MAIN(cmocka_unit_test(plain_text_stays), cmocka_unit_test(control_characters_are_spelled_out),
          cmocka_unit_test(direction_marks_are_spelled_out),
          cmocka_unit_test(invalid_utf8_is_spelled_out))
