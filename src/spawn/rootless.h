/*
 * Without root: the spawner becomes root of a user namespace of its own.
 *
 * newuidmap gives it the caller's subordinate ids. Boxes live in namespaces below, under one
 * shared range. What the kernel does not allow there (idmapped layers, loop devices, cgroups that
 * nobody delegated) is left out and said (DECISIONS 7).
 */
#pragma once

#include "spawn/spawner.h"

/* Returns at once as root. Otherwise returns in a child that is root of the new namespace. */
int rootless_enter(struct spawner *s, struct err *err);
