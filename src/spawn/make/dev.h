/*
 * What a box finds in /dev: six nodes, some links, and the places of terminals and shared memory.
 *
 * Every box has nodes of its own. Of one that two boxes share, each could watch (inotify) when the
 * other opens it, and lock it for the other.
 */
#pragma once

#include <stdbool.h>

/* May we make nodes? Tried in dir. Rootless we may not, nor in some containers. */
bool dev_can_make(int dir);

/* Fills an empty directory. Who may not make nodes binds those of the host (an open "/"). */
int dev_fill(int dir, int host);
