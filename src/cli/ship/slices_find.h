/* Asks the daemon for the slices of a machine or of a change set. */
#pragma once

#include "cli/client.h"
#include "review/slices.h"

/*
 * Of a machine; or the one that a change set is the work on, which it knows though machine and
 * grant are gone. None, or one that its owner took back since: an error that says so.
 */
int slices_find(struct client *c, const char *word, struct slices *ret, struct err *err);
/* The same without that: of a machine, all there are. */
int slices_of(struct client *c, const char *machine, struct slices *ret, struct err *err);
