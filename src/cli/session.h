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

struct session;

/* The far end of a session: a guest that we reach ourselves, or the daemon. */
struct far_driver {
    /* fds: for those of exec.stdio that are MSG_STDIO_FD, in order. */
    int (*start)(struct session *s, const int *fds, uint32_t count, struct err *err);
    int (*fd)(const struct session *s);
    short (*events)(const struct session *s);
    /* Something came: sets exited, result and output_open, writes a terminal's output. */
    int (*take)(struct session *s, struct err *err);
    void (*signal)(struct session *s, uint32_t number);
    void (*resize)(struct session *s, uint16_t rows, uint16_t cols);
    /* Typed into a terminal; n = 0: the end of it. False from may_type: not now. */
    bool (*may_type)(const struct session *s);
    int (*type)(struct session *s, const char *bytes, size_t n, struct err *err);
};
extern const struct far_driver far_guest, far_daemon;

struct session {
    const struct far_driver *far;
    struct guest_link *link; /* of far_guest */
    uint32_t id;             /* of our command there */
    uint64_t sent, credit;   /* of a terminal's input */
    struct remote *remote;   /* of far_daemon: cli/remote.h */
    bool exited;             /* result is there */
    bool output_open;        /* a terminal's output goes on */
    struct msg_exec exec;    /* argv, env, cwd, user and timeout filled by the caller */
    bool terminal;           /* give the command a terminal */
    bool ends_machine;       /* drain to the very end: nothing is left running behind */
    struct buf *captured[2]; /* stdout and stderr go here instead; NULL: to our own streams */
    bool cut[2];             /* what was captured is not all of it */
    int lost;                /* why output could not be passed on; 0: all of it was */
    bool unanswered;         /* its time was up and the guest did not say so */
    struct guest_result result;
    char reason[200]; /* in the far end's words; empty: see result */
};

/* True when both ends of a dialogue are terminals. */
bool session_wants_terminal(void);

/* Runs it to its end; -1 when the outcome is not known. */
int session_run(struct session *s, struct err *err);
