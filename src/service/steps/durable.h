/*
 * Durable steps: copies of layers that survive a restart of the host. The layers of the newest step
 * are copied to the store in the background and synced. After a restart of the host, or after its
 * first process was killed, a machine is stopped at its durable step until it is resumed.
 */
#pragma once

#include "service/state.h"

#define FALL_KILLED "its first process was killed from outside"

/* Call it when there is a new step. */
void durable_want(struct live *l);
/* Called on every tick: starts to save the newest step when that is due. */
void durable_look(struct live *l, uint64_t now_ms);
/* The daemon stops: the next daemon starts the copy again. */
void durable_release(struct live *l);

enum durable_fate {
    DURABLE_NONE,    /* nothing was saved: the machine has ended */
    DURABLE_STOPPED, /* the machine is now stopped at its durable step */
    DURABLE_LATER,   /* the store cannot be read or written now: ask again, end no machine */
};
/* Decides what happens to a machine whose box no longer exists. */
enum durable_fate durable_adopt(struct live *l, struct err *err);
/*
 * True if the machine has a durable step to return to when it loses its box, or if that is unknown.
 */
bool durable_is(struct live *l);
/* Call it when a machine has ended: its saved layers may be unused now. */
void durable_ended(const struct live *l);
/* Called on every tick: deletes saved layers of ended machines from time to time. */
void durable_sweep(struct service *s);

/* `wanted` is false while the boxes of the host are unknown: then nothing may be deleted. */
void durable_want_sweep(struct service *s, bool wanted);
/* Why the last attempt to save the newest step failed; NULL: it did not. */
const char *durable_why(const struct live *l);

/* The id of this boot of the host. */
void durable_boot(char ret[40]);

/*
 * In shelve.c. Moves the root and all steps of a machine to the store, so that its box can end
 * without a loss, and writes that the machine has no box. Call it with the barrier closed, while no
 * step is in progress and the upper is empty. After an error, nothing has changed.
 */
void steps_shelve(struct live *l, machine_done_fn *done, void *arg);
/*
 * The same for a vm that stands still: its root becomes the stack of its newest step, a copy, and
 * its upper ends with its box. write(arg) is called in the transaction.
 */
void steps_shelve_at(struct live *l, const char *stack, int (*write)(void *arg, struct err *err),
                     machine_done_fn *done, void *arg);

/*
 * In wake.c. Creates a box for a machine without one. Calls `done` when it runs, `late` when it
 * runs but the change is not saved yet.
 */
void live_wake(struct live *l, machine_done_fn *done, machine_done_fn *late, void *arg);
