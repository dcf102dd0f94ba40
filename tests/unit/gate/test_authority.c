#include "tests/unit/unit.h"

#include <openssl/pem.h>

#include "base/defer.h"
#include "gate/authority.h"

static struct err err;

/* One turn of a handshake in memory; 1 when both are done. */
static int shake(SSL *a, SSL *b) {
    for (int i = 0; i < 10; i++) {
        SSL_do_handshake(a);
        SSL_do_handshake(b);
    }
    return SSL_is_init_finished(a) && SSL_is_init_finished(b);
}

static void join(SSL *a, SSL *b) {
    BIO *x, *y;
    assert_int_equal(BIO_new_bio_pair(&x, 65536, &y, 65536), 1);
    SSL_set_bio(a, x, x);
    SSL_set_bio(b, y, y);
}

static SSL_CTX *trusting(struct authority *a) {
    struct buf pem DEFER(buf_done) = BUF(65536);
    SSL_CTX *trust = trust_new("", &err);
    assert_non_null(trust);
    if (a) {
        assert_int_equal(authority_certificate(a, &pem, &err), 0);
        BIO *in = BIO_new_mem_buf(pem.data, -1);
        X509 *c = PEM_read_bio_X509(in, NULL, NULL, NULL);
        assert_non_null(c);
        X509_STORE_add_cert(SSL_CTX_get_cert_store(trust), c);
        X509_free(c);
        BIO_free(in);
    }
    return trust;
}

/* Does a client that trusts `by` accept what the authority says for `served`, wanting `wanted`? */
static int accepts(struct authority *a, struct authority *by, const char *served,
                   const char *wanted, bool is_address) {
    SSL_CTX *trust = trusting(by);
    SSL *server = authority_accept(a, served), *client = trust_connect(trust, wanted, is_address);
    assert_non_null(server);
    assert_non_null(client);
    join(server, client);
    int done = shake(client, server);
    SSL_free(server);
    SSL_free(client);
    SSL_CTX_free(trust);
    return done;
}

static void whoever_trusts_it_accepts_its_names(void **state) {
    (void)state;
    struct authority *a = authority_new("carrel test", &err), *b = authority_new("another", &err);
    assert_non_null(a);
    assert_true(accepts(a, a, "www.example.com", "www.example.com", false));
    assert_true(accepts(a, a, "www.example.com", "www.example.com", false)); /* kept */
    assert_true(accepts(a, a, "203.0.113.7", "203.0.113.7", true));
    assert_false(accepts(a, a, "www.example.com", "other.example.com", false));
    assert_false(accepts(a, b, "www.example.com", "www.example.com", false));
    assert_false(accepts(a, NULL, "www.example.com", "www.example.com", false));
    authority_free(a);
    authority_free(b);
}

static void it_is_the_same_after_it_was_kept(void **state) {
    (void)state;
    struct authority *a = authority_new("carrel test", &err);
    struct buf pem DEFER(buf_done) = BUF(65536), again DEFER(buf_done) = BUF(65536);
    assert_int_equal(authority_write(a, &pem, &err), 0);
    struct authority *back = authority_read(pem.data, &err);
    assert_non_null(back);
    assert_int_equal(authority_write(back, &again, &err), 0);
    assert_string_equal(pem.data, again.data);
    assert_true(accepts(back, a, "www.example.com", "www.example.com", false));
    authority_free(a);
    authority_free(back);
}

static void one_for_a_domain_is_accepted_for_no_other_name(void **state) {
    static const char *const inside[] = {"a.boxes.example.com", "a.b.boxes.example.com",
                                         "a.localhost"};
    static const char *const outside[] = {"example.com", "www.example.com", "xboxes.example.com",
                                          "boxes.example.com.org", "localhosts"};
    (void)state;
    struct authority *a = authority_new_for("boxes.example.com", &err);
    struct authority *any = authority_new("carrel test", &err);
    assert_non_null(a);
    for (size_t i = 0; i < sizeof(inside) / sizeof(*inside); i++)
        assert_true(accepts(a, a, inside[i], inside[i], false));
    for (size_t i = 0; i < sizeof(outside) / sizeof(*outside); i++) {
        assert_true(accepts(any, any, outside[i], outside[i], false));
        assert_false(accepts(a, a, outside[i], outside[i], false));
    }
    assert_false(accepts(a, a, "203.0.113.7", "203.0.113.7", true));
    assert_false(accepts(a, a, "2001:db8::1", "2001:db8::1", true));
    authority_free(any);
    authority_free(a);
}

static void what_is_no_authority_is_refused(void **state) {
    (void)state;
    assert_null(authority_read("", &err));
    assert_null(
        authority_read("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", &err));
    assert_null(trust_new("/nonexistent", &err));
}

static void many_names_keep_a_bounded_number(void **state) {
    (void)state;
    struct authority *a = authority_new("carrel test", &err);
    char name[32];
    for (int i = 0; i < 600; i++) {
        snprintf(name, sizeof(name), "n%d.example", i);
        SSL *ssl = authority_accept(a, name);
        assert_non_null(ssl);
        SSL_free(ssl);
    }
    authority_free(a);
}

UNIT_MAIN(cmocka_unit_test(whoever_trusts_it_accepts_its_names),
          cmocka_unit_test(it_is_the_same_after_it_was_kept),
          cmocka_unit_test(one_for_a_domain_is_accepted_for_no_other_name),
          cmocka_unit_test(what_is_no_authority_is_refused),
          cmocka_unit_test(many_names_keep_a_bounded_number))
