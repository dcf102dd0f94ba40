/*
 * Checks that a text is exactly one JSON value (RFC 8259).
 *
 * The check allocates no memory and limits the depth of nesting.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

bool json_check(const char *text, size_t len);
