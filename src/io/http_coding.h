/*
 * Accept-Encoding and similar header fields (RFC 9110, section 12.5.3).
 *
 * Pure. A coding counts only if it is named: "*" does not match.
 */
#pragma once

#include <stdbool.h>

#include "io/http.h"

/* True for "zstd" in "gzip, zstd;q=0.5", false in "zstd;q=0". A "*" does not count. */
bool http_coding_wanted(struct http_text field, const char *coding);
