/*
 * Request fields that creating and updating a machine share.
 *
 * Both use the same check, so that an update cannot set a value that a creation refuses.
 */
#pragma once

#include "base/err.h"
#include "service/request.h"

bool machine_name_ok(const char *name);

/* Writes the pairs as a JSON object; *ret is NULL without pairs. what: field name for errors. */
int pairs_json(const struct texts *pairs, const char *what, char **ret, struct err *err);

/* The same for environment variables, with which programs of the machine must be able to start. */
int variables_json(const struct texts *pairs, char **ret, struct err *err);

uint64_t given_or(struct given g, uint64_t otherwise);
