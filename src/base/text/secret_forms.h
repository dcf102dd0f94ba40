/*
 * The encodings in which a server may echo a secret: plain, base64 and base32 at any offset of a
 * longer text, hexadecimal, and escaped for URLs, JSON and HTML. Pure.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/text/needles.h"

/* Adds each encoded form of the value, and its long prefixes, to ret. False: no room. */
bool secret_forms_add(const char *value, size_t n, struct needles *ret);
