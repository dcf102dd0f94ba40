/*
 * Bounded schemas: what may be said where nobody may be told what to do. Pure.
 *
 * A few words of JSON Schema whose values are small and of known form: a choice of an enum, a short
 * text of letters, digits and a few marks, a number within bounds, true or false; and an object of
 * those. What a hostile text can say through such a value is what its shape lets through and
 * nothing else.
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

/* That of one value: string with enum or maxLength, integer or number with minimum and maximum,
 * boolean. */
int shape_check(const json_t *shape, struct err *err);
int shape_fits(const json_t *shape, const json_t *value, struct err *err);
/* Of one that was checked: its values are not free text. */
bool shape_is_closed(const json_t *shape);

/* An object of them, all of which must be there and nothing else. */
int shape_record_check(const json_t *shape, struct err *err);
int shape_record_fits(const json_t *shape, const json_t *value, struct err *err);
