/*
 * Removes files that boxes wrote. Names, depth and number are hostile: nothing recurses, and a
 * directory that is not empty is moved up first, so depth costs nothing.
 */
#pragma once

/* Deletes everything in the directory `trash` there. Several may call it at once. */
void wipe_trash(int disk);
