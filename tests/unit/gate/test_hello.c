#include "tests/unit/unit.h"

#include <openssl/ssl.h>

#include "gate/hello.h"

static uint8_t real[HELLO_MAX];
static size_t real_n;

/* What OpenSSL itself sends. */
static void make_hello(const char *name) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    SSL *ssl = SSL_new(ctx);
    BIO *out = BIO_new(BIO_s_mem()), *in = BIO_new(BIO_s_mem());
    static const uint8_t protocols[] = "\x02h2\x08http/1.1";
    SSL_set_bio(ssl, in, out);
    SSL_set_alpn_protos(ssl, protocols, sizeof(protocols) - 1);
    if (name)
        SSL_set_tlsext_host_name(ssl, name);
    SSL_connect(ssl);
    real_n = (size_t)BIO_read(out, real, sizeof(real));
    SSL_free(ssl);
    SSL_CTX_free(ctx);
}

static void the_name_is_found_wherever_the_bytes_are_cut(void **state) {
    (void)state;
    struct hello h;
    make_hello("Www.Example.com");
    for (size_t n = 0; n < real_n; n++)
        assert_int_equal(hello_read(real, n, &h), HELLO_MORE);
    assert_int_equal(hello_read(real, real_n, &h), HELLO_NAMED);
    assert_string_equal(h.name, "www.example.com");
    assert_true(h.offers_h2);
}

/* The same handshake in records of so many bytes. */
static size_t cut_into_records(size_t each, uint8_t *to) {
    size_t n = 0;
    for (size_t at = 5; at < real_n; at += each) {
        size_t part = real_n - at < each ? real_n - at : each;
        const uint8_t head[] = {22, 3, 1, (uint8_t)(part >> 8), (uint8_t)part};
        memcpy(to + n, head, 5);
        memcpy(to + n + 5, real + at, part);
        n += 5 + part;
    }
    return n;
}

static void records_may_be_of_any_size(void **state) {
    (void)state;
    static uint8_t cut[HELLO_MAX];
    struct hello h;
    make_hello("www.example.com");
    for (size_t each = 1; each < real_n; each++) {
        size_t n = cut_into_records(each, cut);
        assert_int_equal(hello_read(cut, n - 1, &h), HELLO_MORE);
        assert_int_equal(hello_read(cut, n, &h), HELLO_NAMED);
        assert_string_equal(h.name, "www.example.com");
    }
}

static void a_hello_may_have_no_name(void **state) {
    (void)state;
    struct hello h;
    make_hello(NULL);
    assert_int_equal(hello_read(real, real_n, &h), HELLO_UNNAMED);
    assert_string_equal(h.name, "");
}

static void other_bytes_are_not_tls(void **state) {
    (void)state;
    struct hello h;
    assert_int_equal(hello_read((const uint8_t *)"GET / HTTP/1.1\r\n", 16, &h), HELLO_NOT_TLS);
    assert_int_equal(hello_read((const uint8_t *)"\x16\x02", 2, &h), HELLO_NOT_TLS);
    assert_int_equal(hello_read((const uint8_t *)"", 0, &h), HELLO_MORE);
    assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\x00\x00", 5, &h), HELLO_BAD);
    assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\x00\x05\x02", 6, &h), HELLO_BAD);
    assert_int_equal(hello_read((const uint8_t *)"\x16\x03\x01\xff\xff", 5, &h), HELLO_BAD);
}

/* A small hello with these extensions. */
static enum hello_verdict with_extensions(const char *ext, size_t n, struct hello *h) {
    uint8_t m[512] = {22, 3, 1, 0, 0, 1, 0, 0, 0, 3, 3};
    size_t at = 5 + 4 + 2 + 32;
    const uint8_t middle[] = {0, 0, 2, 0x13, 1, 1, 0, (uint8_t)(n >> 8), (uint8_t)n};
    memcpy(m + at, middle, sizeof(middle));
    at += sizeof(middle);
    memcpy(m + at, ext, n);
    at += n;
    m[3] = (uint8_t)((at - 5) >> 8);
    m[4] = (uint8_t)(at - 5);
    m[7] = (uint8_t)((at - 9) >> 8);
    m[8] = (uint8_t)(at - 9);
    return hello_read(m, at, h);
}

#define WITH(ext) with_extensions(ext, sizeof(ext) - 1, &h)
#define NAME "\0\0\0\x06\0\4\0\0\1"

static void names_that_deceive_are_bad(void **state) {
    (void)state;
    struct hello h;
    assert_int_equal(WITH(NAME "a"), HELLO_NAMED);
    assert_string_equal(h.name, "a");
    assert_int_equal(WITH(NAME "a" NAME "b"), HELLO_BAD);
    assert_string_equal(h.name, ""); /* nobody may judge by half of it */
    assert_int_equal(WITH(NAME "\n"), HELLO_BAD);
    assert_int_equal(WITH(NAME "\0"), HELLO_BAD);
    assert_int_equal(WITH(NAME "."), HELLO_BAD);
    assert_int_equal(WITH(NAME "1"), HELLO_BAD);
    assert_int_equal(WITH("\0\0\0\x0a\0\x08\0\0\1a\0\0\1b"), HELLO_BAD); /* two in one list */
    assert_int_equal(WITH("\0\0\0\x06\0\4\1\0\1a"), HELLO_BAD);          /* of another type */
    assert_int_equal(WITH("\0\0\0\x07\0\4\0\0\1a\0"), HELLO_BAD);
    assert_int_equal(WITH("\0\0\0\0"), HELLO_BAD);
    assert_int_equal(WITH("\0\0\0\x06\0\4\0\0\1"), HELLO_BAD);
    assert_int_equal(WITH(""), HELLO_UNNAMED);
}

static void a_hello_has_a_largest_size(void **state) {
    (void)state;
    static uint8_t large[HELLO_MAX + 64];
    struct hello h;
    memcpy(large, "\x16\x03\x01\x40\x00\x01\x00\x40\x00", 9);
    assert_int_equal(hello_read(large, 9, &h), HELLO_BAD);
    memcpy(large, "\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb", 9);
    assert_int_equal(hello_read(large, 9, &h), HELLO_MORE);
}

UNIT_MAIN(cmocka_unit_test(the_name_is_found_wherever_the_bytes_are_cut),
          cmocka_unit_test(records_may_be_of_any_size), cmocka_unit_test(a_hello_may_have_no_name),
          cmocka_unit_test(other_bytes_are_not_tls), cmocka_unit_test(names_that_deceive_are_bad),
          cmocka_unit_test(a_hello_has_a_largest_size))
