/*
 * Where the output of commands is kept once it is complete: one file each under
 * $CARREL_HOME/log/MACHINE/, which only the daemon opens. Writing happens on a worker.
 */
#pragma once

#include <stdbool.h>

#include "io/loop.h"
#include "io/outlog_fd.h"

/* Copies a log into its file; `done` on the loop. The log must live until then. */
void logs_keep(struct loop *loop, const char *home, const char *machine, const char *exec,
               const struct outlog_fd *log, void (*done)(void *arg, bool kept), void *arg);

/* The file of a command's output, or -1. */
int logs_open(const char *home, const char *machine, const char *exec);

/* All that is kept of a machine goes; on the calling thread. */
void logs_drop(const char *home, const char *machine);
