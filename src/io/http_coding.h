/* Fields that list codings (RFC 9110, section 12.5.3): a function from text to a fact. */
#pragma once

#include <stdbool.h>

#include "io/http.h"

/* "gzip, zstd;q=0.5" takes "zstd"; "zstd;q=0" does not. A "*" is no wish for anything. */
bool http_coding_wanted(struct http_text field, const char *coding);
