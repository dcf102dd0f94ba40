/*
 * Cell machines without a box. A cell machine that nobody used for two seconds falls asleep: its
 * steps and its root are moved to the store (steps_shelve()), then its box ends. It is still
 * `running` for its users, and any request that needs a box wakes it (live_wake()).
 *
 * The store says that a machine is asleep: its state is MACHINE_RUNNING, and its saved row has no
 * boot id. A paused machine without a boot id has no box either (pause.h). A box that still exists
 * then is left over. Only for src/service.
 */
#pragma once

#include "service/state.h"

bool live_is_asleep(const struct live *l);
/* True if another machine uses layers on the disk of this one, which ends with its box. */
bool asleep_is_shared(struct live *l);

/* Called by the tick: puts the machine to sleep once nobody uses it. */
void asleep_look(struct live *l, uint64_t now_ms);
/*
 * For a machine of an earlier daemon. 1: it is asleep; a box is left over, and is destroyed. 0: it
 * is not asleep. -1: the store cannot be read.
 */
int asleep_adopt(struct live *l, bool has_box, struct err *err);
/* True: the machine is asleep or falling asleep; go() is called when it has a box, or failed. */
bool asleep_wait(struct live *l, service_done_fn *go, void *arg);
void asleep_release(struct live *l); /* the daemon stops */
