/* Checks of a store that was read from bytes; wasm_resume() alone asks for them. */
#pragma once

#include "wasm/engine.h"

/* NULL, or why a value of the store cannot be there. */
const char *state_check(struct wasm_store *s);
