/*
 * Wakes paused and stopped machines for requests that need them running.
 *
 * A machine that idleness put to rest wakes for everybody who may run commands in it. One that its
 * owner put to rest wakes only for that owner, one that an administrator put to rest only for an
 * administrator. Only for src/service.
 */
#pragma once

#include "service/state.h"

/* Returns how a change of state by this caller is recorded. */
enum state_by rest_by(const struct live *l, const struct caller *who);

/*
 * Call it before a request that needs the machine running. 0: it runs. 1: go() is called later from
 * the loop: with the error, or with NULL, and then the request must call this function again. -1:
 * refused. A machine that lost its processes is refused too, so that its owner learns of the loss.
 */
int rest_wake(struct live *l, const struct caller *who, service_done_fn *go, void *arg,
              struct err *err);

/* Adds a request that waits for the end of the operation in progress, or of the next one. */
void rest_join(struct live *l, service_done_fn *go, void *arg);
void rest_join_first(struct live *l, service_done_fn *go, void *arg); /* before all others */
/* An operation on the machine is over: requests that waited for that continue. */
void rest_settled(struct live *l);
void rest_release(struct live *l); /* the daemon stops: drops all waiting requests */
