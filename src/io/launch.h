/*
 * Starts one of our resident programs on first use, as tmux starts its server.
 *
 * The program is detached and logs to the run directory. On a pipe it reports that it is ready
 * ('r'), or why it is not ('E', the reason, a newline and the remedy).
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

/* Called by the program: reports ready, or the error. Closes the descriptor. */
void launch_report(int *ready_fd, const struct err *err);
