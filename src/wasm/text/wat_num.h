/*
 * Reads and prints numbers of the text format exactly: decimal and hexadecimal, with
 * underscores; floats are rounded once, to nearest even, whatever the locale
 * or the host's rounding mode.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wat_num {
    WAT_NUM_OK,
    WAT_NUM_SYNTAX, /* the text is not a number of this kind */
    WAT_NUM_RANGE,  /* the number is out of range */
};

/* Reads an unsigned number without a sign, at most max. */
enum wat_num wat_unsigned(const char *s, size_t n, uint64_t max, uint64_t *ret);

/* Reads a literal of iN, N = bits, signed or unsigned; returns the low N bits. */
enum wat_num wat_int(const char *s, size_t n, unsigned bits, uint64_t *ret);

/* Reads a literal of f32 or f64 (bits = 32 or 64) as its bit pattern; also inf, nan, nan:0x…. */
enum wat_num wat_float(const char *s, size_t n, unsigned bits, uint64_t *ret);

/* Prints the shortest decimal text that reads back to the same bits: "1e-45", not "0x1p-149". */
enum { WAT_NUM_TEXT = 40 };
void wat_print_float(uint64_t value, unsigned bits, char out[WAT_NUM_TEXT]);
