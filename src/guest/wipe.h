/* Removing a directory with everything in it, however deep it is. */
#pragma once

/* Returns 0 or the errno that stopped it. Leaves links alone: it removes them, not their targets.
 */
int wipe_tree(int dir, const char *name);
