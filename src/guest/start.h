/*
 * Starting one process: vfork, everything that must happen in the child, exec.
 *
 * The child runs on the parent's memory while the parent stands still, so it
 * reports a failure by writing into the struct, and must call nothing that
 * keeps state of the process (no malloc, no setuid of the C library).
 *
 * Somebody inside may stop the child, and so the parent. The other thread of
 * the guest, which a clock wakes, makes it go on and in the end kills it.
 */
#pragma once

#include "guest/guest.h"

struct start {
    const struct msg_exec *exec;
    int stdio[3];             /* all above 2 */
    bool is_session;          /* stdio[0] becomes the controlling terminal */
    int (*tool)(char **argv); /* to be run in the child instead of a program; or NULL */
    const uint64_t *files;    /* RLIMIT_NOFILE to start with: soft, hard */
    int procs;                /* cgroup.procs of the command's tree, or -1 */
    int64_t deadline_ns;      /* it is killed then if it has not begun; 0: after START_MAX_NS */
    /* Results. */
    pid_t pid;
    int failed_errno; /* 0: it runs */
    enum msg_step failed_step;
};

#define START_MAX_NS 10000000000

/* Once, before any thread: the clock the other thread waits for, or -1. */
int start_clock(void);
/* In the other thread, whenever that clock says so. */
void start_prod(void);

/* Returns only after the exec has happened or failed; a failed child is reaped already. */
void start_process(struct start *s);
