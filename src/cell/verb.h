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
/* Writes the call that comes next in front of a state, if the function was not called yet. */
bool next_call_save(const struct session *s, struct buf *ret);
/* Takes it from the front of *state, if it is there. The texts in *o point into the state. */
int next_call_resume(struct session *s, struct slice *state, struct cell_options *o,
                     struct err *err);
/* Makes the store from a saved state. After a failure the session has no store. */
int resume_store(struct session *s, struct slice state, struct err *err);
/* The same for a state without the parts of the host in front. */
int resume_engine(struct session *s, struct slice state, struct err *err);
/* Checks the digest in front of a warm image, and takes it away. */
bool warm_is_whole(struct slice *image);
/* Sends the state of the stopped program to the parent process; as a warm image, with its head. */
int send_state(struct session *s, bool is_image);
void send_image_head(struct session *s, struct slice state);
/* Continues a warm image with the request of the job; starts cold if the image does not fit. */
int run_warm(struct session *s, struct ending *ret);
int run_new(struct session *s, struct ending *ret);
/* Prints the results of the run, why it ended and the fuel. Returns the exit code. */
int tell_ending(struct session *s, const struct ending *e);
