/*
 * A helper process beside the loop: it gets bytes on stdin, writes output, and exits.
 *
 * The loop never waits for it: output is read as it comes, up to a cap, and a process that takes
 * too long is killed. It has an empty environment and its own process group. Its input is wiped.
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
    const int *fds; /* become its descriptors 3, 4, ...; must be higher here; owned by the caller */
    size_t fd_count;
    size_t out_max, said_max; /* caps of stdout and stderr; the rest is discarded */
    uint64_t limit_ms;
};

/* Valid during the call. */
struct child_end {
    int status; /* exit status; -1: killed */
    bool late;  /* killed by us because of the timeout */
    const char *out, *said;
    size_t out_bytes;
    bool cut; /* stdout exceeded out_max */
};
typedef void child_fn(void *arg, const struct child_end *end);

/* NULL with *err: not started, `done` is not called. */
struct child *child_start(struct loop *loop, const struct child_order *o, child_fn *done, void *arg,
                          struct err *err);
/* Kills it; `done` is called soon with the output so far. */
void child_kill(struct child *c);
/* Kills it; `done` is not called. NULL is fine. */
void child_drop(struct child *c);
