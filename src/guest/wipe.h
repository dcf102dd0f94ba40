/*
 * Removes a directory tree of any depth.
 *
 * Links are removed, never followed.
 */
#pragma once

/* Returns 0 or the errno that stopped it. Leaves links alone: it removes them, not their targets.
 */
int wipe_tree(int dir, const char *name);
