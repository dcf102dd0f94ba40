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

/* "2", "1,4-6": from 1 on. */
int hunks_parse(const char *text, bool chosen[HUNKS_MAX + 1], struct err *err);
size_t hunks_count(const char *diff, size_t n);
/* Appends what the chosen hunks of a difference make of the text that it was made for. */
int hunks_apply(const char *text, size_t text_n, const char *diff, size_t n,
                const bool chosen[HUNKS_MAX + 1], struct buf *out, struct err *err);
