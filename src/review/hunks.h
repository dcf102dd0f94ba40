/*
 * Selects hunks of a unified difference and applies them to a text.
 *
 * Pure. Hunks are numbered from 1, as `carrel ship --hunk` shows them.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum { HUNKS_MAX = 1000 };

/* Parses a list of hunks, such as "2" or "1,4-6"; the first hunk is 1. */
int hunks_parse(const char *text, bool chosen[HUNKS_MAX + 1], struct err *err);
size_t hunks_count(const char *diff, size_t n);
/* Appends the text with the chosen hunks applied. The diff must have been made for this text. */
int hunks_apply(const char *text, size_t text_n, const char *diff, size_t n,
                const bool chosen[HUNKS_MAX + 1], struct buf *out, struct err *err);
