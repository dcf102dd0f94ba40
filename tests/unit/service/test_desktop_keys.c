#include "tests/unit/unit.h"

#include <string.h>

#include "service/desktop/keys.h"

static void expect_chord(const char *text, size_t count, const uint32_t *keysyms) {
    struct chord c;
    struct err err;
    assert_int_equal(chord_read(text, strlen(text), &c, &err), 0);
    assert_int_equal(c.count, count);
    assert_memory_equal(c.keysyms, keysyms, count * sizeof(*keysyms));
}
#define CHORD(text, ...)                                                     \
    expect_chord(text, sizeof((uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t), \
                 (const uint32_t[]){__VA_ARGS__})

static void expect_unknown(const char *text) {
    struct chord c;
    struct err err;
    assert_int_equal(chord_read(text, strlen(text), &c, &err), -1);
    assert_int_equal(err.code, ERR_INVALID);
}

static void names_of_keys_are_those_of_xdotool(void **state) {
    (void)state;
    CHORD("a", 'a');
    CHORD("Return", 0xff0d);
    CHORD("ENTER", 0xff0d);
    CHORD("ctrl+s", 0xffe3, 's');
    CHORD("ctrl+alt+Delete", 0xffe3, 0xffe9, 0xffff);
    CHORD("Page_Down", 0xff56);
    CHORD("F1", 0xffbe);
    CHORD("f24", 0xffd5);
    CHORD("f", 'f');
    CHORD("\xc3\xbc", 0xfc);
    CHORD("\xe2\x82\xac", 0x010020ac);
}

static void a_plus_is_a_key_too(void **state) {
    (void)state;
    CHORD("+", '+');
    CHORD("ctrl++", 0xffe3, '+');
    CHORD("ctrl+plus", 0xffe3, '+');
    CHORD("++a", '+', 'a');
}

static void a_capital_comes_with_shift(void **state) {
    (void)state;
    CHORD("T", 0xffe1, 'T');
    CHORD("shift+t", 0xffe1, 'T');
    CHORD("ctrl+shift+T", 0xffe3, 0xffe1, 'T');
    CHORD("shift+1", 0xffe1, '1');
}

static void unknown_keys_are_refused(void **state) {
    static const char *const unknown[] = {"",    "ctrl+", "hyper", "f0", "f25",          "F01",
                                          "f1x", "\x1b",  "\xc3",  "ab", "a+b+c+d+e+f+g"};
    (void)state;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(*unknown); i++)
        expect_unknown(unknown[i]);
}

int main(void) {
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_of_keys_are_those_of_xdotool),
        cmocka_unit_test(a_plus_is_a_key_too),
        cmocka_unit_test(a_capital_comes_with_shift),
        cmocka_unit_test(unknown_keys_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
