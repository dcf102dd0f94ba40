/*
 * Jail of the process that reads hostile archives: its root is the one directory it works on, it
 * has five file capabilities, and its system call filter allows neither network nor new processes.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

/* Enters the jail: `dir` becomes "/", and only descriptors up to `last` stay open. */
int jail_enter(int dir, int last, struct err *err);

/*
 * Like jail_enter(), for a process that compresses. It may start threads, which share its memory,
 * files and filter, but no processes, and it changes no file. A process that reads a hostile
 * archive must not use it. marks: see jail_enter_reading().
 */
int jail_enter_threads(int dir, int last, bool marks, struct err *err);

/*
 * Like jail_enter(), for a process that only reads files. It keeps CAP_SYS_ADMIN, because only that
 * capability shows the marks of overlayfs (trusted.overlay.*). In exchange its filter has no system
 * call that changes names, owners, modes or attributes, it opens files only for reading, and the
 * spawner gives it read-only mounts.
 * marks: false without root, where marks are user.overlay.*. Fails without the capability, because
 * the kernel then hides marks instead of refusing to show them.
 */
int jail_enter_reading(int dir, int last, bool marks, struct err *err);
