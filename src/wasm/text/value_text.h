/*
 * Reads and prints values as text: command line arguments, results, messages of the script runner.
 *
 * Numbers have the syntax of the text format in both directions.
 */
#pragma once

#include "wasm/wasm.h"

/* Reads one value of a type from text: "42", "-0x1p3", "null", a v128 as 0x and 32 hex digits. */
int value_read(uint32_t type, const char *s, size_t n, struct wasm_value *ret, struct err *err);

/*
 * Prints a value: "42", "nan:0x200000", "null", "host 3", "ref 7", "0x…" (a v128 with its first
 * lane last).
 */
bool value_print(const struct wasm_value *v, struct buf *out);
