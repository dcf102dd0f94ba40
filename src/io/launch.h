/*
 * Starts the daemon or the spawner on first use, as tmux starts its server.
 *
 * The program is detached and logs to the run directory. On a pipe it reports that it is ready
 * ('r'), or why it is not: 'B' (another one already runs) or 'E', then the reason, and a newline
 * and the remedy if there is one.
 */
#pragma once

#include "base/err.h"
#include "io/place.h"

/*
 * `program` is the file name in libexec. Its arguments are "--run R --home H --ready-fd N", then
 * args (NULL-terminated). `*waiting` (either may be NULL) is called if starting takes long, and is
 * then set to NULL, so that retries do not call it again.
 */
int launch(const struct place *place, const char *program, const char *log, const char *const *args,
           void (**waiting)(void), struct err *err);

/* Called by the program: reports ready, or the error. Closes the descriptor. */
void launch_report(int *ready_fd, const struct err *err);
