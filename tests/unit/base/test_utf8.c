#include "tests/unit/unit.h"

#include <string.h>

#include "base/utf8.h"

static const struct {
    const char *text;
    uint32_t number;
} characters[] = {{"a", 'a'},
                  {"\x7f", 0x7f},
                  {"\xc2\x80", 0x80},
                  {"\xdf\xbf", 0x7ff},
                  {"\xe0\xa0\x80", 0x800},
                  {"\xed\x9f\xbf", 0xd7ff},
                  {"\xee\x80\x80", 0xe000},
                  {"\xef\xbf\xbf", 0xffff},
                  {"\xf0\x90\x80\x80", 0x10000},
                  {"\xf4\x8f\xbf\xbf", 0x10ffff}};
enum { CHARACTERS = sizeof(characters) / sizeof(*characters) };

/* Overlong forms, surrogates, numbers past the last one, and bytes without a first one. */
static const char *const invalid[] = {
    "\x80",         "\xbf",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",
    "\xed\xa0\x80", "\xed\xbf\xbf", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80",
    "\xff",         "\xc2\x41",     "\xe1\x80\x41",     "\xf1\x80\x80\x41"};

static void characters_are_decoded(void **state) {
    (void)state;
    for (size_t i = 0; i < CHARACTERS; i++) {
        uint32_t c = 0;
        size_t n = strlen(characters[i].text);
        assert_int_equal(utf8_decode(characters[i].text, n, &c), n);
        assert_int_equal(c, characters[i].number);
        assert_true(utf8_valid(characters[i].text, n));
    }
}

static void parts_of_characters_are_not_decoded(void **state) {
    (void)state;
    uint32_t c;
    for (size_t i = 0; i < CHARACTERS; i++)
        for (size_t n = 0; n < strlen(characters[i].text); n++)
            assert_int_equal(utf8_decode(characters[i].text, n, &c), 0);
}

static void invalid_bytes_are_not_decoded(void **state) {
    (void)state;
    uint32_t c;
    for (size_t i = 0; i < sizeof(invalid) / sizeof(*invalid); i++) {
        assert_int_equal(utf8_decode(invalid[i], strlen(invalid[i]), &c), 0);
        assert_false(utf8_valid(invalid[i], strlen(invalid[i])));
    }
}

static void cuts_fall_between_characters(void **state) {
    (void)state;
    char text[16];
    for (size_t i = 0; i < CHARACTERS; i++) {
        size_t n = strlen(characters[i].text);
        memcpy(text, "ab", 2);
        memcpy(text + 2, characters[i].text, n);
        for (size_t cut = 1; cut < n; cut++) {
            assert_int_equal(utf8_end(text, 2 + cut), 2);
            assert_int_equal(utf8_begin(text + 2 + cut, n - cut), n - cut);
        }
        assert_int_equal(utf8_end(text, 2 + n), 2 + n);
        assert_int_equal(utf8_begin(text + 2, n), 0);
    }
    assert_int_equal(utf8_end("", 0), 0);
    assert_int_equal(utf8_begin("", 0), 0);
}

/* Bytes that belong to no character are kept: a cut drops three bytes at most. */
static void cuts_of_other_bytes_drop_little(void **state) {
    (void)state;
    static const char bytes[] = "\x80\x80\x80\x80\x80\x80";
    assert_int_equal(utf8_end(bytes, 6), 6);
    assert_int_equal(utf8_begin(bytes, 6), 3);
}

UNIT_MAIN(cmocka_unit_test(characters_are_decoded),
          cmocka_unit_test(parts_of_characters_are_not_decoded),
          cmocka_unit_test(invalid_bytes_are_not_decoded),
          cmocka_unit_test(cuts_fall_between_characters),
          cmocka_unit_test(cuts_of_other_bytes_drop_little))
