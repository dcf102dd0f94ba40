/*
 * Deadline and identity (host name, machine id, random seed) of a running machine.
 *
 * Only the spawner may change them.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

/*
 * Creates the timer of the machine's deadline and returns its descriptor. Call it once, before any
 * thread starts. When it expires, the machine ends, even if the loop is blocked.
 */
int identity_clock(void);
/* Ends the machine in in_ms milliseconds; 0: never. */
int identity_set_deadline(uint64_t in_ms);

/*
 * Handles the message CLONE_ID: sets host name, machine id and random seed, as far as possible.
 * Bits 0, 1 and 2 of the OK value say which of these were set.
 */
enum serve_result identity_become(struct guest *g, struct conn *c, const struct frame *f);

/*
 * Handles the message RESUMED: sets the clock and the seed, forgets the commands of the host before
 * unless the machine was paused and, in a copy, sets the host name, and replaces machine id and
 * host keys, as far as possible.
 */
enum serve_result identity_resume(struct guest *g, struct conn *c, const struct frame *f);
