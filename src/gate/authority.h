/*
 * A certificate authority. That of a machine is trusted by that machine only. It signs the
 * certificates with which the gate terminates TLS, where a rule needs to see requests or a refusal
 * must be readable. That of a domain is for exposed ports (ingress_tls.h).
 *
 * All keys are P-256. The certificates of hosts (leaves) share one key, so a new name costs one
 * signature; leaves are cached. The CA certificate may sign leaves only.
 */
#pragma once

#include <openssl/ssl.h>

#include "base/buf.h"
#include "base/err.h"

struct authority;

struct authority *authority_new(const char *name, struct err *err);
/* Creates one that clients accept only for names below that domain and below "localhost". */
struct authority *authority_new_for(const char *domain, struct err *err);
/* Reads the keys and the certificate that authority_write() wrote. */
struct authority *authority_read(const char *pem, struct err *err);
void authority_free(struct authority *a);

/* Writes the keys and the certificate as PEM text, which must be kept secret. */
int authority_write(const struct authority *a, struct buf *out, struct err *err);
/* Writes only the certificate, for clients that must trust it. */
int authority_certificate(const struct authority *a, struct buf *out, struct err *err);

/* Creates the server side of TLS for that host name, for HTTP/1.1 only; NULL: OpenSSL failed. */
SSL *authority_accept(struct authority *a, const char *name);

/* Gives a server side the certificate for another name: 1, or 0 if OpenSSL failed. */
int authority_use(struct authority *a, SSL *ssl, const char *name);

/* Create the client side of TLS: the certificate of the server must match the name or address. */
SSL_CTX *trust_new(const char *more, struct err *err); /* more: a file of certificates, or empty */
SSL *trust_connect(SSL_CTX *trust, const char *name, bool is_address);
/* Does the same as trust_connect(), for protocols other than HTTP. The owner of the server chooses
 * what is verified: nothing, the issuer, or the issuer and the name. */
enum trust_proof { TRUST_ANYBODY, TRUST_CHAIN, TRUST_NAME };
SSL *trust_connect_any(SSL_CTX *trust, const char *name, bool is_address, enum trust_proof proof);
