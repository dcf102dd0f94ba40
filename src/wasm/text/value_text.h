/*
 * Values as text: command line arguments, results, messages of the script runner.
 *
 * Numbers have the syntax of the text format in both directions.
 */
#pragma once

#include "wasm/wasm.h"

/* Read one value of a type from text: "42", "-0x1p3", "null", a v128 as 0x and 32 hex digits. */
int value_read(uint32_t type, const char *s, size_t n, struct wasm_value *ret, struct err *err);

/* "42", "nan:0x200000", "null", "host 3", "ref 7", "0x…" (v128, first lane last). */
bool value_print(const struct wasm_value *v, struct buf *out);
