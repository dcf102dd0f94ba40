/*
 * Checks the values of a store that was read from untrusted bytes. Used by wasm_resume() only.
 *
 * After this check the interpreter trusts all indices and references of the store.
 */
#pragma once

#include "wasm/engine.h"

/* Returns NULL, or the reason why a value of the store is not valid. */
const char *state_check(struct wasm_store *s);
