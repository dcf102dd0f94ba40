/*
 * TLS of exposed ports: with a certificate that the owner gives, or with certificates of an
 * authority of the daemon's own, which clients must trust.
 *
 * That authority is for one domain. Clients accept it only for names below the domain and below
 * "localhost", so trust in it gives nobody power over other sites.
 */
#pragma once

#include <openssl/ssl.h>

#include "gate/ingress.h"

struct ingress_tls;

/* The texts of the configuration must stay valid. */
struct ingress_tls *ingress_tls_new(const struct ingress_config *config);
void ingress_tls_free(struct ingress_tls *t);

/* False: exposed ports are served without TLS. */
bool ingress_tls_wanted(const struct ingress_tls *t);
/* Reads or creates what is needed. Later calls read files again that were changed, and keep what
 * was read before if they fail. */
int ingress_tls_open(struct ingress_tls *t, struct err *err);
/* Creates the server side of a connection; NULL: OpenSSL failed. */
SSL *ingress_tls_accept(struct ingress_tls *t);
