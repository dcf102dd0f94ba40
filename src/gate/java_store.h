/*
 * Writes certificates as a Java key store (JKS), so that Java programs in a machine trust its CA.
 *
 * Pure: PEM in, bytes out.
 */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Writes every certificate of a PEM bundle; other PEM objects are skipped. */
int java_store(const char *pem, size_t n, struct buf *ret, struct err *err);
