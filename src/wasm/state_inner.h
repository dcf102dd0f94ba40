/*
 * Functions that writing and reading a captured state share. Only for src/wasm/state*.c.
 *
 * The format does not depend on the CPU.
 */
#pragma once

#include "wasm/budget.h"

extern const char state_magic[8];
enum { UNIT = PAGES_UNIT, HASH = 32, HEADER = 16 };

enum call_state { CALL_NONE, CALL_START, CALL_STOPPED, CALL_HOST, CALL_ANSWERED };

/* state.c */
void state_image_apply(const struct wasm_store *s, uint32_t mem, uint8_t *base, uint64_t size,
                       uint8_t *units);
uint32_t state_live_slots(const struct wasm_store *s, enum call_state state);
