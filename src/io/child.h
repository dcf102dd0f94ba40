/*
 * A program of ours beside the loop: it gets bytes on its input, says something, and ends.
 *
 * The loop never waits for it: what it says is taken as it comes, up to a cap, and one that takes
 * too long is killed. It has no environment and a process group of its own. Its input is wiped.
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
    const int *fds; /* its descriptors 3 and so on: higher ones here; they stay the caller's */
    size_t fd_count;
    size_t out_max, said_max; /* of its output and its complaints; the rest is thrown away */
    uint64_t limit_ms;
};

/* Lives during the call. */
struct child_end {
    int status; /* its exit status; -1: it was killed */
    bool late;  /* by us, for the time it took */
    const char *out, *said;
    size_t out_bytes;
    bool cut; /* it said more than out_max */
};
typedef void child_fn(void *arg, const struct child_end *end);

/* NULL with *err: it was not started, and `done` does not come. */
struct child *child_start(struct loop *loop, const struct child_order *o, child_fn *done, void *arg,
                          struct err *err);
/* `done` comes soon, with what there was. */
void child_kill(struct child *c);
/* Killed and forgotten: `done` does not come. NULL is fine. */
void child_drop(struct child *c);
