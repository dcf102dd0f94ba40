/*
 * The spawner: a small, single-threaded, privileged process that creates boxes.
 *
 * It keeps pools of parts that are slow to create, builds boxes from them and cleans up after them.
 * It is crash-only: what it owns is either a descriptor, which dies with it, or is found again by
 * the next spawner from $CARREL_RUN/boxes and the cgroup tree. Boxes outlive it.
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/map.h"
#include "base/program_id.h"
#include "base/wire/frame.h"
#include "base/wire/plan.h"
#include "spawn/cgroup.h"
#include "spawn/disk/rootfs.h"
#include "spawn/disk/sealed.h"
#include "spawn/dynmods.h"
#include "spawn/make/berth.h"
#include "spawn/make/child.h"
#include "spawn/make/image.h"
#include "spawn/make/netns.h"
#include "spawn/make/nursery.h"
#include "spawn/make/ready.h"
#include "spawn/undertaker.h"

enum { POOL_SIZE = 8, MASK_MAX = 40 };

/* The guest ends a box at its deadline; if it has not by then, it cannot, and we do. */
enum { OVERDUE_MS = 1000 };

struct making; /* what goes into a box while it is made */

/* Work on one layer of a box. */
struct chore_state {
    uint32_t number;        /* of the layer that is being made; 0: none */
    uint32_t failed;        /* one that could not be made */
    int error;              /* why, -errno */
    uint32_t done;          /* the last one that was */
    enum duplicate_way way; /* of copying it */
};

/* One live box. Freed when nothing of it is left. */
struct box {
    struct box *next;
    char id[ID_SIZE];
    uint64_t serial;     /* the list is sorted by it, newest first */
    uint64_t linger;     /* enum plan_linger */
    char store[ID_SIZE]; /* whose it is; empty: made before boxes had one */
    struct {
        uint64_t mem_bytes, cpu_milli, pids, disk_bytes;
    } limits;       /* as asked for; 0: the default */
    char home[48];  /* the directory of the store that has its uppers: making_home() */
    bool elsewhere; /* that is not ours */
    uint32_t slot;
    uint32_t upper; /* of its root */
    uint64_t cgroup;
    pid_t pid;
    uint64_t born;
    int pidfd;
    int link;                   /* our own connection to the guest; -1 after we were restarted */
    struct frame_decoder heard; /* what came over it */
    unsigned words;             /* frames so far; a guest needs few, and no more are heard */
    uint8_t heard_bytes[128];
    int owner;             /* the connection of its creator; -1 when that is gone */
    unsigned spares;       /* command cgroups made so far */
    bool ending;           /* pid 1 was told to die, or has let go of us */
    bool dead;             /* pid 1 is gone; resources are being removed */
    int netns;             /* rootless, where it cannot be found by its pid; else -1 */
    int held[HELD_SPACES]; /* its namespaces, from when it was told to end until it is buried */
    bool burying;          /* the undertaker has them */
    unsigned clean_tries;
    uint64_t due_ms; /* when we end it ourselves, on the boot clock; 0: never */
    bool drifted;
    char image_key[IMAGE_ID_SIZE]; /* an id: it has no /usr of its own to mount */
    uint32_t layer;                /* number of its upper: spawn/disk/layers.h */
    uint32_t next_layer;           /* of the upper it is about to get; 0: none */
    char side;                     /* where in the anchor its root is: a or b */
    struct {
        char id[ID_SIZE];      /* whose it was */
        uint32_t upper;        /* of the store, as above */
    } disks[LAYERS_DISKS_MAX]; /* of others, on which it lies */
    size_t disk_count;
    struct chore_state chores[CHORES]; /* what the undertaker does for it, each by itself */
    int old_root;                      /* that it has left; -1 */
    uint64_t left_ms;                  /* when */
};

struct spawner {
    char program[PROGRAM_ID_SIZE]; /* which we are: it tells the daemon whether we are current */
    bool rootless;
    int outsider; /* rootless: ends boxes that are not below our user namespace; or -1 */
    int host;     /* "/" of the host, seen from the workshop */
    int proc;
    int run;   /* $CARREL_RUN */
    int boxes; /* $CARREL_RUN/boxes */
    int store; /* $CARREL_HOME */
    int own_uts;
    struct netns_maker net;
    int own_mnt;
    int anchor_ns;
    int dev; /* where boxes have no nodes of their own: /dev of all, attached in the workshop */
    int guest;
    struct sock_fprog filter;
    struct mask masks[MASK_MAX + 1];
    struct cgroups cgroups;
    struct dynmods dynmods;
    char cgroup_note[200]; /* why limits are not enforced, if they are not */
    struct image image;    /* skeleton -1: there is none, because the store is full */
    uint64_t image_room;   /* bytes that were free when it could not be built */
    struct sealed_images sealed;
    char archiver[4096]; /* carrel-image, by its path on the host; empty: there is none */
    struct rootfs_maker maker;

