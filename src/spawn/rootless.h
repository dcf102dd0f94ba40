/*
 * Without root: the spawner becomes root of a user namespace of its own.
 *
 * newuidmap gives it the caller's subordinate ids. Boxes live in namespaces below, under one
 * shared range. What the kernel does not allow there (idmapped layers, loop devices, cgroups that
 * nobody delegated) is left out and said (DECISIONS 7).
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
