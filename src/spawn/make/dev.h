/*
 * Contents of /dev in a box: six nodes, some links, and the mount points of terminals and shared
 * memory.
 *
 * Every box has its own nodes. With a shared node one box could see (inotify) when another opens
 * it, and could lock it.
 */
#pragma once

#include <stdbool.h>

/* Tries in dir whether we may create nodes. Rootless we may not, nor in some containers. */
bool dev_can_make(int dir);

/*
 * Fills an empty directory. Without the right to create nodes, it binds those of the host (an open
 * "/").
 */
int dev_fill(int dir, int host);
