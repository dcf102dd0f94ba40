#include "gate/authority.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdbool.h>
#include <string.h>

#include "base/alloc.h"
#include "base/defer.h"
#include "base/map.h"
#include "gate/address.h"
#include "gate/name.h"

enum { DAYS_OWN = 3650, DAYS_LEAF = 7, RENEW_DAYS = 5, LEAVES_MAX = 512, HOUR = 3600, DAY = 86400 };

struct leaf {
    char name[NAME_SIZE];
    time_t made;
    X509 *certificate;
};

struct authority {
    EVP_PKEY *key, *leaf_key;
    X509 *own;
    SSL_CTX *accept;
    struct map leaves;
};

static int err_ssl(struct err *err, const char *what) {
    const char *reason = ERR_reason_error_string(ERR_get_error());
    return err_set(err, ERR_INTERNAL, "%s: %s", what, reason ? reason : "OpenSSL failed");
}

/* ---- certificates ---- */

static bool add_extension(X509 *c, X509 *issuer, int nid, const char *value) {
    X509V3_CTX ctx;
    X509V3_set_ctx(&ctx, issuer, c, NULL, NULL, 0);
    X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    bool ok = e && X509_add_ext(c, e, -1);
    X509_EXTENSION_free(e);
    return ok;
}

static bool set_serial(X509 *c) {
    unsigned char bytes[16];
    if (RAND_bytes(bytes, sizeof(bytes)) != 1)
        return false;
    bytes[0] &= 0x7f; /* a serial number must be positive */
    BIGNUM *n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    bool ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(c));
    BN_free(n);
    return ok;
}

struct extension {
    int nid;
    const char *value;
};

static const struct extension own_extensions[] = {
    {NID_subject_key_identifier, "hash"},
    {NID_basic_constraints, "critical,CA:TRUE,pathlen:0"},
    {NID_key_usage, "critical,keyCertSign,cRLSign"},
    {0, NULL},
};

static const struct extension leaf_extensions[] = {
    {NID_subject_key_identifier, "hash"},
    {NID_authority_key_identifier, "keyid"},
    {NID_basic_constraints, "critical,CA:FALSE"},
    {NID_key_usage, "critical,digitalSignature"},
    {NID_ext_key_usage, "serverAuth"},
    {0, NULL},
};

/* issuer NULL: the certificate is signed with its own key. more: one more extension. */
static X509 *make_certificate(const char *name, struct extension more, X509 *issuer, EVP_PKEY *key,
                              EVP_PKEY *signer, int days) {
    X509 *c = X509_new();
    if (!c)
        return NULL;
    X509 *by = issuer ? issuer : c;
    X509_NAME *subject = X509_get_subject_name(c);
    int cut = strlen(name) > 64 ? 64 : -1; /* a common name has at most 64 bytes */
    bool ok = X509_set_version(c, 2) && set_serial(c) &&
              X509_gmtime_adj(X509_getm_notBefore(c), -HOUR) &&
              X509_gmtime_adj(X509_getm_notAfter(c), (long)days * DAY) &&
              X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, (const unsigned char *)name,
                                         cut, -1, 0) &&
              X509_set_issuer_name(c, X509_get_subject_name(by)) && X509_set_pubkey(c, key);
    const struct extension *e = issuer ? leaf_extensions : own_extensions;
    for (; ok && e->value; e++)
        ok = add_extension(c, by, e->nid, e->value);
    ok = ok && (!more.value || add_extension(c, by, more.nid, more.value));
    if (ok && X509_sign(c, signer, EVP_sha256()))
        return c;
    X509_free(c);
    return NULL;
}

/* ---- leaf certificates ---- */

static void leaf_free(struct leaf *l) {
    X509_free(l->certificate);
    free(l);
}

static void forget_leaves(struct authority *a) {
    struct leaf *l;
    for (size_t at = 0; (l = map_next(&a->leaves, &at));)
        leaf_free(l);
    map_done(&a->leaves);
}

