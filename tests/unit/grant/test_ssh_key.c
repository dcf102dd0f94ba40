#include "tests/unit/unit.h"

#include <openssl/evp.h>

#include "base/defer.h"
#include "grant/ssh_key.h"

/* The first key of RFC 8032, 7.1. */
static const uint8_t seed[SSH_SEED] = {
    0x9d, 0x61, 0xb1, 0x9d, 0xef, 0xfd, 0x5a, 0x60, 0xba, 0x84, 0x4a, 0xf4, 0x92, 0xec, 0x2c, 0xc4,
    0x44, 0x49, 0xc5, 0x69, 0x7b, 0x32, 0x69, 0x19, 0x70, 0x3b, 0xac, 0x03, 0x1c, 0xae, 0x7f, 0x60};
static const uint8_t public[SSH_SEED] = {
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};

static size_t decode(const char *text, size_t n, uint8_t *ret) {
    int got = EVP_DecodeBlock(ret, (const uint8_t *)text, (int)n);
    assert_true(got > 0);
    return (size_t)got;
}

static void the_public_half_is_the_one_that_belongs_to_it(void **state) {
    struct buf text DEFER(buf_done) = BUF(SSH_FILE_MAX);
    uint8_t wire[256];
    struct err err;
    (void)state;
    assert_int_equal(ssh_key_public(seed, "robin@example.com", &text, &err), 0);
    assert_memory_equal(text.data, "ssh-ed25519 ", 12);
    const char *end = strchr(text.data + 12, ' ');
    assert_string_equal(end, " robin@example.com");
    decode(text.data + 12, (size_t)(end - text.data - 12), wire);
    assert_memory_equal(wire, "\0\0\0\13ssh-ed25519\0\0\0 ", 19);
    assert_memory_equal(wire + 19, public, SSH_SEED);
}

static void the_private_half_holds_both_and_is_padded(void **state) {
    struct buf text DEFER(buf_done) = BUF(SSH_FILE_MAX);
    char flat[SSH_FILE_MAX];
    uint8_t wire[SSH_FILE_MAX];
    size_t n = 0, padded;
    struct err err;
    (void)state;
    assert_int_equal(ssh_key_private(seed, "robin", &text, &err), 0);
    const char *at = strchr(text.data, '\n') + 1, *end = strstr(at, "-----END");
    for (; at < end; at++)
        if (*at != '\n')
            flat[n++] = *at;
    padded = decode(flat, n, wire);
    while (n && flat[n - 1] == '=') {
        n--;
        padded--;
    }
    assert_memory_equal(wire, "openssh-key-v1\0\0\0\0\4none\0\0\0\4none", 31);
    uint8_t *found = memmem(wire, padded, seed, SSH_SEED);
    assert_non_null(found);
    assert_memory_equal(found + SSH_SEED, public, SSH_SEED);
    assert_memory_equal(found + 2 * SSH_SEED, "\0\0\0\5robin", 9);
    /* What is behind the name counts from 1. */
    size_t left = (size_t)(wire + padded - (found + 2 * SSH_SEED + 9));
    for (size_t i = 0; i < left; i++)
        assert_int_equal(found[2 * SSH_SEED + 9 + i], i + 1);
    assert_true(left < 8);
}

static void two_keys_are_two_and_a_name_is_one_line(void **state) {
    uint8_t one[SSH_SEED], two[SSH_SEED];
    struct buf text DEFER(buf_done) = BUF(SSH_FILE_MAX);
    struct err err;
    (void)state;
    assert_int_equal(ssh_key_new(one, &err), 0);
    assert_int_equal(ssh_key_new(two, &err), 0);
    assert_memory_not_equal(one, two, SSH_SEED);
    assert_int_equal(ssh_key_public(seed, "a\nssh-ed25519 x", &text, &err), -1);
    assert_int_equal(ssh_key_private(seed, "a\rb", &text, &err), -1);
    assert_int_equal(text.len, 0);
}

UNIT_MAIN(cmocka_unit_test(the_public_half_is_the_one_that_belongs_to_it),
          cmocka_unit_test(the_private_half_holds_both_and_is_padded),
          cmocka_unit_test(two_keys_are_two_and_a_name_is_one_line))
