/*
 * Functions that `carrel-cell run` and `carrel-cell fuel` share. They are in verb_run.c.
 *
 * All of them run inside the jail.
 */
#pragma once

#include "cell/session.h"

/*
 * Chooses the function to call: --invoke, else _start, else main. It is empty for a module that has
 * nothing to call, and an error for one that exports only other functions.
 */
int chosen_function(struct session *s, struct slice *ret);
int read_arguments(struct session *s, struct slice function, struct cell_values *ret);
/* Instantiates the module, then calls the function, unless its name is empty. */
int run_whole(struct session *s, struct slice function, const struct cell_values *args,
              uint64_t fuel, struct ending *ret);
/* Prints the results of the run, why it ended and the fuel. Returns the exit code. */
int tell_ending(struct session *s, const struct ending *e);
