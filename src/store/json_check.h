/*
 * Checks that a text is exactly one JSON value (RFC 8259).
 *
 * It allocates nothing, and nesting is limited.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool json_check(const char *text, size_t len);
