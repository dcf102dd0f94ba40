/*
 * Asks the daemon for the slices of a machine or of a change set. A slice is a granted directory,
 * repository or database whose changes can be shipped back.
 */
#pragma once

#include "cli/client.h"
#include "review/slices.h"

/*
 * Finds all slices of a machine, or the one slice that a change set belongs to. A change set knows
 * its slice even when the machine and the grant no longer exist. Fails if there is no slice, or if
 * the grant of the change set was revoked. word: MACHINE, or the id of a change set.
 */
int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err);
/* Finds all slices of a machine; finding none is not an error. */
int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err);
