/*
 * JSON output of carrel-cell.
 *
 * It only writes: carrel-cell never parses JSON.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Append s as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
bool json_string(struct buf *out, const char *s, size_t n);
