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
 * Returns at once as root. Otherwise returns in a child that is root of the new namespace; its
 * parent stays behind as the outsider.
 */
int rootless_enter(struct spawner *s, struct err *err);

/*
 * Who made a user namespace has every power over what lives below it, but only from outside of it:
 * boxes of an earlier spawner are ended by the outsider, which never entered one. -1: there is
 * none.
 */
int rootless_end(struct spawner *s, int pidfd);
/* No box of an earlier spawner is left: it may go. */
void rootless_dismiss(struct spawner *s);
