/*
 * The barrier of a machine: changes wait while a step is taken, and while an earlier change is not
 * committed. Every operation that changes files of a machine passes it first. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* True: wait; go(arg) is called when the caller may continue, also if the machine has ended. */
bool barrier_wait(struct live *l, loop_fn *go, void *arg);

/*
 * As barrier_wait(), for a reader. It waits only while the root is switched, because for a moment
 * /proc and granted directories are in neither root.
 */
bool barrier_wait_root(struct live *l, loop_fn *go, void *arg);

/*
 * As barrier_wait(), for a check, which does not wait for a full disk or a guest that does not
 * answer.
 */
bool barrier_wait_settled(struct live *l, loop_fn *go, void *arg);

/*
 * Call it before a change. 1: wait, go(arg) is called later and must call it again. 0: continue, or
 * the machine has ended. -1: refused, because the disk is full and the last change is not saved, or
 * because the state left by an earlier daemon is unknown.
 */
int barrier_enter(struct live *l, loop_fn *go, void *arg, struct err *err);

int barrier_check(const struct live *l, struct err *err); /* barrier_enter() without waiting */

void barrier_init(struct live *l);

void barrier_let_all(struct live *l); /* continues all requests, even with the barrier closed */

void barrier_heard(struct live *l); /* the guest has reported its commands: requests continue */

/* True if the guest exists but did not report its commands. */
bool barrier_is_unheard(const struct live *l);

void barrier_release(struct live *l); /* the daemon stops: drops all waiting requests */

/* An operation that changes the root closes the barrier before and opens it after. */
void barrier_close(struct live *l);

void barrier_open(struct live *l);
