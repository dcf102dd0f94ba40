/* Certificates as Java wants them: a key store of the kind JKS. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Every certificate of a PEM bundle; what else stands in it is skipped. */
int java_store(const char *pem, size_t n, struct buf *ret, struct err *err);
