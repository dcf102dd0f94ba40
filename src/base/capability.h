/*
 * Capabilities of programs in cells: the names that --allow takes, and a bit for each.
 *
 * Requests, the store and the command line have the names; only the bits of one build agree.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    CAPABILITY_LOG = 1,
    CAPABILITY_ARGS = 2,
    CAPABILITY_RESULT = 4,
    CAPABILITY_TIME = 8,
    CAPABILITY_RANDOM = 16,
    CAPABILITY_CALL = 32,
    CAPABILITY_KV = 64,
    CAPABILITY_HTTP = 128,
    CAPABILITY_MODEL = 256,
    CAPABILITY_ALL = 511,
    CAPABILITY_COUNT = 9,
    CAPABILITIES_SIZE = 128, /* all names with commas; a column of the store has this size */
};

/* Returns the name of capability i, in the order of the bits; NULL after the last. */
const char *capability_name(size_t i);
/* Returns the bit of a name, or 0. */
uint32_t capability_bit(const char *name, size_t len);
/* Reads "log,args" into bits; an empty text is none. ERR_INVALID names the unknown word. */
int capabilities_parse(const char *text, uint32_t *ret, struct err *err);
/* Writes "log,args", in the order of the bits; `ret` has CAPABILITIES_SIZE bytes. */
void capabilities_text(uint32_t bits, char *ret);
