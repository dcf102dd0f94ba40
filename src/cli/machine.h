/* Existing machines: check a name, connect to the daemon, list. */
#pragma once

#include "cli/client.h"

/* Refuses a name that cannot be a machine's. */
int cli_machine_check(const char *machine, struct err *err);

/* Checks the name and connects. Where no daemon runs no machine exists: `not_found`. */
int cli_machine_open(struct client *c, const char *machine, struct err *err);

/* Adds all pages of the daemon's list to an array, newest first. */
int machines_list(struct client *c, json_t *rows, struct err *err);
