/*
 * All that is compared, the floor and the peers too, goes before other work on this host. A nice
 * value counts only within a session where the kernel groups tasks by session, and a box is a
 * session of its own: where there is a v1 hierarchy, a cgroup of great weight holds them all.
 */
#pragma once

#include "report.h"

struct preference {
    char group[80];
};

/* This process and its children from now on; says so in the report. */
void prefer(struct preference *p, struct report *r);
void prefer_no_more(const struct preference *p);
