/*
 * Removes files that boxes wrote, with any names, depth and number. Nothing recurses: a directory
 * that is not empty is moved up first, so depth does not matter.
 */
#pragma once

/*
 * Moves an entry of the disk to its directory `trash`, with the name `as`. wipe_trash() may delete
 * that directory at the same time. -ENOENT: the entry does not exist.
 */
int trash_put(int disk, const char *name, const char *as);

/*
 * Deletes everything in the directory `trash` of the disk. Several processes may do this at once.
 */
void wipe_trash(int disk);
