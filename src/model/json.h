/* Reading JSON that somebody else wrote: a member is there with the right type, or it is not. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/arena.h"

/* The member as a C string; NULL: absent, no string, or with a zero byte in it. */
const char *json_member(const json_t *object, const char *name);
/* The same, never NULL. */
const char *json_member_or(const json_t *object, const char *name, const char *otherwise);
bool json_member_is(const json_t *object, const char *name, const char *value);
/* A number of things: 0 when absent, negative or no integer; never above 2^40. */
uint64_t json_count(const json_t *object, const char *name);

/* A compact text of the value, in the arena. */
char *json_text(struct arena *a, const json_t *value, size_t *ret_n);
