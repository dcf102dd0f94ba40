/*
 * A child process that can only compute and answer.
 *
 * It parses and runs untrusted bytes, which it inherits in memory. Its only descriptor is the link
 * to the parent. A seccomp filter allows it to read and write that link, to use memory that is not
 * executable, and to exit. It asks the parent for everything else over the link. The parent does
 * not trust what the child sends.
 *
 * A child that is granted directories may also call functions of files. It lives in a mount
 * namespace in which there are no other files, so the filter does not have to know their names.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

struct pauser;

enum { JAIL_DIRS_MAX = 16, JAIL_SOCKETS_MAX = 4 };

/* The child's end of the socket to its parent, and what it was granted. */
struct link {
    int fd;
    int dirs[JAIL_DIRS_MAX], sockets[JAIL_SOCKETS_MAX]; /* those that struct jail names */
    _Atomic uint32_t *pause; /* not 0: the program is to be stored (cell/pause.h); NULL: never */
};

enum {
    JAIL_MAX_TEXT = 64 << 20,   /* maximum bytes of all output of one child */
    JAIL_MAX_BLOB = 1 << 30,    /* maximum bytes of a state or a log */
    JAIL_MAX_RANDOM = 64 << 10, /* maximum random bytes of one request */
};

/* Called by the child. link_out() and link_text() write to standard output, link_err() to standard
   error. Only link_out() writes control characters; the others are safe for a terminal. */
void link_out(struct link *l, const void *bytes, size_t len);
void link_text(struct link *l, const void *bytes, size_t len);
void link_err(struct link *l, const void *bytes, size_t len);
/*
 * Called by the child: sends the state of a suspended program, or the log of a recorded run. The
 * parent writes it to a file.
 */
void link_state(struct link *l, const void *bytes, size_t len);
void link_log(struct link *l, const void *bytes, size_t len);
/* Called by the child: asks the parent for the time or for up to JAIL_MAX_RANDOM random bytes. */
uint64_t link_clock_ns(struct link *l);
void link_random(struct link *l, void *bytes, size_t len);
uint64_t link_monotonic_ns(struct link *l);
/* Called by the child: reads standard input of the parent. Returns bytes, 0 at its end, -errno. */
ssize_t link_read(struct link *l, void *bytes, size_t len);
/* Called by the child: waits until input can be read. False: a pause is wanted first. */
bool link_wait_input(struct link *l);
/*
 * Called by the child: it is stored, could not be stored, or was just started (enum pause_stay).
 * Returns when it may go on.
 */
void link_stay(struct link *l, uint32_t why);
/* Called by the child: waits for the time or, if for_input, until input can be read: then true. */
bool link_wait(struct link *l, bool for_input, uint64_t timeout_ns);

/*
 * Called by the child: asks the daemon (base/cell_command.h). Returns the code of the answer, whose
 * bytes are added to *ret. Without a socket to the daemon, the code says that the call failed.
 */
int32_t link_ask(struct link *l, uint32_t kind, const void *bytes, size_t len, struct buf *ret);

/* True if system calls are filtered. False with sanitizers, which need further system calls. */
bool jail_is_tight(void);

/*
 * For a command of a cell machine, before it opens a file: gives up all capabilities, and for good
 * the right to execute programs. This process and the jailed child are the only native code in a
 * cell machine besides its guest.
 */
int jail_give_up_rights(void);

/* A directory of the host that the child can reach. */
struct jail_dir {
    const char *path;
    bool is_read_only;
};

/* Limits of a child, and the data that the parent received from it. */
struct jail {
    int out_fd, err_fd; /* output of the child is written here as it arrives */
    bool has_input;     /* the child may read descriptor in_fd, standard input */
    int in_fd;
    /* With directories, the child gets a root directory with nothing but them (jail_root.h). */
    struct jail_dir dirs[JAIL_DIRS_MAX];
    size_t n_dirs;
    int sockets[JAIL_SOCKETS_MAX]; /* listening sockets that it may use */
    size_t n_sockets;
    int asks_fd;         /* socket to the daemon, in a machine; 0: none */
    const char *spawner; /* program that makes the root directory; NULL: beside this program */
    /*
     * This process has no other files than those of a cell machine, and nobody reads its output
     * but the machine: the child stays in this root and may write any amount.
     */
    bool is_in_machine;
    /* Limits of the child; 0: no limit. The memory that it has at its start does not count. */
    uint64_t memory_bytes, cpu_seconds;
    struct buf state, log;
    /* Takes parts of the state in the place of `state`; -1: the protocol is broken. NULL: none. */
    int (*take_state)(void *ctx, const void *bytes, size_t len);
    void *take_ctx;
    struct pauser *pauser; /* stores the program (cell/pause.h); NULL: none */
    pid_t parent;          /* set by jail_run() */
};

/*
 * Runs `body` in a child and returns its result. -1: the child died or broke the protocol; err says
 * why.
 */
int jail_run(struct jail *j, int (*body)(struct link *l, const void *arg), const void *arg,
             struct err *err);
