/*
 * The cgroup of each command. Every descendant stays in it, so killing it reaches all of them, also
 * processes that left their session or parent.
 */
#pragma once

#include "guest/guest.h"

/* Keeps the three descriptors (kill may be -1). False: the table is full; they are closed. */
bool tree_add(struct guest *g, int procs, int freeze, int kill);

/* A cgroup without processes for a new command; NULL: there is none. */
struct tree *tree_take(struct guest *g);

/* That cgroup cannot be entered (any more): forget it. */
void tree_drop(struct tree *t);
uint32_t tree_spares(const struct guest *g);

bool tree_is_empty(struct guest *g, const struct tree *t);

/*
 * SIGKILL to everything in the command's tree. True: nothing was left alive to
 * kill; false: call again soon, some may be dying or may have been forking.
 * Without cgroups this finds the command's session and its descendants only.
 */
bool tree_kill(struct guest *g, const struct tree *t, pid_t leader);
