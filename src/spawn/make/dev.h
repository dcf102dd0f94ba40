/*
 * Contents of /dev in a box: six nodes, some links, and the mount points of terminals and shared
 * memory.
 *
 * Every box has its own nodes. With a shared node one box could see (inotify) when another opens
 * it, and could lock it.
 */
#pragma once

#include <stdbool.h>

/*
 * Tests in the directory `dir` whether this process may create device nodes. A rootless spawner and
 * one in some containers may not.
 */
bool dev_can_make(int dir);

/*
 * Fills an empty directory as /dev. Without the right to create device nodes, mounts those of the
 * host on it. host: descriptor of the host's "/".
 */
int dev_fill(int dir, int host);
