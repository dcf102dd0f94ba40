/*
 * Fields that requests to create and to update a machine share.
 *
 * One check for both, so that an update cannot set what a creation refuses.
 */
#pragma once

#include "base/err.h"
#include "service/request.h"

bool machine_name_ok(const char *name);

/* Pairs as a JSON object; *ret is NULL if there are none. what: name of the field, for errors. */
int pairs_json(const struct texts *pairs, const char *what, char **ret, struct err *err);

uint64_t given_or(struct given g, uint64_t otherwise);
