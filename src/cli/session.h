/*
 * One command in a machine, with the caller's standard streams.
 *
 * A pipe of the caller is passed to the guest: no byte goes through the CLI. Any other stream (a
 * file, a terminal, a socket) is relayed, so that a guest never gets a host object other than a
 * pipe. The guest copies output to these pipes and closes them when the command has ended. If the
 * caller has a terminal, the command gets a terminal of its own.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/exec_end.h"

struct aside;
struct remote;

/* How one of the command's streams reaches the daemon. */
enum session_stream {
    SESSION_STREAM_NULL,   /* /dev/null */
    SESSION_STREAM_HANDED, /* a pipe, sent as a descriptor with the request */
    SESSION_STREAM_SENT,   /* bytes are sent as requests or events, over TCP and for a vm */
};

/* The command. The caller sets the members up to `terminal`; session_run() sets the others. */
struct session_request {
    const char *const *argv; /* ends with NULL */
    const char *const *env;  /* NAME=VALUE, ends with NULL */
    const char *cwd;         /* NULL: the default of the machine */
    const char *user;        /* NULL: the default of the machine */
    const char *name;        /* NULL: the command gets no name */
    uint64_t timeout_ms;     /* 0: no limit */
    bool terminal;           /* give the command a terminal */
    uint16_t rows, cols;     /* size of the terminal; 0: not known */
    enum session_stream streams[3];
};

/* The end of the command, read once from the daemon's answer. */
struct session_result {
    enum exec_end end;
    int status;       /* exit status as in a shell: 128 + signal if it was killed */
    uint32_t signal;  /* signal that ended it, or 0 */
    char reason[200]; /* why the command did not start; empty: it started */
    uint64_t user_us, system_us, wall_us, max_rss_kb;
    uint64_t fuel;   /* used by a command of a cell machine; 0: not known */
    bool check_step; /* the step after the command may have no restore point: ask */
};

/* Ctrl and this, pressed SESSION_LEAVE_COUNT times within SESSION_LEAVE_MS: as in machinectl, and
 * free in shells.
 */
enum { SESSION_LEAVE_KEY = ']', SESSION_LEAVE_COUNT = 3, SESSION_LEAVE_MS = 1000 };
#define SESSION_LEAVE_HELP "press Ctrl-] three times within a second"

struct session {
    struct remote *remote; /* the command at the daemon */
    bool
        sends; /* its streams are sent as bytes: a vm, or a daemon over TCP, takes no descriptors */
    struct session_request request;
    struct session_result result;
    bool output_open;        /* more of a terminal's output may come */
    bool output_ends;        /* pipes with output end with the command: read them to the end */
    bool ends_machine;       /* read output to its end: the machine ends with the command */
    struct buf *captured[2]; /* buffers for stdout and stderr; NULL: use our own streams */
    bool cut[2];             /* the capture is incomplete */
    int lost;                /* errno of a failed write of output; 0: none failed */
    /*
     * SIGTERM, SIGHUP, the end of our terminal and SESSION_LEAVE_KEY end only this program; the
     * command continues.
     */
    bool detaches;
    struct aside *aside; /* Carrel's own text on the terminal of the command; NULL: none */
    const char *hint;    /* a line for stderr before the first output of a terminal; NULL: none */
};

static inline bool session_ended(const struct session *s) {
    return s->result.end != EXEC_END_NONE;
}

/* True if stdin and stdout are terminals. */
bool session_wants_terminal(void);

/* Runs the command to its end; -1 when the outcome is not known. */
int session_run(struct session *s, struct err *err);
