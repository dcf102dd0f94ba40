/*
 * Durable steps: copies of layers that survive a restart of the host. The layers of the newest step
 * are copied to the store in the background and synced. After a restart of the host, or after its
 * first process was killed, a machine is stopped at its durable step until it is resumed.
 */
#pragma once

#include "service/state.h"

#define FALL_KILLED "its first process was killed from outside"

/* There is a new step. */
void durable_want(struct live *l);
/* From the tick: begins to copy when its time has come. */
void durable_look(struct live *l, uint64_t now_ms);
/* The daemon leaves: the next one begins anew. */
void durable_release(struct live *l);

enum durable_fate {
    DURABLE_NONE,    /* nothing of it was saved: it has ended */
    DURABLE_STOPPED, /* it is its durable step from now on */
    DURABLE_LATER,   /* that cannot be read or written now: ask again, and end nothing */
};
/* One without a box. */
enum durable_fate durable_adopt(struct live *l, struct err *err);
/* Would it be its durable step without its box? Also where that cannot be read. */
bool durable_is(struct live *l);
/* It may leave something in the store that nobody needs any more. */
void durable_ended(const struct live *l);
/* From the tick: what was saved of machines that have ended goes, now and then. */
void durable_sweep(struct service *s);

/* False: the boxes of the host are not known, so that nothing may go yet. */
void durable_want_sweep(struct service *s, bool wanted);
/* Why the last try to save its newest step failed; NULL: it did not. */
const char *durable_why(const struct live *l);

/* Which boot of the host this is. */
void durable_boot(char ret[40]);

/* wake.c: makes a box for one that has none; done: it runs. late: that is not written down yet. */
void live_wake(struct live *l, machine_done_fn *done, machine_done_fn *late, void *arg);
