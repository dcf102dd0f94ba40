/* The vectors of FIPS 180-4, and that it does not matter how the bytes are cut. */
#include "tests/unit/unit.h"

#include <stdio.h>
#include <string.h>

#include "base/sha256.h"

static void check(const char *text, size_t repeat, size_t step, const char *wanted) {
    struct sha256 s;
    uint8_t hash[SHA256_BYTES];
    char hex[2 * SHA256_BYTES + 1];
    sha256_init(&s);
    for (size_t r = 0; r < repeat; r++)
        for (size_t at = 0, n = strlen(text); at < n; at += step)
            sha256_add(&s, text + at, n - at < step ? n - at : step);
    sha256_end(&s, hash);
    for (size_t i = 0; i < SHA256_BYTES; i++)
        snprintf(hex + 2 * i, 3, "%02x", hash[i]);
    assert_string_equal(hex, wanted);
}

static void known_texts_have_their_hashes(void **state) {
    (void)state;
    check("", 1, 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check("abc", 1, 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1, 56,
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check("aaaaaaaaaa", 100000, 10,
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void pieces_of_any_size_give_the_same(void **state) {
    (void)state;
    char text[300];
    for (size_t i = 0; i < sizeof(text) - 1; i++)
        text[i] = (char)('a' + i % 26);
    text[sizeof(text) - 1] = '\0';
    /* by sha256sum(1) */
    for (size_t step = 1; step < sizeof(text); step++)
        check(text, 1, step, "405aa4b1ec629680563275f821024224d96d97f896ac6a402eb00a1fd6ad9aa7");
}

/* The hash of the hashes of 300 texts, by Python's hashlib. */
static void texts_of_any_length_have_their_hashes(void **state) {
    (void)state;
    uint8_t text[300], hash[SHA256_BYTES];
    struct sha256 all;
    char hex[SHA256_HEX];
    sha256_init(&all);
    for (size_t n = 0; n < sizeof(text); n++) {
        struct sha256 s;
        sha256_init(&s);
        sha256_add(&s, text, n);
        sha256_end(&s, hash);
        sha256_add(&all, hash, sizeof(hash));
        text[n] = (uint8_t)(n * 7);
    }
    sha256_end_hex(&all, hex);
    assert_string_equal(hex, "f65f14b090e805017546322e618401d41f0710c213e013a5131eb38bbe8f367f");
}

UNIT_MAIN(cmocka_unit_test(known_texts_have_their_hashes),
          cmocka_unit_test(texts_of_any_length_have_their_hashes),
          cmocka_unit_test(pieces_of_any_size_give_the_same))
