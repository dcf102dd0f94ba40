/*
 * A database has one table. Its columns are named after the attributes of PKCS #11, in hexadecimal,
 * and numbers are big-endian. A certificate is a row, and the trust in it is another one. Without a
 * key4.db beside it, which NSS then makes itself, the rows need no signature.
 */
#include "gate/nss_store.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <sqlite3.h>
#include <string.h>

#include "base/defer.h"

enum { HASH_MAX = 64 };

/* NSS reads every attribute that it knows, so that all columns must exist. */
static const char schema[] =
    "CREATE TABLE nssPublic (id PRIMARY KEY UNIQUE ON CONFLICT ABORT, a0, a1, a2, a3, a10, a11, "
    "a12, a80, a81, a82, a83, a84, a85, a86, a87, a88, a89, a8a, a8b, a90, a100, a101, a102, a103, "
    "a104, a105, a106, a107, a108, a109, a10a, a10b, a10c, a110, a111, a120, a121, a122, a123, "
    "a124, a125, a126, a127, a128, a129, a130, a131, a132, a133, a134, a160, a161, a162, a163, "
    "a164, a165, a166, a170, a180, a181, a200, a201, a202, a210, a300, a301, a302, a400, a401, "
    "a402, a403, a404, a405, a406, a480, a481, a482, a500, a501, a502, a503, a40000211, a40000212, "
    "a80000001, ace534351, ace534352, ace534353, ace534354, ace534355, ace534356, ace534357, "
    "ace534358, ace534364, ace534365, ace534366, ace534367, ace534368, ace534369, ace534373, "
    "ace534374, ace536351, ace536352, ace536353, ace536354, ace536355, ace536356, ace536357, "
    "ace536358, ace536359, ace53635a, ace53635b, ace53635c, ace53635d, ace53635e, ace53635f, "
    "ace536360, ace5363b4, ace5363b5, ad5a0db00);"
    "CREATE INDEX issuer ON nssPublic (a81);"
    "CREATE INDEX subject ON nssPublic (a101);"
    "CREATE INDEX label ON nssPublic (a3);"
    "CREATE INDEX ckaid ON nssPublic (a102);";

/* A certificate: class, label, value, type, issuer, serial number, subject, id. */
static const char insert_certificate[] =
    "INSERT INTO nssPublic (id, a0, a1, a2, a3, a11, a80, a81, a82, a101, a102, a170) VALUES (1, "
    "x'00000001', x'01', x'00', ?1, ?2, x'00000000', ?3, ?4, ?5, ?6, x'01')";

/*
 * The trust in it: trusted to sign servers, not trusted for other purposes; SHA-1 and MD5 say which
 * certificate is meant. The label is NSS's sign for an empty text.
 */
static const char insert_trust[] =
    "INSERT INTO nssPublic (id, a0, a1, a2, a3, a81, a82, a170, ace536358, ace536359, ace53635a, "
    "ace53635b, ace536360, ace5363b4, ace5363b5) VALUES (2, x'ce534353', x'01', x'00', x'a5005a', "
    "?3, ?4, x'01', x'ce534352', x'ce53435b', x'ce534353', x'ce534353', x'00', ?7, ?8)";

/* The values of both rows, by the numbers of their parameters. */
enum { LABEL = 1, VALUE, ISSUER, SERIAL, SUBJECT, KEY_SHA1, OF_SHA1, OF_MD5, VALUES };

struct nss_value {
    unsigned char *bytes;
    int n;
};

static void nss_bio_freep(BIO **b) {
    BIO_free(*b);
}

static void nss_x509_freep(X509 **x) {
    X509_free(*x);
}

static void nss_values_done(struct nss_value (*v)[VALUES]) {
    for (int i = 0; i < VALUES; i++)
        OPENSSL_free((*v)[i].bytes);
}

static void nss_hash(const EVP_MD *how, const void *bytes, int n, struct nss_value *ret) {
    unsigned size = 0;
    ret->bytes = OPENSSL_malloc(HASH_MAX);
    if (ret->bytes && n > 0 && EVP_Digest(bytes, (size_t)n, ret->bytes, &size, how, NULL) == 1)
        ret->n = (int)size;
}

/* Reads the values of a certificate. False: one of them is missing. */
static bool nss_read(X509 *x, struct nss_value v[VALUES]) {
    static const char label[] = "Carrel";
    const ASN1_BIT_STRING *key = X509_get0_pubkey_bitstr(x);
    v[LABEL] = (struct nss_value){OPENSSL_memdup(label, sizeof(label) - 1), sizeof(label) - 1};
    v[VALUE].n = i2d_X509(x, &v[VALUE].bytes);
    v[ISSUER].n = i2d_X509_NAME(X509_get_issuer_name(x), &v[ISSUER].bytes);
    v[SERIAL].n = i2d_ASN1_INTEGER(X509_get_serialNumber(x), &v[SERIAL].bytes);
    v[SUBJECT].n = i2d_X509_NAME(X509_get_subject_name(x), &v[SUBJECT].bytes);
    if (key)
        nss_hash(EVP_sha1(), key->data, key->length, &v[KEY_SHA1]);
    nss_hash(EVP_sha1(), v[VALUE].bytes, v[VALUE].n, &v[OF_SHA1]);
    nss_hash(EVP_md5(), v[VALUE].bytes, v[VALUE].n, &v[OF_MD5]);
    for (int i = LABEL; i < VALUES; i++)
        if (!v[i].bytes || v[i].n <= 0)
            return false;
    return true;
}

static bool nss_insert(sqlite3 *db, const char *sql, const struct nss_value v[VALUES]) {
    sqlite3_stmt *s = NULL;
    bool ok = sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK;
    for (int i = LABEL; ok && i <= sqlite3_bind_parameter_count(s); i++)
        ok = sqlite3_bind_blob(s, i, v[i].bytes, v[i].n, SQLITE_STATIC) == SQLITE_OK;
    ok = ok && sqlite3_step(s) == SQLITE_DONE;
    sqlite3_finalize(s);
    return ok;
}

static bool nss_write(const struct nss_value v[VALUES], struct buf *ret) {
    sqlite3 *db = NULL;
    sqlite3_int64 n = 0;
    bool ok = sqlite3_open(":memory:", &db) == SQLITE_OK &&
              sqlite3_exec(db, schema, NULL, NULL, NULL) == SQLITE_OK &&
              nss_insert(db, insert_certificate, v) && nss_insert(db, insert_trust, v);
    unsigned char *bytes = ok ? sqlite3_serialize(db, "main", &n, 0) : NULL;
    ok = bytes && n > 0 && buf_add(ret, bytes, (size_t)n);
    sqlite3_free(bytes);
    sqlite3_close(db);
    return ok;
}

int nss_store(const char *pem, size_t n, struct buf *ret, struct err *err) {
    BIO *bio DEFER(nss_bio_freep) = BIO_new_mem_buf(pem, (int)n);
    X509 *x DEFER(nss_x509_freep) = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    struct nss_value values[VALUES] DEFER(nss_values_done) = {0};
    if (x && nss_read(x, values) && nss_write(values, ret))
        return 0;
    return err_set(err, ERR_INTERNAL, "cannot write the certificate as a database of NSS");
}
