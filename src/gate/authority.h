/*
 * The authority that a machine trusts, and nobody else: it signs the certificates with which the
 * gate looks into TLS where a rule needs that, or has a refusal to say.
 *
 * P-256 throughout. One key for all leaves, so that a new name costs one signature; leaves are
 * kept. Its own certificate may sign leaves and nothing else.
 */
#pragma once

#include <openssl/ssl.h>

#include "base/buf.h"
#include "base/err.h"

struct authority;

struct authority *authority_new(const char *name, struct err *err);
/* As authority_write() wrote it. */
struct authority *authority_read(const char *pem, struct err *err);
void authority_free(struct authority *a);

/* Keys and certificate: what must be kept, by whoever keeps secrets. */
int authority_write(const struct authority *a, struct buf *out, struct err *err);
/* The certificate alone, for those who are to trust it. */
int authority_certificate(const struct authority *a, struct buf *out, struct err *err);

/* The server's side of a connection for that name, HTTP/1.1 only; NULL: OpenSSL has refused. */
SSL *authority_accept(struct authority *a, const char *name);

/* The client's side: the server must prove to be that name, or, for an address, that address. */
SSL_CTX *trust_new(const char *more, struct err *err); /* more: a file of certificates, or empty */
SSL *trust_connect(SSL_CTX *trust, const char *name, bool is_address);
/* The same for what is not HTTP, where the owner of the server says what it has to prove: nothing,
 * that somebody who is trusted knows it, or its name too. */
enum trust_proof { TRUST_ANYBODY, TRUST_CHAIN, TRUST_NAME };
SSL *trust_connect_any(SSL_CTX *trust, const char *name, bool is_address, enum trust_proof proof);
