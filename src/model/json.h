/*
 * Reads members of untrusted JSON.
 *
 * A member of the wrong type counts as absent, so a caller handles one case, not two.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

/* Returns the member as a C string; NULL: absent, not a string, or with a NUL inside. */
const char *json_member(const json_t *object, const char *name);
/* Does the same as json_member(), with a default instead of NULL. */
const char *json_member_or(const json_t *object, const char *name, const char *otherwise);
bool json_member_is(const json_t *object, const char *name, const char *value);
/* Returns a member that is a count: 0 if absent, negative or not an integer; at most 2^40. */
uint64_t json_count(const json_t *object, const char *name);

/* Returns the value as compact JSON text, in the arena. */
char *json_text(struct arena *a, const json_t *value, size_t *ret_n);
