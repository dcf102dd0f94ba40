/*
 * Removes files that boxes wrote, with any names, depth and number. Nothing recurses: a directory
 * that is not empty is moved up first, so depth does not matter.
 */
#pragma once

/*
 * Deletes everything in the directory `trash` of the disk. Several processes may do this at once.
 */
void wipe_trash(int disk);
