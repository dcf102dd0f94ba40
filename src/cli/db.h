/* Databases that are handed over: the owner's is copied, the machine's is compared with it. */
#pragma once

#include "base/err.h"
#include "cli/client.h"

/* A whole image of the owner's database, in memory; -1 with *err. */
int db_copy(const char *path, struct err *err);
/* What the machine made of each that it was handed, for a person. */
int db_show_changes(struct client *c, const char *machine, struct err *err);