    struct box *list;
    struct map by_id; /* the same boxes */
    size_t box_count;
    /* Boxes whose record cannot be read. They exist, and nothing is swept beside them. */
    char (*unread)[ID_SIZE];
    size_t unread_count;
    bool unlisted;   /* nor where not even their names could be read */
    bool roots_left; /* one of them may have an old_root */
    uint64_t enlisted;

    struct nursery nursery;
    struct berth berths[POOL_SIZE]; /* ready, oldest first */
    size_t berth_count;
    struct berth growing; /* being made */
    struct ready_pool ready;
    bool probed;         /* a root was made: what the kernel can do is known */
    bool pool_broken;    /* refilling failed: make things on demand and report why */
    struct err pool_err; /* why, for carrel doctor */
    uint64_t created;
    uint64_t not_ready; /* of these, made without a ready box */
    uint64_t no_berth;  /* and without parts from the pool */
};

struct spawner_paths {
    const char *run, *home, *guest, *archiver;
};

/* host.c: everything a spawner needs before its first box. */
int spawner_open(struct spawner *s, const struct spawner_paths *paths, struct err *err);

/* pool.c: one step of refilling; false when the pools are full (or cannot be filled). */
bool pool_refill(struct spawner *s);
int pool_take(struct spawner *s, const struct plan *plan, struct berth *ret, struct err *err);
void pool_drop(struct spawner *s); /* after the image changed, and at the end */

/* box.c */
/*
 * A box is made in two halves, so that its creator can talk to it while the rest is done: begin
 * gives the orders and the connection; settle writes the box down and lets it go. NULL with *err.
 */
struct making *box_begin(struct spawner *s, const struct plan *plan, const int *fds,
                         size_t fd_count, struct box **ret, struct err *err);
/*
 * What the creator gets: its connection, the gate's sockets if the plan wants them, and the changes
 * of its cow grants. Still owned by m.
 */
size_t box_descriptors(const struct making *m, int fds[1 + PLAN_MAX_GRANTS + NETNS_FDS]);
/* A failure here reaches the creator on its connection, and the caller ends the box. Frees m. */
int box_settle(struct spawner *s, struct box *box, const struct plan *plan, struct making *m);
/* Whose it is and its limits, from the plan. */
void box_belong(struct box *box, const struct plan *plan);
struct box *box_new(struct spawner *s, const char *id, uint64_t linger);
void box_free(struct box *box);
/* Is /usr an overlay beside its root? That of the `host` image. */
bool box_has_usr(const struct box *box);
/* What its berth and its channels are, from now on the box's. */
void box_enter(struct box *box, struct making *m);
struct box *box_find(struct spawner *s, const char *id);
/* Why there is no such box: `not_found`, or `busy` if its record cannot be read. */
int box_missing(const struct spawner *s, const char *id, struct err *err);
/*
 * Its namespaces are held from now on. What of it is frozen dies only when it is thawed.
 */
void box_kill(struct spawner *s, struct box *box);
uint64_t box_due(const struct plan *plan); /* for a box made now */
/* Takes away what a dead box left; true when nothing is left and the box is freed. */
bool box_clean(struct spawner *s, struct box *box);
/* After a restart: finds the boxes that live and removes what is left of the others. */
void boxes_adopt(struct spawner *s);
/* Removes every cgroup that belongs to no box. Not while the pool holds some. */
void boxes_sweep(struct spawner *s);
int box_add_spares(struct spawner *s, struct box *box, unsigned count);
void box_facts(struct spawner *s, struct box *box, struct plan_facts *ret);
/* Name lookups show as datagrams to a port nobody listens on. */
uint64_t box_lookups_refused(struct spawner *s, const struct box *box);
/*
 * The gate's sockets in its network namespace, in the order of enum netns_socket: the caller's.
 * Nobody else holds one, so they end with whoever gets them.
 */
/* A socket to a port of its loopback, or -1. */
int box_dial(struct spawner *s, const struct box *box, uint16_t port, struct err *err);
int box_listen(struct spawner *s, const struct box *box, int ret[NETNS_FDS], struct err *err);
/* Are these limits in range, and can this host enforce them? 0 is always fine. */
int limits_check(const struct spawner *s, const struct plan *plan, struct err *err);

/*
 * verbs.c: requests that are answered at once and make or end nothing. They turn the request in *m
 * into its answer. NULL for a type that is none of these.
 */
struct verb_fds {
    int v[PLAN_MAX_GRANTS]; /* closed once they are sent */
    size_t count;
};
typedef int verb_fn(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                    struct err *err);
verb_fn *verb_of(enum plan_type type);

/* server.c: serves until told to stop or idle for long enough. */
int server_run(struct spawner *s, int listener, uint64_t idle_ms, struct err *err);
