/*
 * Warms the name cache of a new root: looks up the paths that most programs need, one at a time and
 * only while the guest is idle. It only looks up and never opens: a path in a box may be anything.
 */
#pragma once

#include <stdbool.h>

/*
 * The root is new. Before the first command only what every program needs is looked up: each name
 * takes kernel memory, and a box may stay idle.
 */
void warm_begin(bool first);
/* One that runs now is likely to run again. */
void warm_remember(const char *program);
bool warm_is_due(void);
/* The next few. */
void warm_go_on(void);
