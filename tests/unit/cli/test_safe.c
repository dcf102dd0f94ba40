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

/* What was printed to the stream, as a text. */
#define PRINTED(want, call)                     \
    do {                                        \
        char *got DEFER_FREE = NULL;            \
        size_t size = 0;                        \
        FILE *to = open_memstream(&got, &size); \
        call;                                   \
        fclose(to);                             \
        assert_string_equal(got, want);         \
    } while (0)

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

/* Two names that look the same are not the same file. */
static void characters_without_ink_are_spelled_out(void **state) {
    (void)state;
    shown(true, "a\u200bb\u3164\u00ad", 0, "a\\xe2\\x80\\x8bb\\xe3\\x85\\xa4\\xc2\\xad");
    shown(true, "a\u00a0b\ufe0f", 0, "a\\xc2\\xa0b\\xef\\xb8\\x8f");
    shown(true, "\U000e0100", 0, "\\xf3\\xa0\\x84\\x80");
    shown(false, "a\u200b\u2800", 7, "a\\xe2\\x80\\x8b\\xe2\\xa0\\x80");
    PRINTED("\"\\u200b\\udb40\\udd00\"", safe_json(to, "\"\u200b\U000e0100\"", 9));
}

static void spaces_of_other_scripts_stay_in_a_text(void **state) {
    (void)state;
    shown(false, "a\u00a0\u202f\u3000\u26a0\ufe0f", 15, "a\u00a0\u202f\u3000\u26a0\ufe0f");
    shown(true, "a\u00b7b", 0, "a\u00b7b"); /* the daemon's mark for a space */
}

static void invalid_utf8_is_spelled_out(void **state) {
    (void)state;
    shown(true, "\xff\xc0\x80\xe2\x82z", 0, "\\xff\\xc0\\x80\\xe2\\x82z");
    shown(true, "\xed\xa0\x80", 0, "\\xed\\xa0\\x80");
}

static void a_format_is_ours_and_its_texts_are_names(void **state) {
    (void)state;
    PRINTED("\x1b[1m<a\\x0ab\\x1b[2J>\n", fprintf(to, "\x1b[1m<%s>\n", "a\nb\x1b[2J"));
    PRINTED("\\xe2\\x80\\xae|  ab|ab  |a",
            fprintf(to, "%s|%4s|%-4s|%.1s", "\xe2\x80\xae", "ab", "ab", "ab"));
    PRINTED("  abc|ab", fprintf(to, "%*s|%.*s", 5, "abc", 2, "ab\x1b"));
    /* What a precision cuts off is not looked at. */
    const char unended[2] = {'o', 'k'};
    PRINTED("ok", fprintf(to, "%.*s", 2, unended));
    PRINTED("     ok.", fprintf(to, "%*.*s.", 7, 2, unended));
}

static void numbers_are_printed_as_ever(void **state) {
    (void)state;
    PRINTED("-1 2 3 4 5 00ff c % 1.5|  7|7  |+9",
            fprintf(to, "%d %u %ld %lld %zu %04x %c %% %.1f|%3d|%-*d|%+d", -1, 2u, 3l, 4ll,
                    (size_t)5, 255u, 'c', 1.5, 7, 3, 7, 9));
    PRINTED("18446744073709551615 -9223372036854775807",
            fprintf(to, "%llu %lld", ~0ull, -9223372036854775807ll));
}

static void a_text_that_is_not_our_own_keeps_its_lines(void **state) {
    (void)state;
    const char *volatile theirs = "a\n\x1b[2J\tb";
    PRINTED("\x1b[2J", fputs("\x1b[2J", to));
    PRINTED("a\n\\x1b[2J\tb", fputs(theirs, to));
}

static void json_stays_json(void **state) {
    (void)state;
    static const char given[] =
        "{\"a\":\"\xe2\x80\xae caf\xc3\xa9 \xc2\x9b \x7f \xf3\xa0\x80\xa1\"}\n";
    PRINTED("{\"a\":\"\\u202e caf\xc3\xa9 \\u009b \\u007f \\udb40\\udc21\"}\n",
            safe_json(to, given, strlen(given)));
    PRINTED("\"\\ufffd\"", safe_json(to, "\"\xff\"", 3));
}

UNIT_MAIN(cmocka_unit_test(plain_text_stays), cmocka_unit_test(control_characters_are_spelled_out),
          cmocka_unit_test(direction_marks_are_spelled_out),
          cmocka_unit_test(characters_without_ink_are_spelled_out),
          cmocka_unit_test(spaces_of_other_scripts_stay_in_a_text),
          cmocka_unit_test(invalid_utf8_is_spelled_out),
          cmocka_unit_test(a_format_is_ours_and_its_texts_are_names),
          cmocka_unit_test(numbers_are_printed_as_ever),
          cmocka_unit_test(a_text_that_is_not_our_own_keeps_its_lines),
          cmocka_unit_test(json_stays_json))
