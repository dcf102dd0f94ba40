/*
 * Ready boxes: whole boxes, their guest up and waiting, made while there is nothing else to do.
 *
 * One is made from a berth with the default limits, under a name that is no machine's, and holds
 * nothing of any creator's. At hand-out it gets its limits, host name, machine.json, deadline and
 * record, then its name, and only then is its creator told. It is used once. A plan that asks for
 * what must be there before the guest starts (grants, another disk size) is served from a berth.
 *
 * Until then its creator's connection is ours: if we go, the guest sees it close and ends, and the
 * next spawner takes the rest away, as with every box whose creator has gone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/plan.h"

struct spawner;
struct box;
struct making;

enum { READY_MAX = 8, READY_DEFAULT = 3 };

struct ready {
    struct box *box; /* in no list yet */
    struct making *making;
};

struct ready_pool {
    struct ready list[READY_MAX]; /* oldest first */
    size_t count, wanted;
    bool broken; /* making one failed: not tried again before the image changes */
};

/* One step of refilling, from a full pool of berths; false when there is nothing to do. */
bool ready_refill(struct spawner *s);

/* A box for this plan, ready to be talked to; NULL if none fits. It is in no list yet. */
struct making *ready_take(struct spawner *s, const struct plan *plan, struct box **ret);

void ready_drop(struct spawner *s);

/* After a crash: does this name in boxes/ belong to one that nobody was given? */
bool ready_is_name(const char *name);
