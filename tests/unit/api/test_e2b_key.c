/* Keys of E2B clients: the same bits as a token, in hexadecimal digits. */
#include "tests/unit/unit.h"

#include "api/e2b/key.h"

#define ZEROS5 "00000"
#define ZEROS "00000000000000000000000000000000000000000000000000000000000000000"

static void a_key_spells_the_bits_of_a_token(void **state) {
    (void)state;
    char key[E2B_KEY_SIZE], token[TOKEN_SIZE];
    assert_true(
        e2b_key_from_token("crl_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", key));
    assert_string_equal(key, "e2b_" ZEROS);
    assert_true(
        e2b_key_from_token("crl_b2345677aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa7", key));
    assert_memory_equal(key, "e2b_0eb7cefbff", 14);
    assert_string_equal(key + 4 + 63, "1f");
    assert_true(e2b_key_to_token(key, sizeof(key) - 1, token));
    assert_string_equal(token, "crl_b2345677aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa7");
}

static void every_token_comes_back(void **state) {
    (void)state;
    static const char base32[] = "abcdefghijklmnopqrstuvwxyz234567";
    char key[E2B_KEY_SIZE], token[TOKEN_SIZE] = "crl_", back[TOKEN_SIZE];
    unsigned seed = 1;
    for (int round = 0; round < 1000; round++) {
        for (int i = 4; i < TOKEN_SIZE - 1; i++) {
            seed = seed * 1103515245u + 12345u;
            token[i] = base32[seed >> 16 & 31];
        }
        assert_true(e2b_key_from_token(token, key));
        assert_true(e2b_key_to_token(key, sizeof(key) - 1, back));
        assert_string_equal(back, token);
    }
}

static void other_texts_are_no_keys(void **state) {
    (void)state;
    static const char *const texts[] = {
        "",
        "e2b_",
        "e2b_" ZEROS "0",
        "e2a_" ZEROS,
        "e2b_" ZEROS5,
        "E2B_" ZEROS,
        "e2b_0000000000000000000000000000000000000000000000000000000000000000g",
        "e2b_0000000000000000000000000000000000000000000000000000000000000000A",
        "crl_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    };
    char token[TOKEN_SIZE], key[E2B_KEY_SIZE], hole[E2B_KEY_SIZE] = "e2b_" ZEROS;
    for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
        assert_false(e2b_key_to_token(texts[i], strlen(texts[i]), token));
    hole[30] = '\0';
    assert_false(e2b_key_to_token(hole, sizeof(hole) - 1, token));
    assert_false(e2b_key_from_token("crl_", key));
    assert_false(
        e2b_key_from_token("crl_1aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", key));
    assert_false(
        e2b_key_from_token("abc_aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", key));
}

UNIT_MAIN(cmocka_unit_test(a_key_spells_the_bits_of_a_token),
          cmocka_unit_test(every_token_comes_back), cmocka_unit_test(other_texts_are_no_keys))
