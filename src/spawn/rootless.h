/*
 * Rootless mode: the spawner becomes root of its own user namespace.
 *
 * newuidmap maps the caller's subordinate ids. Boxes live in child namespaces that share one id
 * range. Features that the kernel refuses there (idmapped layers, loop devices, undelegated
 * cgroups) are disabled and reported.
 */
#pragma once

#include "spawn/spawner.h"

/*
 * Returns at once if already root. Otherwise returns in a child that is root of the new namespace;
 * the parent stays outside, as the outsider.
 */
int rootless_enter(struct spawner *s, struct err *err);

/*
 * Rights over a user namespace exist only outside of it, for its creator. So boxes of an earlier
 * spawner are ended by the outsider, which never entered one. -1: the outsider does not run.
 */
int rootless_end(struct spawner *s, int pidfd);
/* Ends the outsider. Call it when no box of an earlier spawner is left. */
void rootless_dismiss(struct spawner *s);
