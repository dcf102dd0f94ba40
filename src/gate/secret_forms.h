/*
 * The shapes in which a server may give a value back: as it is, in base64 and base32 at any place
 * of a longer text, in hexadecimal, and escaped for queries, JSON and HTML. Pure.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "gate/needles.h"

/* Each, and long beginnings of it. False: there is no room. */
bool secret_forms_add(const char *value, size_t n, struct needles *ret);
