/*
 * The cgroup of each command. Every descendant of the command stays in its cgroup. So killing the
 * cgroup kills all of them, also processes that left their session or parent.
 */
#pragma once

#include "guest/guest.h"

/*
 * Adds a spare cgroup to the table, which then owns the three descriptors (kill may be -1). False:
 * the table is full, and they are closed.
 */
bool tree_add(struct guest *g, int procs, int freeze, int kill);

/* Makes cgroups in this directory from now on, when none is free. The table owns the descriptor. */
void tree_begin(struct guest *g, int dir);

/* Returns a cgroup without processes for a new command; NULL: none is free. */
struct tree *tree_take(struct guest *g);

/* Removes a cgroup that no process can enter from the table. */
void tree_drop(struct tree *t);
uint32_t tree_spares(const struct guest *g);

bool tree_is_empty(struct guest *g, const struct tree *t);

/*
 * Kills all processes of the command's cgroup. True: no process was left. False: call again soon,
 * because processes may still be ending or may have forked. Without cgroups it finds only the
 * command's session and descendants.
 */
bool tree_kill(struct guest *g, const struct tree *t, pid_t leader);
