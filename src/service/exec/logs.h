/*
 * Files with the output of commands: one each under $CARREL_HOME/log/MACHINE/, opened only by the
 * daemon. They are written from time to time while a command runs, and when it has ended. Writing
 * happens in the thread pool.
 */
#pragma once

#include <stdbool.h>

#include "io/loop.h"
#include "io/outlog_fd.h"

typedef void logs_kept_fn(void *arg, bool kept, const struct outlog_kept *now);

/*
 * Copies into a log's file what came since so_far; `done` on the loop. The log must live until
 * then, and calls for one log follow each other.
 */
void logs_keep(struct loop *loop, const char *home, const char *machine, const char *exec,
               const struct outlog_fd *log, const struct outlog_kept *so_far, logs_kept_fn *done,
               void *arg);

/* The file of a command's output, or -1. */
int logs_open(const char *home, const char *machine, const char *exec);

/* Is all output of a command on disk? Then its file does not change any more. */
bool logs_are_whole(const char *home, const char *machine, const char *exec);

/* What is kept of one command goes; likewise. */
void logs_remove(const char *home, const char *machine, const char *exec);

/* All that is kept of a machine goes; on the calling thread. */
void logs_drop(const char *home, const char *machine);
