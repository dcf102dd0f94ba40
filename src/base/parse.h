/*
 * Parses numbers as people type them: "512M", "1.5", "90s".
 *
 * Strict: the whole text must be a number in range. Otherwise ERR_INVALID names the text.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* A decimal number from min to max. */
int parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *ret, struct err *err);

/* A number that is a file name: only digits, without a leading zero. */
bool parse_name(const char *name, uint64_t max, uint64_t *ret);

/* Bytes, with K M G T (powers of 1024, an optional "B" or "iB" after them). */
int parse_size(const char *text, uint64_t *ret_bytes, struct err *err);

/* A decimal fraction, in thousandths: "1.5" is 1500. */
int parse_milli(const char *text, uint64_t *ret_milli, struct err *err);

/* A decimal fraction, in millionths: "0.3" is 300000. */
int parse_micro(const char *text, uint64_t *ret_micro, struct err *err);

/* Milliseconds, from "10", "10s" (seconds), "250ms", "5m", "2h", "1d". */
int parse_duration(const char *text, uint64_t *ret_ms, struct err *err);
