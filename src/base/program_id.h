/*
 * Identifies the file of a program by device, inode, size and time. The daemon compares a running
 * spawner with the installed one, so an upgrade is noticed without a version number.
 */
#pragma once

enum { PROGRAM_ID_SIZE = 96 };

/* -1 and an empty text: the file does not exist. */
int program_id(const char *path, char ret[PROGRAM_ID_SIZE]);
