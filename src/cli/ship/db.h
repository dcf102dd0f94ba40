/*
 * Databases granted to a machine: copies the owner's file, and shows the changes of the copy.
 *
 * The owner's database is only read.
 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "cli/client.h"

/* A whole image of the owner's database, in memory; -1 with *err. */
int db_copy(const char *path, struct err *err);
/* What became of one, as the API tells it, for a person. */
void db_show(const json_t *database);
