/*
 * A key store contains: magic, version, count; for each certificate its kind, alias, time, type and
 * DER bytes; a SHA-1 over all of it and Java's default password. Numbers are big-endian.
 */
#include "gate/java_store.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <string.h>

#include "base/defer.h"

enum { MAGIC = 0xfeedfeedu, VERSION = 2, TRUSTED = 2, COUNT_AT = 8, DIGEST = 20 };

static void bio_freep(BIO **b) {
    BIO_free(*b);
}

static void x509_freep(X509 **x) {
    X509_free(*x);
}

static bool java_store_put_number(struct buf *b, uint64_t value, size_t bytes) {
    unsigned char raw[8];
    for (size_t i = 0; i < bytes; i++)
        raw[i] = (unsigned char)(value >> 8 * (bytes - 1 - i));
    return buf_add(b, raw, bytes);
}

static bool java_store_put_text(struct buf *b, const char *text) {
    return java_store_put_number(b, strlen(text), 2) && buf_add(b, text, strlen(text));
}

static bool put_certificate(struct buf *b, X509 *x, uint32_t number) {
    char alias[24];
    unsigned char *der = NULL;
    int n = i2d_X509(x, &der);
    snprintf(alias, sizeof(alias), "carrel-%u", number);
    bool ok = n > 0 && java_store_put_number(b, TRUSTED, 4) && java_store_put_text(b, alias) &&
              java_store_put_number(b, 0, 8) && java_store_put_text(b, "X.509") &&
              java_store_put_number(b, (uint64_t)n, 4) && buf_add(b, der, (size_t)n);
    OPENSSL_free(der);
    return ok;
}

/* The format hashes the password "changeit" in UTF-16, a fixed phrase, and then the bytes. */
static bool put_digest(struct buf *b) {
    static const char password[] = "\0c\0h\0a\0n\0g\0e\0i\0t", phrase[] = "Mighty Aphrodite";
    unsigned char digest[DIGEST];
    EVP_MD_CTX *c = EVP_MD_CTX_new();
    bool ok = c && EVP_DigestInit_ex(c, EVP_sha1(), NULL) == 1 &&
              EVP_DigestUpdate(c, password, sizeof(password) - 1) == 1 &&
              EVP_DigestUpdate(c, phrase, sizeof(phrase) - 1) == 1 &&
              EVP_DigestUpdate(c, b->data, b->len) == 1 &&
              EVP_DigestFinal_ex(c, digest, NULL) == 1 && buf_add(b, digest, sizeof(digest));
    EVP_MD_CTX_free(c);
    return ok;
}

int java_store(const char *pem, size_t n, struct buf *ret, struct err *err) {
    BIO *bio DEFER(bio_freep) = BIO_new_mem_buf(pem, (int)n);
    uint32_t count = 0;
    bool ok = bio && java_store_put_number(ret, MAGIC, 4) &&
              java_store_put_number(ret, VERSION, 4) && java_store_put_number(ret, 0, 4);
    while (ok) {
        X509 *x DEFER(x509_freep) = PEM_read_bio_X509(bio, NULL, NULL, NULL);
        if (!x)
            break;
        ok = put_certificate(ret, x, ++count);
    }
    for (size_t i = 0; ok && i < 4; i++)
        ret->data[COUNT_AT + i] = (char)(count >> 8 * (3 - i));
    if (ok && put_digest(ret))
        return 0;
    return err_set(err, ERR_INTERNAL, "cannot write the certificates as a Java key store");
}
