/* Databases that are handed over: the owner's is copied, and what became of the copy is shown. */
#pragma once

#include <jansson.h>

#include "base/err.h"
#include "cli/client.h"

/* A whole image of the owner's database, in memory; -1 with *err. */
int db_copy(const char *path, struct err *err);
/* What the machine made of each that it was handed, as the API tells it, or "error": an array. */
int db_changes(struct client *c, const char *machine, json_t **ret, struct err *err);
/* The same for a person. */
void db_show_changes(const json_t *databases);
