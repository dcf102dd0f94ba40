/*
 * Removes a directory tree of any depth.
 *
 * Links are removed, never followed.
 */
#pragma once

/* Removes the directory tree dir/name. Returns 0 or an errno. */
int wipe_tree(int dir, const char *name);
