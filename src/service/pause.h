/*
 * A pause of a cell machine or a vm, whose box ends.
 *
 * The programs of a cell are stored in files (exec/stored.h), and its files are moved to the store
 * as for its sleep (asleep.h). A vm stands still while a step with its memory is taken
 * (vm/memory.h), and that step is moved to the store. What cannot be stored is frozen in memory, as
 * in a box. The machine then has a box that is frozen.
 *
 * The store says that a paused machine has no box: its saved row has no boot id. For a vm, that and
 * its state are written in one transaction: before it, the vm goes on, if need be by the next
 * daemon; after it, only the step counts, and a box that is left is ended. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* Pauses a machine that runs. The caller writes the state afterwards. */
void pause_machine(struct live *l, enum state_by by, machine_done_fn *done, void *arg);
/* True if a vm that was powered off from inside can be stopped with its newest files. */
bool pause_may_stop(struct live *l);
/* Moves these files to the store, and stops the machine. After an error it is as before. */
void pause_stop(struct live *l, const char *why, machine_done_fn *done, void *arg);
/*
 * For a request that needs the files of a paused machine without a box. True: go() is called when
 * it has one, which is frozen, or failed.
 */
bool pause_peek(struct live *l, service_done_fn *go, void *arg);
/* True if the machine is paused and has no box. */
bool live_is_stored(const struct live *l);
