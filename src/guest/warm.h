/*
 * Fills the kernel's cache of file names for a new root: looks up the paths that most programs
 * need, one at a time and only while the guest is idle. It only looks up and never opens: a path in
 * a box may be anything.
 */
#pragma once

#include <stdbool.h>

/*
 * Call it when the root is new. first: no command ran yet, so only the names that every program
 * needs are looked up. Each name takes kernel memory, and a box may stay idle.
 */
void warm_begin(bool first);
/* Remembers the program that was started last: it is likely to be started again. */
void warm_remember(const char *program);
bool warm_is_due(void);
/* Looks up the next few paths. */
void warm_go_on(void);
