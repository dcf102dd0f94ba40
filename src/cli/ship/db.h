/*
 * Databases granted to a machine: copies the owner's file, and shows the changes of the copy.
 *
 * The owner's database is only read.
 */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "cli/client.h"

/* Copies the owner's database into memory; returns a descriptor, or -1 with *err. */
int db_copy(const char *path, struct err *err);
/* Prints the changes of a database. `database` is the JSON that the API returns for them. */
void db_show(const json_t *database);
