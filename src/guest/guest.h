/*
 * The guest: pid 1 of a box, or the agent inside a vm.
 *
 * One thread runs one epoll loop and never blocks on a peer. All state is in one struct guest, in
 * tables of fixed size, so no request can make the guest grow. The guest trusts the host at the
 * other end of its connections, as far as messages are valid. It does not trust commands: exit
 * statuses come from wait4, lists of processes from cgroups.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/wire/frame.h"
#include "base/wire/msg.h"
#include "base/wire/outlog.h"

#define CONN_MAX 16
#define CMD_MAX 256
#define TREE_MAX 320
#define WATCH_MAX 64
#define OUT_CAP (256u << 10)
#define OUT_FDS_MAX 4
#define SPILL_SIZE 4096u
/* A frame is handled only if the output buffer has room for its longest reply. */
#define REPLY_ROOM (MSG_CHUNK_MAX + (4u << 10))

struct guest;
struct serial;

/*
 * A descriptor that the event loop waits for. fd < 0: it is closed, and events that epoll already
 * returned for it are dropped.
 */
struct source {
    int fd;
    void (*ready)(struct guest *g, struct source *src, uint32_t events);
    void *owner;
};

int source_add(struct guest *g, struct source *src, uint32_t events);

/* Makes epoll report an edge-triggered event again that was not handled completely. */
void source_rearm(struct guest *g, struct source *src, uint32_t events);
void source_close(struct guest *g, struct source *src);

void reserve_release(struct guest *g);
void reserve_restore(struct guest *g);

struct conn {
    struct source src; /* fd < 0: the slot is free */
    struct frame_decoder in;
    uint8_t *out;
    size_t out_start, out_end;
    int fds[FRAME_FDS_MAX]; /* descriptors received, but not yet used by a frame */
    uint32_t nfds;
    uint32_t armed; /* events that epoll waits for */
    bool is_creator;
    bool is_privileged;
    int out_fds[OUT_FDS_MAX]; /* descriptors to send with the next bytes */
    uint32_t out_nfds;
    struct serial *serial; /* set for a serial port, which cannot pass descriptors */
    bool greeted;
    bool takes_calls; /* the host answers MSG_CALL */
    bool has_work;    /* a command may have data to send on this connection */
    /* since when the frame `held` waits for a spare cgroup; 0: it does not wait */
    int64_t stalled_ns;
    struct frame held;
    struct source watcher; /* inotify descriptor, created at the first WATCH request */
    uint32_t watch_ids[WATCH_MAX];
    int watch_wds[WATCH_MAX];
};

/* Input from the host to a command, kept until the command reads it. */
struct stream_in {
    struct source src;
    uint8_t *ring;
    uint32_t size;
    uint64_t received, written, reported;
    bool eof;
    bool is_terminal;
};

/* The output log of a command: memory shared with the host, used instead of frames. */
struct log {
    /* descriptor of the log, kept open so that a later daemon can get it again; -1: no log */
    int fd;
    uint64_t bytes;
    struct outlog_writer w;
    uint32_t wait_tag; /* tag of the LOG_WAIT that is not answered yet; 0: none */
    struct msg_log seen;
};

/*
 * Output from a command to the host. The ring buffer keeps the bytes [consumed, produced), so that
 * they can be sent again after a reconnect.
 */
struct stream_out {
    struct source src;
    /* if set, output goes to this log: there is no ring buffer, and no frame is sent */
    struct log *log;
    /*
     * If open: the host's pipe that output is copied to (MSG_EXEC_COPY), after it was read into the
     * log, so copied <= produced. copy_end is UINT64_MAX until the command exits.
     */
    struct source copy;
    uint64_t copied, copy_end;
    /* the last `spilled` bytes are here and not in the log, which had no memory for them */
    uint8_t *spill;
    uint32_t spilled;
    bool is_starved; /* there was no memory to copy output */
    bool paced; /* at most one window of bytes that the host has not consumed may be in the log */
    int index;  /* 0 stdout, 1 stderr */
    uint8_t *ring;
    uint32_t size;
    uint64_t produced, sent, consumed;
    bool readable; /* there may be more to read from the command: the ring was full */
    bool hung_up;
    bool eof, eof_sent;
    bool is_terminal;
    bool may_reopen; /* a command may open its terminal again while it runs */
};

/* The process tree of one command: a cgroup whose files the spawner opened for the guest. */
struct tree {
    int procs, freeze, kill;
    bool used;
};

struct cmd {
    uint32_t id; /* 0: the slot is free */
    uint8_t state;
    uint8_t stdio[3];
    uint32_t flags;
    pid_t pid;
    struct conn *conn;
    struct tree *tree;
    struct stream_in in;
    struct stream_out out[2];
    struct log log;
    struct msg_exit exit;
    int meter; /* memory in which the worker of a cell machine counts fuel; -1: none */
    uint64_t fuel;
    struct source control; /* socket to the worker of a cell machine (pause.h) */
    uint8_t pause;         /* enum pause_state */
    uint32_t pause_tag;    /* tag of the PAUSE that is not answered yet; 0: none */
    bool exit_sent;
    bool is_nobodys; /* no host knows it any more: cmd_leave_all() */
    bool killing;    /* the process tree was killed, but may still have processes */
    int64_t started_ns, deadline_ns;
};

/* A recursive removal, done by a child process so that it does not delay the loop. */
struct removal {
    pid_t pid;
    struct conn *conn;
    uint32_t tag;
};
#define REMOVAL_MAX 8

/* The stack of the thread that runs the event loop. */
enum { GUEST_STACK = 128 << 10 };
extern uint8_t guest_stack[GUEST_STACK];

struct guest {
    int epoll;
    int null;
    int worker;     /* in a cell machine: the program that runs every command; else -1 */
    int relay[2];   /* the pipe of relay_write(); -1: not open */
    int clocks[2];  /* timers: the machine's deadline, and the start of a command */
    int reserve[2]; /* reserved descriptors, closed for a moment if another one must be opened */
    struct source signals, listen, admin;
    bool lingers;
    bool has_trees;
    int cgroups; /* in a vm: the directory in which the guest makes them; else 0 */
    uint32_t cgroups_made;
    /* a connection has more work, which waits until other connections were served */
    bool has_backlog;
    uint64_t command_files[2]; /* original RLIMIT_NOFILE, which commands get */
    bool has_timers;           /* a command or connection may wait for a point in time */
    bool has_slack;            /* scratch_drop() may find pages to give back */
    bool is_childless;         /* wait4 found no child, and none was started since */
    uint32_t features;
    uint64_t incarnation;
    uint32_t cmd_end;   /* all slots of commands from this index on are free */
    uint32_t pump_from; /* index of the command that sends output next */
    uint32_t tree_end;
    uint32_t conn_end; /* all slots of connections from this index on are free */
    int64_t asked_ns;  /* when the spawner was last asked for spare cgroups */
    int64_t ask_ns;    /* when to ask it again; 0: not planned */
    /* Tables are used from their start, so an idle guest touches only the first page of each. */
    struct tree trees[TREE_MAX];
    struct conn conns[CONN_MAX];
    struct removal removals[REMOVAL_MAX];
    struct cmd cmds[CMD_MAX];
};
