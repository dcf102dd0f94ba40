/*
 * Names of keys, as xdotool and the vendors' tools for computers write them: "ctrl+s", "Return",
 * "alt+Tab", "Page_Down", "a". Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { CHORD_KEYS = 6, KEYSYM_SHIFT = 0xffe1 };

/* Keys that are pressed together, in this order. */
struct chord {
    uint32_t keysyms[CHORD_KEYS];
    size_t count;
};

/* Returns the keysym of X for a character; 0: no key types it. */
uint32_t keysym_of(uint32_t character);

/* Reads one chord of n bytes. */
int chord_read(const char *text, size_t n, struct chord *ret, struct err *err);
