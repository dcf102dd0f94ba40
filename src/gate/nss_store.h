/*
 * Writes a certificate as a database of NSS (cert9.db), the only place where a browser without
 * policies, such as Chromium's headless shell, looks for more authorities.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* pem: one certificate, which is trusted to sign certificates of servers. */
int nss_store(const char *pem, size_t n, struct buf *ret, struct err *err);
