/*
 * Deadline and identity of a running machine.
 *
 * Only the spawner may change them.
 */
#pragma once

#include "guest/guest.h"
#include "guest/serve.h"

/* Once, before any thread: when that clock strikes, the machine ends, whatever the loop does. */
int identity_clock(void);
/* In so many ms; 0: never. */
int identity_set_deadline(uint64_t in_ms);

/* CLONE_ID. Best effort per item; the OK value has bit 0 hostname, 1 machine id, 2 seed. */
enum serve_result identity_become(struct guest *g, struct conn *c, const struct frame *f);
