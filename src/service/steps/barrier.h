/*
 * The barrier of a machine: changes wait while a step is taken, and while an earlier change is not
 * committed. Every operation that changes files of a machine passes it first. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* True: wait; go(arg) is called when the caller may continue, also if the machine has ended. */
bool barrier_wait(struct live *l, loop_fn *go, void *arg);

/*
 * The same for a reader, which waits only for a switch of the root: for a moment /proc and granted
 * directories are in neither root.
 */
bool barrier_wait_root(struct live *l, loop_fn *go, void *arg);

/* The same for a check, which does not wait for a full disk or a silent guest. */
bool barrier_wait_settled(struct live *l, loop_fn *go, void *arg);

/*
 * For a change. 1: wait, go(arg) calls again. 0: continue, or the machine has ended. -1: refused
 * with the reason: the disk is full and the last change is not saved, or the state left by an
 * earlier daemon is unknown.
 */
int barrier_enter(struct live *l, loop_fn *go, void *arg, struct err *err);

int barrier_check(const struct live *l, struct err *err); /* only the check for -1 */

void barrier_init(struct live *l);

void barrier_let_all(struct live *l); /* calls all waiting requests, even if closed */

void barrier_heard(struct live *l); /* commands and steps are known: waiting requests continue */

bool barrier_is_unheard(const struct live *l); /* they are unknown, although the guest exists */

void barrier_release(struct live *l); /* the daemon stops: drops all waiting requests */

/* Held by an operation that changes the root. False: try again later with barrier_wait(). */
void barrier_close(struct live *l);

void barrier_open(struct live *l);
