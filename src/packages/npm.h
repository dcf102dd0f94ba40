/*
 * Reads the document of an npm registry about one package, which names its tarballs and their
 * digests (integrity). Pure.
 */
#pragma once

#include "packages/rows.h"

/*
 * Adds the tarballs of the document. origin: SCHEME://HOST:PORT of the registry. path: the path of
 * the document there. A document speaks only for tarballs of its own package, which are at
 * PATH/-/FILE of the same origin: another package could claim the path of a popular one. Rows
 * without a SHA-512 are left out. False: not JSON, or too many rows.
 */
bool npm_document_read(const char *text, size_t n, const char *origin, const char *path,
                       struct package_rows *ret);
