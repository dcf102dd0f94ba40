/*
 * Removes files that boxes wrote. Names, depth and number are hostile: nothing recurses, and a
 * directory that is not empty is moved up first, so depth costs nothing.
 */
#pragma once

/* Everything in the directory `trash` of that one. May be called by several at once. */
void wipe_trash(int disk);
