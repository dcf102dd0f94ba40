/*
 * Prints members of API answers for people: durations, sizes and times with their units.
 *
 * The name of a member gives its unit, as in idle_ms or disk_bytes.
 */
#pragma once

#include <jansson.h>

#include "base/amount.h"

enum { UNITS_SIZE = AMOUNT_SIZE };

/*
 * The value of a member, by the member's name: NAME_ms and NAME_us are durations, but NAME_ms after
 * the year 2001 is a time; NAME_bytes, bytes, mem and disk are sizes. ret_label is the name without
 * its unit. NULL: the value is an object, an array or a text that is not a time.
 */
const char *units_value(const char *name, const json_t *value, char ret[UNITS_SIZE],
                        char ret_label[UNITS_SIZE]);

/*
 * Prints the members `names` (NULL-terminated) of an object as units_print() does, with "-" for
 * those that it does not have, and then its other members.
 */
void units_print_counts(const json_t *object, const char *const *names);

/* Prints an object as lines "name  value"; nested objects are indented. */
void units_print(const json_t *object, int indent);
