#include "tests/unit/unit.h"

#include "base/hex.h"
#include "base/sha256.h"

static void bytes_become_digits_and_come_back(void **state) {
    (void)state;
    uint8_t bytes[256], back[256];
    char text[2 * sizeof(bytes) + 1];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)i;
    hex_put(bytes, sizeof(bytes), text);
    assert_int_equal(strlen(text), 512);
    assert_int_equal(strncmp(text, "00010203", 8), 0);
    assert_string_equal(text + 504, "fcfdfeff");
    assert_true(hex_read(text, sizeof(back), back));
    assert_memory_equal(back, bytes, sizeof(bytes));
}

static void other_characters_are_refused(void **state) {
    (void)state;
    static const char *const bad[] = {"",   "0",  "0g", "g0", "0A", " 0",
                                      "0x", "+1", "0:", "0/", "0`"};
    uint8_t byte;
    for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
        assert_false(hex_read(bad[i], 1, &byte));
        assert_false(hex_is(bad[i], 2));
    }
    assert_true(hex_is("0f", 2));
    assert_false(hex_is("0f0", 2));
    assert_true(hex_is("", 0));
}

static void a_hash_ends_as_digits(void **state) {
    (void)state;
    char text[SHA256_HEX];
    sha256_hex("abc", 3, text);
    assert_string_equal(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

UNIT_MAIN(cmocka_unit_test(bytes_become_digits_and_come_back),
          cmocka_unit_test(other_characters_are_refused), cmocka_unit_test(a_hash_ends_as_digits))
