/*
 * Divides the contents of files into chunks, at places that the contents choose. An insertion moves
 * only the ends of the chunks near it, so most chunks of a changed file stay as they were. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { CUT_MIN = 64 << 10, CUT_MAX = 1 << 20 };

/* A random number for each byte. Changing one number changes the chunks of all trees. */
struct cut {
    uint64_t gear[256];
};

void cut_init(struct cut *c);

/*
 * Returns the length of the first chunk of `bytes`. They must reach to the end of the file, or be
 * at least CUT_MAX bytes. Returns n if all of them are one chunk.
 */
size_t cut_next(const struct cut *c, const uint8_t *bytes, size_t n);
