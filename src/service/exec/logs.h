/*
 * Files with the output of commands: one per command under $CARREL_HOME/log/MACHINE/, opened only
 * by the daemon. They are written from time to time while a command runs, and when it has ended.
 * Writing happens in the thread pool.
 */
#pragma once

#include <stdbool.h>

#include "io/loop.h"
#include "io/outlog_fd.h"

typedef void logs_kept_fn(void *arg, bool kept, const struct outlog_kept *now);

/*
 * Appends new output since so_far to the file; `done` is called on the loop. The log must stay
 * valid until then. Calls for one log must not overlap.
 */
void logs_keep(struct loop *loop, const char *home, const char *machine, const char *exec,
               const struct outlog_fd *log, const struct outlog_kept *so_far, logs_kept_fn *done,
               void *arg);

/* Opens the file of a command's output. -1: it cannot be opened. */
int logs_open(const char *home, const char *machine, const char *exec);

/* True if all output is on disk; then the file does not change any more. */
bool logs_are_whole(const char *home, const char *machine, const char *exec);

/* Deletes the output of one command, on the calling thread. */
void logs_remove(const char *home, const char *machine, const char *exec);

/* Deletes the output of a machine, on the calling thread. */
void logs_drop(const char *home, const char *machine);
