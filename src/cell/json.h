/*
 * JSON output of carrel-cell.
 *
 * carrel-cell only writes JSON and never parses it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

/* Appends s as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
bool json_string(struct buf *out, const char *s, size_t n);
