/*
 * Existing machines: check a name, connect to the daemon, list.
 *
 * No daemon is started: without a running daemon there are no machines.
 */
#pragma once

#include <stdio.h>

#include "cli/client.h"

/* Refuses a name that cannot be a machine's. */
int cli_machine_check(const char *machine, struct err *err);

/* Checks the name and connects. Where no daemon runs no machine exists: `not_found`. */
int cli_machine_open(struct client *c, const char *machine, struct err *err);

/* {"machines":[...]}, newest first: all pages of the daemon's list; *ret is set in any case. */
int machines_list(struct client *c, json_t **ret, struct err *err);

/* One line about a disk that is full, `store` of that list; NULL: none. */
void store_note(const json_t *store, FILE *to);
