/*
 * Explains parentheses that do not match: where the text first contradicts them, not where it ends.
 *
 * Used only after an error, so it may look at the whole text again.
 */
#pragma once

#include "wasm/text/wat_diag.h"
#include "wasm/text/wat_lex.h"

/* Reports a missing `)`. `open` is the innermost '(' that is open at the end. Returns -1. */
int wat_unclosed(const struct wat_text *t, uint32_t open, struct wat_diags *diags);

/* Reports that the ')' with index `close` ends the module before the text does. Returns -1. */
int wat_closed_early(const struct wat_text *t, uint32_t close, struct wat_diags *diags);
