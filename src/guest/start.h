/*
 * Starts one process: vfork, set-up of the child, exec.
 *
 * The child uses the parent's memory while the parent waits. It reports a failure by writing to the
 * struct. It must not call functions that keep state of the process (malloc, setuid of the C
 * library).
 *
 * A process in the machine may stop the child (SIGSTOP), and then the parent waits too. The other
 * thread of the guest is woken by a timer: it continues the child, and kills it at the deadline.
 */
#pragma once

#include "guest/guest.h"

struct start {
    const struct msg_exec *exec;
    int stdio[3];    /* descriptors that become 0, 1 and 2 of the command; all are above 2 */
    bool is_session; /* stdio[0] becomes the controlling terminal */
    int (*tool)(char **argv); /* function that runs in the child instead of a program; NULL: none */
    int worker, meter; /* in a cell machine: its worker program, and memory to count fuel; or -1 */
    int asks;          /* in a cell machine: socket to the daemon; -1: none */
    int dump;          /* in a cell machine: a dump for the worker (cell/dump.h); -1: none */
    int control;       /* in a cell machine: socket between worker and guest; -1: none */
    int state;         /* in a cell machine: a stored program; -1: none */
    const uint64_t *files; /* RLIMIT_NOFILE of the command: soft, hard */
    int procs;             /* cgroup.procs of the command's tree, or -1 */
    int64_t deadline_ns;   /* when a child that did not exec is killed; 0: START_MAX_NS */
    /* Results of start_process(). */
    pid_t pid;
    int failed_errno; /* errno of the failed start; 0: the process runs */
    enum msg_step failed_step;
};

#define START_MAX_NS 10000000000

/*
 * Creates the timer that the other thread waits for, and returns its descriptor or -1. Call it
 * once, before any thread starts.
 */
int start_clock(void);
/* The other thread calls it when the timer of start_clock() expires. */
void start_prod(void);

/*
 * Starts the process and returns after the exec has succeeded or failed. If it failed, the child
 * has already been waited for.
 */
void start_process(struct start *s);
