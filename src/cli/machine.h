/*
 * Existing machines: checks a name, connects to the daemon, lists machines.
 *
 * A daemon is started only if the store may hold machines.
 */
#pragma once

#include <stdio.h>

#include "cli/client.h"

/* Refuses a text that cannot be the name or id of a machine. */
int cli_machine_check(const char *machine, struct err *err);

/* Checks the name and connects. ERR_NOT_FOUND if there is neither a daemon nor a store. */
int cli_machine_open(struct client *c, const char *machine, struct err *err);

/* Gets all machines as {"machines":[...]}, newest first. The caller frees *ret, also after
 * a failure, when it has only the machines read so far. */
int machines_list(struct client *c, json_t **ret, struct err *err);

/* Prints a line if the disk of the store is full. `store`: that member of the answer of
 * machines_list(); NULL: the disk is not full. */
void store_note(const json_t *store, FILE *to);
