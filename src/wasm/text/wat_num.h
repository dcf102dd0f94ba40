/*
 * Numbers of the text format, both ways, exact: decimal and hexadecimal, with
 * underscores; floats are rounded once, to nearest even, whatever the locale
 * or the host's rounding mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wat_num {
    WAT_NUM_OK,
    WAT_NUM_SYNTAX, /* not a number of this kind at all */
    WAT_NUM_RANGE,  /* a number, but it does not fit */
};

/* Unsigned, no sign, at most max. */
enum wat_num wat_unsigned(const char *s, size_t n, uint64_t max, uint64_t *ret);

/* A literal of iN, N = bits: signed or unsigned reading; the low N bits are returned. */
enum wat_num wat_int(const char *s, size_t n, unsigned bits, uint64_t *ret);

/* A literal of f32 or f64 (bits = 32 or 64) as its bit pattern; inf, nan, nan:0x… included. */
enum wat_num wat_float(const char *s, size_t n, unsigned bits, uint64_t *ret);

/* The shortest text that reads back to the same bits: "0x1p-149" never, "1e-45" yes. */
enum { WAT_NUM_TEXT = 40 };
void wat_print_float(uint64_t value, unsigned bits, char out[WAT_NUM_TEXT]);
