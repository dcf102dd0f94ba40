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
 * Returns at once if the process is root. Otherwise returns in a child process that is root of a
 * new user namespace; the parent stays outside of it, as the outsider.
 */
int rootless_enter(struct spawner *s, struct err *err);

/*
 * Ends a box of an earlier spawner. Only its creator, outside of it, has rights over a user
 * namespace. So the outsider, which never entered one, kills the box. -1: the outsider does not
 * run.
 */
int rootless_end(struct spawner *s, int pidfd);
/* Ends the outsider. Call it when no box of an earlier spawner is left. */
void rootless_dismiss(struct spawner *s);
