/*
 * Starting a resident program of ours on first use, as tmux starts its server.
 *
 * It is detached: nobody's child, its log in the run directory. It says on a pipe that it is ready
 * ('r'), or why it cannot be ('E', the reason, and the remedy behind a newline).
 */
#pragma once

#include "base/err.h"
#include "io/place.h"

/*
 * program: its name in libexec; "--run R --home H --ready-fd N" and then args (NULL-terminated)
 * are its words. `*waiting` (either may be NULL) is called when starting takes a while, and is
 * NULL from then on: who tries again says so once.
 */
int launch(const struct place *place, const char *program, const char *log, const char *const *args,
           void (**waiting)(void), struct err *err);

/* For the program itself: ready, or not (err). Closes the descriptor. */
void launch_report(int *ready_fd, const struct err *err);
