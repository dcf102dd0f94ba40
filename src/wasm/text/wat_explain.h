/*
 * Explains an error of the validator in terms of the source text: the place, what is missing and
 * how to fix it.
 *
 * The reader is often a model: a message says what to change.
 */
#pragma once

#include "wasm/text/wat.h"
#include "wasm/wasm.h"

/* Adds one error to diags. The offset in diag must be an offset in the binary of m. */
void wat_explain(const struct wasm_diag *diag, const struct wat_module *m, const char *src,
                 size_t len, struct wat_diags *diags);

/* Writes the error. `subject` names the instruction as its text does; NULL: its opcode. */
void wat_describe(const struct wasm_diag *diag, const char *subject, char *text, size_t size);

/* Writes only the hint, for modules that are given as binary; false if there is none. */
bool wat_advise(const struct wasm_diag *diag, char *hint, size_t size);