static X509 *leaf_for(struct authority *a, const char *name) {
    char alt[NAME_SIZE + 8], address[ADDRESS_TEXT_SIZE];
    struct leaf *l = map_get(&a->leaves, name);
    if (l && time(NULL) - l->made < RENEW_DAYS * DAY)
        return l->certificate;
    if (l || a->leaves.count >= LEAVES_MAX)
        forget_leaves(a);
    bool is_address = address_read(name, strlen(name), address);
    snprintf(alt, sizeof(alt), "%s:%s", is_address ? "IP" : "DNS", name);
    struct extension names = {NID_subject_alt_name, alt};
    X509 *c = make_certificate(name, names, a->own, a->leaf_key, a->key, DAYS_LEAF);
    l = c ? calloc(1, sizeof(*l)) : NULL;
    if (!l) {
        X509_free(c);
        return NULL;
    }
    *l = (struct leaf){.made = time(NULL), .certificate = c};
    snprintf(l->name, sizeof(l->name), "%s", name);
    map_put(&a->leaves, l->name, l);
    return c;
}

/* Accepts only HTTP/1.1, because the gate cannot parse HTTP/2 requests. */
static int choose_http1(SSL *ssl, const unsigned char **out, unsigned char *out_n,
                        const unsigned char *in, unsigned n, void *arg) {
    static const unsigned char http1[] = "http/1.1";
    (void)ssl;
    (void)arg;
    for (unsigned at = 0; at < n && at + 1 + in[at] <= n; at += 1u + in[at])
        if (in[at] == sizeof(http1) - 1 && memcmp(in + at + 1, http1, sizeof(http1) - 1) == 0) {
            *out = in + at + 1;
            *out_n = in[at];
            return SSL_TLSEXT_ERR_OK;
        }
    return SSL_TLSEXT_ERR_NOACK;
}

int authority_use(struct authority *a, SSL *ssl, const char *name) {
    X509 *leaf = leaf_for(a, name);
    return leaf && SSL_use_certificate(ssl, leaf) == 1 && SSL_use_PrivateKey(ssl, a->leaf_key) == 1;
}

