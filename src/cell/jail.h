/*
 * A child process that can only compute and answer.
 *
 * It parses and runs untrusted bytes, which it inherits in memory. Its only descriptor is the link
 * to the parent. A seccomp filter allows it to read and write that link, to use memory that is not
 * executable, and to exit. All other requests go over the link; its answers are hostile.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

/* The child's end. */
struct link {
    int fd;
};

enum {
    JAIL_MAX_TEXT = 64 << 20,   /* all output of one child */
    JAIL_MAX_BLOB = 1 << 30,    /* a state or a log */
    JAIL_MAX_RANDOM = 64 << 10, /* one request */
};

/* Child: for standard output, bytes as they are or text made safe for a terminal; standard error
   is always made safe. */
void link_out(struct link *l, const void *bytes, size_t len);
void link_text(struct link *l, const void *bytes, size_t len);
void link_err(struct link *l, const void *bytes, size_t len);
/* Child: the state or the log, to be written to files by the parent. */
void link_state(struct link *l, const void *bytes, size_t len);
void link_log(struct link *l, const void *bytes, size_t len);
/* Child: ask the parent for the time, or for random bytes (at most JAIL_MAX_RANDOM). */
uint64_t link_clock_ns(struct link *l);
void link_random(struct link *l, void *bytes, size_t len);

/* False in a build with sanitizers, which need system calls of their own: nothing is filtered. */
bool jail_is_tight(void);

/* What the parent may answer, and what it got. */
struct jail {
    int out_fd, err_fd; /* where text goes at once */
    /* What the child may take of the host on top of what it starts with; 0: no limit. */
    uint64_t memory_bytes, cpu_seconds;
    struct buf state, log;
};

/*
 * Run body in a child; its return value comes back. -1: the child died or broke
 * the protocol, with the reason in err.
 */
int jail_run(struct jail *j, int (*body)(struct link *l, const void *arg), const void *arg,
             struct err *err);
