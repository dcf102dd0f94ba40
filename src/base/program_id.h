/*
 * Which file a program was started from, as a short text: its place on the disk, size and time. The
 * daemon compares that of a running spawner with the installed one, so that an upgrade needs no
 * number that somebody has to remember to raise.
 */
#pragma once

enum { PROGRAM_ID_SIZE = 96 };

/* -1 and an empty text: there is no such file. */
int program_id(const char *path, char ret[PROGRAM_ID_SIZE]);
