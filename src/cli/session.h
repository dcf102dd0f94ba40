/*
 * One command in a machine, with the caller's own standard streams.
 *
 * A pipe of the caller is handed in as it is: lossless and back-pressured, not a byte passes
 * through us. Anything else (a file, a terminal, a socket) stays outside and is relayed, so that
 * no host object but a pipe is ever inside. With a terminal the command gets one of its own.
 */
#pragma once

#include <stdbool.h>

#include "base/buf.h"
#include "base/msg.h"
#include "io/guest_link.h"

struct remote;

struct session {
    struct remote *remote;   /* the far end */
    bool exited;             /* result is there */
    bool output_open;        /* a terminal's output goes on */
    struct msg_exec exec;    /* argv, env, cwd (or none) and timeout filled by the caller */
    const char *user;        /* NULL: the machine's own choice */
    bool terminal;           /* give the command a terminal */
    bool ends_machine;       /* drain to the very end: nothing is left running behind */
    struct buf *captured[2]; /* stdout and stderr go here instead; NULL: to our own streams */
    bool cut[2];             /* what was captured is not all of it */
    int lost;                /* why output could not be passed on; 0: all of it was */
    bool detaches;           /* told to end, we leave and the command goes on */
    bool detached;           /* that was so */
    bool unanswered;         /* its time was up and the guest did not say so */
    bool out_of_memory;      /* it was killed for that */
    struct guest_result result;
    char reason[200]; /* in the far end's words; empty: see result */
};

/* True when both ends of a dialogue are terminals. */
bool session_wants_terminal(void);

/* Runs it to its end; -1 when the outcome is not known. */
int session_run(struct session *s, struct err *err);
