/*
 * Bounded schemas: a small subset of JSON Schema for values that may come from hostile text. Pure.
 *
 * A value is an enum choice, a short string of letters, digits and a few punctuation characters, a
 * number with bounds, or a boolean; a record is an object of such values. Hostile text can pass
 * only what the schema lets through.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"

enum {
    SHAPE_TEXT_MAX = 200,
    SHAPE_CHOICES_MAX = 64,
    SHAPE_MEMBERS_MAX = 16,
    SHAPE_NAME_MAX = 40,
};

/* Checks the schema of one value: string with enum or maxLength, integer or number with minimum and
 * maximum, or boolean. */
int shape_check(const json_t *shape, struct err *err);
int shape_fits(const json_t *shape, const json_t *value, struct err *err);
/* For a checked schema: true if its values cannot be free text. */
bool shape_is_closed(const json_t *shape);

/* Checks the schema of a record: an object in which every property is required, and no other is
 * allowed. */
int shape_record_check(const json_t *shape, struct err *err);
int shape_record_fits(const json_t *shape, const json_t *value, struct err *err);
