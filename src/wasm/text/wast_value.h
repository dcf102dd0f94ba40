/*
 * Constants and result patterns of wast scripts. Only for src/wasm/text/wast*.c.
 *
 * NaN patterns compare classes of bits, not values.
 */
#pragma once

#include "wasm/text/wat_lex.h"
#include "wasm/wasm.h"

/* Reads the constant at the '(' token i, like `(i32.const 1)` or `(ref.extern 2)`. */
bool wast_constant(const struct wat_text *t, uint32_t i, struct wasm_value *ret);

/* True if a value matches the pattern at '(' token i: a constant, a NaN class, `(either …)`, … */
bool wast_matches(const struct wat_text *t, uint32_t i, const struct wasm_value *v);

bool wast_is_canonical_nan(const struct wasm_value *v);
bool wast_is_arithmetic_nan(const struct wasm_value *v);
