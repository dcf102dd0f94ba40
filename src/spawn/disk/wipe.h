/*
 * Removing what boxes wrote. Names, depth and number are a box's choice: nothing recurses, and a
 * directory that is not empty moves up, so that depth costs nothing.
 */
#pragma once

/* Everything in the directory `trash` of that one. May be called by several at once. */
void wipe_trash(int disk);
