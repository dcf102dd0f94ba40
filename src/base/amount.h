/*
 * Formats numbers for people: the opposite of base/parse.h.
 *
 * For messages and tables only: the text may be rounded.
 */
#pragma once

#include <stdint.h>

enum { AMOUNT_SIZE = 48 };

/* The unit of a number. */
enum amount_unit { AMOUNT_ONES, AMOUNT_BYTES, AMOUNT_MILLIS, AMOUNT_MICROS, AMOUNT_MS };

/* Formats microseconds: "250ms", "1.5s", "45s", "1h 30m", "2d 4h"; 0 is "0s". */
void amount_duration(uint64_t us, char ret[AMOUNT_SIZE]);

/* Formats a size as people type it: "512B", "4M", "1.5G", "1025M"; 0 is "0". A size with more
 * digits is rounded down to two decimals: "3.99T". */
void amount_size(uint64_t bytes, char ret[AMOUNT_SIZE]);

/* Formats by unit: "1024", "1.5G", "0.5" (from thousandths or millionths), "1h 30m". */
void amount_show(enum amount_unit unit, uint64_t value, char ret[AMOUNT_SIZE]);
