/*
 * The barrier of a machine: changes wait while a step is taken, and while an earlier change is not
 * committed. Every operation that changes files of a machine passes it first. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* True: not now; go(arg) is called when it may be, also when the machine has ended meanwhile. */
bool barrier_wait(struct live *l, loop_fn *go, void *arg);

/* The same for who only reads, and waits only for a root that is on its way: for a moment /proc and
 * lent directories are in neither. */
bool barrier_wait_root(struct live *l, loop_fn *go, void *arg);

/* The same for who only looks, and does not wait for a full disk or a guest that says nothing. */
bool barrier_wait_settled(struct live *l, loop_fn *go, void *arg);

/*
 * For who changes something: 1 it waits, and go(arg) asks again; 0 it may go on, or the machine has
 * ended; -1 it is refused, with the reason: the disk has been full for a while and what was done
 * last is not written down, or what an earlier daemon began is not known.
 */
int barrier_enter(struct live *l, loop_fn *go, void *arg, struct err *err);

int barrier_check(const struct live *l, struct err *err); /* the last of these alone */

void barrier_init(struct live *l);

void barrier_let_all(struct live *l); /* everybody who waits is called, closed or not */

void barrier_heard(struct live *l); /* its commands and steps are known: who waits goes on */

bool barrier_is_unheard(const struct live *l); /* they are not, though its guest is there */

void barrier_release(struct live *l); /* the daemon leaves: nobody is */

/* Held by a verb that changes the root itself. False: try again later through barrier_wait(). */
void barrier_close(struct live *l);

void barrier_open(struct live *l);
