/*
 * Functions that the files of a store share: free an instance, report exhausted memory.
 *
 * Only for src/wasm/store*.c.
 */
#pragma once

#include "wasm/budget.h"

/* store.c */
void store_instance_free(struct wasm_store *s, struct wasm_instance *i);
int store_no_memory(struct err *err);
