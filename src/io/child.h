/*
 * A child process beside the event loop: it gets bytes on stdin, writes output, and exits.
 *
 * The loop never waits for the child: output is read as it comes, up to a limit. A child that takes
 * too long is killed. It has an empty environment and its own process group. Its input is erased
 * from memory.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "io/loop.h"

struct child;

struct child_order {
    const char *path;
    const char *const *argv;
    const char *input;
    size_t input_bytes;
    /*
     * These become descriptors 3, 4, ... of the child. Each must have a higher number in the caller
     * than in the child. The caller still owns them.
     */
    const int *fds;
    size_t fd_count;
    size_t out_max, said_max; /* limits of stdout and stderr; the rest is discarded */
    uint64_t limit_ms;
};

/* How a child ended. Valid only during the call of child_fn. */
struct child_end {
    int status; /* exit status; -1: killed */
    bool late;  /* killed by us because of the timeout */
    const char *out, *said;
    size_t out_bytes;
    bool cut; /* stdout exceeded out_max */
};
typedef void child_fn(void *arg, const struct child_end *end);

/* Starts a child. NULL with *err: it did not start, and `done` is not called. */
struct child *child_start(struct loop *loop, const struct child_order *o, child_fn *done, void *arg,
                          struct err *err);
/* Kills the child; `done` is called soon with the output so far. */
void child_kill(struct child *c);
/* Kills the child; `done` is not called. NULL is allowed. */
void child_drop(struct child *c);