SSL *authority_accept(struct authority *a, const char *name) {
    SSL *ssl = SSL_new(a->accept);
    if (ssl && authority_use(a, ssl, name)) {
        SSL_set_accept_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    return NULL;
}

/* ---- creating, reading and writing ---- */

static int open_accept(struct authority *a, struct err *err) {
    a->accept = SSL_CTX_new(TLS_server_method());
    if (!a->accept || !SSL_CTX_set_min_proto_version(a->accept, TLS1_2_VERSION))
        return err_ssl(err, "cannot prepare TLS");
    SSL_CTX_set_session_cache_mode(a->accept, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_options(a->accept, SSL_OP_NO_TICKET | SSL_OP_NO_RENEGOTIATION);
    SSL_CTX_set_mode(a->accept, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_alpn_select_cb(a->accept, choose_http1, NULL);
    return 0;
}

static struct authority *authority_create(const char *name, struct extension more,
                                          struct err *err) {
    struct authority *a = xnew(struct authority);
    a->key = EVP_EC_gen("P-256");
    a->leaf_key = EVP_EC_gen("P-256");
    a->own =
        a->key && a->leaf_key ? make_certificate(name, more, NULL, a->key, a->key, DAYS_OWN) : NULL;
    if (!a->own)
        err_ssl(err, "cannot create a certificate authority");
    if (a->own && open_accept(a, err) == 0)
        return a;
    authority_free(a);
    return NULL;
}

struct authority *authority_new(const char *name, struct err *err) {
    return authority_create(name, (struct extension){0}, err);
}

struct authority *authority_new_for(const char *domain, struct err *err) {
    char name[NAME_SIZE + 8], names[NAME_SIZE + 128];
    snprintf(name, sizeof(name), "Carrel %s", domain);
    snprintf(names, sizeof(names),
             "critical,permitted;DNS:%s,permitted;DNS:localhost,excluded;IP:0.0.0.0/0.0.0.0,"
             "excluded;IP:::/::",
             domain);
    return authority_create(name, (struct extension){NID_name_constraints, names}, err);
}

void authority_free(struct authority *a) {
    if (!a)
        return;
    forget_leaves(a);
    SSL_CTX_free(a->accept);
    X509_free(a->own);
    EVP_PKEY_free(a->leaf_key);
    EVP_PKEY_free(a->key);
    free(a);
}

static void bio_freep(BIO **b) {
    BIO_free(*b);
}

struct authority *authority_read(const char *pem, struct err *err) {
    BIO *in DEFER(bio_freep) = alloc_check(BIO_new_mem_buf(pem, -1));
    struct authority *a = xnew(struct authority);
    a->key = PEM_read_bio_PrivateKey(in, NULL, NULL, NULL);
    a->leaf_key = a->key ? PEM_read_bio_PrivateKey(in, NULL, NULL, NULL) : NULL;
    a->own = a->leaf_key ? PEM_read_bio_X509(in, NULL, NULL, NULL) : NULL;
    if (!a->own)
        err_ssl(err, "cannot read a certificate authority");
    if (a->own && open_accept(a, err) == 0)
        return a;
    authority_free(a);
    return NULL;
}

static int take_bio(BIO *from, struct buf *out, struct err *err) {
    char *bytes;
    long n = BIO_get_mem_data(from, &bytes);
    return n > 0 && buf_add(out, bytes, (size_t)n)
               ? 0
               : err_ssl(err, "cannot write a certificate authority");
}

int authority_write(const struct authority *a, struct buf *out, struct err *err) {
    BIO *to DEFER(bio_freep) = BIO_new(BIO_s_mem());
    if (!to || !PEM_write_bio_PrivateKey(to, a->key, NULL, NULL, 0, NULL, NULL) ||
        !PEM_write_bio_PrivateKey(to, a->leaf_key, NULL, NULL, 0, NULL, NULL) ||
        !PEM_write_bio_X509(to, a->own))
        return err_ssl(err, "cannot write a certificate authority");
    return take_bio(to, out, err);
}

int authority_certificate(const struct authority *a, struct buf *out, struct err *err) {
    BIO *to DEFER(bio_freep) = BIO_new(BIO_s_mem());
    if (!to || !PEM_write_bio_X509(to, a->own))
        return err_ssl(err, "cannot write a certificate");
    return take_bio(to, out, err);
}

/* ---- connections to servers ---- */

SSL_CTX *trust_new(const char *more, struct err *err) {
    SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    if (!ctx || !SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) ||
        !SSL_CTX_set_default_verify_paths(ctx) ||
        (*more && !SSL_CTX_load_verify_locations(ctx, more, NULL))) {
        SSL_CTX_free(ctx);
        err_ssl(err, "cannot prepare TLS");
        return NULL;
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    return ctx;
}

static bool expect_name(SSL *ssl, const char *name, bool is_address) {
    return is_address ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1
                      : SSL_set1_host(ssl, name) == 1;
}

SSL *trust_connect_any(SSL_CTX *trust, const char *name, bool is_address, enum trust_proof proof) {
    SSL *ssl = SSL_new(trust);
    if (!ssl || (!is_address && SSL_set_tlsext_host_name(ssl, name) != 1) ||
        (proof == TRUST_NAME && !expect_name(ssl, name, is_address))) {
        SSL_free(ssl);
        return NULL;
    }
    if (proof == TRUST_ANYBODY)
        SSL_set_verify(ssl, SSL_VERIFY_NONE, NULL);
    SSL_set_connect_state(ssl);
    return ssl;
}

SSL *trust_connect(SSL_CTX *trust, const char *name, bool is_address) {
    static const unsigned char http1[] = "\x08http/1.1";
    SSL *ssl = trust_connect_any(trust, name, is_address, TRUST_NAME);
    if (ssl && SSL_set_alpn_protos(ssl, http1, sizeof(http1) - 1) != 0) {
        SSL_free(ssl);
        return NULL;
    }
    return ssl;
}
