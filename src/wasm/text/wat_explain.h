/*
 * Explains an error of the validator in terms of the source text: the place, what is missing and
 * how to fix it.
 *
 * The reader is often a model: a message says what to change.
 */
#pragma once

#include "wasm/text/wat.h"
#include "wasm/wasm.h"

/* Adds one error to diags. The offset of diag must be one of m's binary. */
void wat_explain(const struct wasm_diag *diag, const struct wat_module *m, const char *src,
                 size_t len, struct wat_diags *diags);

/* The hint alone, for modules that came as binary; false when there is none. */
bool wat_advise(const struct wasm_diag *diag, char *hint, size_t size);
