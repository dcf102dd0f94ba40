/*
 * Removes a directory tree of any depth.
 *
 * Links are removed, never followed.
 */
#pragma once

/* Returns 0 or an errno. Links are removed, not their targets. */
int wipe_tree(int dir, const char *name);
