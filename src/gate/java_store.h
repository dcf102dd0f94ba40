/* Writes certificates as a Java key store (JKS). */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Writes every certificate of a PEM bundle; other PEM objects are skipped. */
int java_store(const char *pem, size_t n, struct buf *ret, struct err *err);
