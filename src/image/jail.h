/*
 * Jail of the process that reads hostile archives: its root is the one directory it works on, it
 * has five file capabilities, and its system call filter allows neither network nor new processes.
 */
#pragma once

#include "base/err.h"

/* Enters the jail: `dir` becomes "/", and only descriptors up to `last` stay open. */
int jail_enter(int dir, int last, struct err *err);
