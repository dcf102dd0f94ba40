/*
 * Functions that `carrel-cell run` and `carrel-cell fuel` share. They are in verb_run.c.
 *
 * All of them run inside the jail.
 */
#pragma once

#include "cell/session.h"

/* The export to call: --invoke, or _start, or main; empty when there is none. */
struct slice chosen_function(const struct session *s);
int read_arguments(struct session *s, struct slice function, struct cell_values *ret);
/* Instantiate, then call the function, unless empty. */
int run_whole(struct session *s, struct slice function, const struct cell_values *args,
              uint64_t fuel, struct ending *ret);
/* Print results, reason and fuel; the exit code that belongs to them. */
int tell_ending(struct session *s, const struct ending *e);
