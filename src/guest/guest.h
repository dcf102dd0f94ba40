/*
 * The guest: pid 1 of a box, or the agent inside a vm.
 *
 * One thread runs one epoll loop and never blocks on a peer. Everything it knows
 * is in one struct guest, in tables of fixed size, so no request can make it
 * grow. It trusts its connections as far as the protocol goes and the commands
 * not at all: exit statuses come from wait4, trees of processes from cgroups.
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
/* A frame is only handled while its longest reply would fit. */
#define REPLY_ROOM (MSG_CHUNK_MAX + (4u << 10))

struct guest;

/* Something the loop waits for. fd < 0: an event that was still under way is dropped. */
struct source {
    int fd;
    void (*ready)(struct guest *g, struct source *src, uint32_t events);
    void *owner;
};

int source_add(struct guest *g, struct source *src, uint32_t events);

/* An edge-triggered event that was not used up will come again. */
void source_rearm(struct guest *g, struct source *src, uint32_t events);
void source_close(struct guest *g, struct source *src);

void reserve_release(struct guest *g);
void reserve_restore(struct guest *g);

struct conn {
    struct source src; /* fd < 0: free */
    struct frame_decoder in;
    uint8_t *out;
    size_t out_start, out_end;
    int fds[FRAME_FDS_MAX]; /* received, not yet claimed by a frame */
    uint32_t nfds;
    uint32_t armed; /* events asked of epoll */
    bool is_creator;
    bool is_privileged;
    int out_fds[OUT_FDS_MAX]; /* to be sent with the next bytes */
    uint32_t out_nfds;
    bool is_stream_only; /* no descriptors: virtio-serial */
    bool greeted;
    bool has_work;      /* some command may have something to send here */
    int64_t stalled_ns; /* since when `held` waits for a spare cgroup; 0: it does not */
    struct frame held;
    struct source watcher; /* inotify, made at the first WATCH */
    uint32_t watch_ids[WATCH_MAX];
    int watch_wds[WATCH_MAX];
};

/* Host to command. Kept until the command takes it. */
struct stream_in {
    struct source src;
    uint8_t *ring;
    uint32_t size;
    uint64_t received, written, reported;
    bool eof;
    bool is_terminal;
};

/* Where a command's output goes instead of frames: memory of the host's. */
struct log {
    int fd; /* -1: none; else kept, so that a later host can have it back */
    uint64_t bytes;
    struct outlog_writer w;
    uint32_t wait_tag; /* of a LOG_WAIT that has no answer yet; 0: none */
    struct msg_log seen;
};

/* Command to host. The ring holds [consumed, produced), so a reconnect can replay. */
struct stream_out {
    struct source src;
    struct log *log; /* or NULL; then there is no ring, and nothing is sent */
    bool paced;      /* into the log no further than a window beyond what was consumed */
    int index;       /* 0 stdout, 1 stderr */
    uint8_t *ring;
    uint32_t size;
    uint64_t produced, sent, consumed;
    bool readable; /* the last event has not been used up: the ring was full */
    bool hung_up;
    bool eof, eof_sent;
    bool is_terminal;
    bool may_reopen; /* a terminal nobody has open now, but its command still runs */
};

/* The processes of one command: a cgroup whose files the spawner opened for us. */
struct tree {
    int procs, freeze, kill;
    bool used;
};

struct cmd {
    uint32_t id; /* 0: free */
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
    bool exit_sent;
    bool killing; /* the tree was killed and may not be gone yet */
    int64_t started_ns, deadline_ns;
};

/* A recursive removal, done by a child so that it cannot hold up the loop. */
struct removal {
    pid_t pid;
    struct conn *conn;
    uint32_t tag;
};
#define REMOVAL_MAX 8

struct guest {
    int epoll;
    int null;
    int clocks[2];  /* of the machine's deadline, and of a command that has not begun */
    int reserve[2]; /* given up for a moment where something must be opened whatever happens */
    struct source signals, listen, admin;
    bool lingers;
    bool has_trees;
    bool has_backlog;          /* some connection was left with work for fairness' sake */
    uint64_t command_files[2]; /* RLIMIT_NOFILE as it was when we came: for the commands */
    bool has_timers;           /* some command or connection may be waiting for a moment */
    bool is_childless;         /* wait4 said so, and nothing was started since */
    uint32_t features;
    uint64_t incarnation;
    uint32_t cmd_end;   /* no slot in use from here on */
    uint32_t pump_from; /* whose turn it is */
    uint32_t tree_end;
    int64_t asked_ns; /* when spares were last asked for */
    struct conn conns[CONN_MAX];
    struct cmd cmds[CMD_MAX];
    struct tree trees[TREE_MAX];
    struct removal removals[REMOVAL_MAX];
};
