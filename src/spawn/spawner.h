/*
 * The spawner: a small, single-threaded, privileged process that creates boxes.
 *
 * It keeps pools of parts that are slow to create, builds boxes from them and removes the resources
 * of dead boxes. It is crash-only: what it owns is either a descriptor, which dies with it, or is
 * found again by the next spawner from $CARREL_RUN/boxes and the cgroup tree. Boxes outlive it.
 */
#pragma once

#include <linux/filter.h>
#include <sched.h>
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
#include "spawn/vm/template.h"

enum { POOL_SIZE = 8, MASK_MAX = 40 };

/* The guest ends a box at its deadline. If that fails, the spawner ends the box this much later. */
enum { OVERDUE_MS = 1000 };

struct making; /* a box while it is created */

/* Background work on one layer of a box. */
struct chore_state {
    uint32_t number;        /* number of the layer that is being worked on; 0: none */
    uint32_t failed;        /* number of a layer on which the work failed */
    int error;              /* error of that work, as -errno */
    uint32_t done;          /* number of the last finished layer */
    enum duplicate_way way; /* how that layer was copied */
    /* CHORE_COPY: generation of the disk at the last copy, and at the last sync; 0: unknown */
    uint64_t copied, synced;
};

/* A box, from its creation until all its resources are removed. */
struct box {
    struct box *next;
    char id[ID_SIZE];
    /* number of the box in order of creation; the list of boxes is sorted by it, newest first */
    uint64_t serial;
    uint64_t linger;     /* enum plan_linger */
    char store[ID_SIZE]; /* store that the box belongs to; empty: made by an older spawner */
    struct {
        uint64_t mem_bytes, cpu_milli, pids, disk_bytes;
    } limits;       /* limits as requested; 0: default */
    cpu_set_t cpus; /* its CPUs, if it has a cpu limit; empty: not known, see affinity.c */
    char home[48];  /* the store that holds its uppers (writable layers): making_home() */
    bool elsewhere; /* `home` is not the store of this spawner */
    uint32_t slot;
    uint32_t upper; /* quota project of its upper (writable layer); 0: none */
    uint64_t cgroup;
    pid_t pid;
    uint64_t born;
    int pidfd;
    /* connection to the guest; -1: none, which is possible after a restart of the spawner */
    int link;
    struct frame_decoder heard; /* data received from the guest */
    unsigned words; /* number of frames received; beyond a limit further frames are ignored */
    uint8_t heard_bytes[128];
    int owner;       /* descriptor of its creator's connection; -1: the creator is gone */
    unsigned spares; /* number of command cgroups made so far */
    bool ending;     /* pid 1 was killed, or closed `link` */
    bool dead;       /* pid 1 is dead; resources are being removed */
    /* rootless: descriptor of its network namespace, which cannot be opened later; else -1 */
    int netns;
    /* network of a vm (vm/boot.h): its namespace and tap; -1: none, or not looked for */
    int vm_netns, vm_tap;
    bool gives_cgroups;   /* its cgroups may be used again */
    bool gave_cgroups;    /* they are not its own any more */
    bool left_place;      /* its directory in $CARREL_RUN/boxes is removed */
    uint64_t netns_inode; /* of its network namespace, if that may be used again; else 0 */
    /* descriptors of its namespaces, from the kill of pid 1 until they are closed */
    int held[HELD_SPACES];
    bool burying; /* the undertaker is closing `held` */
    unsigned clean_tries;
    uint64_t due_ms; /* time when the spawner ends the box, by the boot clock; 0: never */
    bool drifted;
    char image_key[IMAGE_ID_SIZE]; /* key of the host image, or id of an image */
    bool lent;                     /* that image uses the host's /usr (base/image_below.h) */
    uint32_t layer;      /* layer number of its upper (writable layer): spawn/disk/layers.h */
    uint32_t next_layer; /* layer number of its next upper, while the root is switched; 0: none */
    char side;           /* directory of the anchor (host.c) that is its root: a or b */
    struct {
        char id[ID_SIZE];      /* id of the machine that the disk belonged to */
        uint32_t upper;        /* quota project of the disk in the store */
    } disks[LAYERS_DISKS_MAX]; /* disks of other machines that this box uses */
    size_t disk_count;
    struct chore_state chores[CHORES]; /* work of the undertaker on its layers */
    /* the layers of its root below the upper, topmost first; known unless a spawner adopted it */
    struct stack_layer shown[LAYERS_MAX];
    size_t shown_count;
    bool shown_is_known;
    int old_root;     /* descriptor of the root before the last switch to a new root; or -1 */
    uint64_t left_ms; /* time of the last switch to a new root */
};

struct spawner {
    /* hash of the spawner's program, which the daemon compares with the installed one */
    char program[PROGRAM_ID_SIZE];
    bool rootless;
    int outsider; /* rootless: socket to the outsider (rootless.h); or -1 */
    int host;     /* descriptor of the host's "/", opened in the spawner's mount namespace */
    int proc;
    int run;   /* $CARREL_RUN */
    int boxes; /* $CARREL_RUN/boxes */
    int store; /* $CARREL_HOME */
    int own_uts;
    struct netns_maker net;
    int own_mnt;
    int anchor_ns;
    /* mount of the /dev that boxes share, if they cannot have their own device nodes; or -1 */
    int dev;
    int guest;
    int worker; /* descriptor of carrel-cell; -1: not installed, so there are no cell machines */
    struct sock_fprog filter;
    struct mask masks[MASK_MAX + 1];
    struct cgroups cgroups;
    struct dynmods dynmods;
    char cgroup_note[200]; /* why limits are not enforced; empty: they are enforced */
    /* image `host`; if its skeleton is -1, it was not built, because the store is full */
    struct image image;
    uint64_t image_room; /* free bytes of the store when the image could not be built */
    struct sealed_images sealed;
    char archiver[4096]; /* path of carrel-image on the host; empty: not installed */
    struct rootfs_maker maker;

    struct vm_templates templates;
    struct vm_saving *savings; /* processes that save the memory of vms: vm/memory.h */

    struct box *list;
    struct map by_id; /* index of the list of boxes, by id */
    size_t box_count;
    /*
     * Ids of the boxes whose record cannot be read. They may be alive, so no file is deleted as
     * unused.
     */
    char (*unread)[ID_SIZE];
    size_t unread_count;
    bool unlisted; /* the directory of boxes could not be listed, so no file is deleted as unused */
    bool roots_left; /* some box may have an old_root */
    uint64_t enlisted;

    struct nursery nursery;
    struct berth berths[POOL_SIZE]; /* complete berths (prepared boxes), oldest first */
    size_t berth_count;
    struct berth growing; /* the berth that is being made */
    struct ready_pool ready;
    bool probed;         /* a root was created, so the kernel's features are known */
    bool pool_broken;    /* refilling failed: boxes are created on demand */
    struct err pool_err; /* the reason, which carrel doctor shows */
    uint64_t created;
    uint64_t not_ready; /* number of boxes created without a ready box */
    uint64_t no_berth;  /* number of boxes created without a berth */
};

struct spawner_paths {
    const char *run, *home, *guest, *worker, *archiver;
};

/* host.c: sets up everything that a spawner needs before its first box. */
int spawner_open(struct spawner *s, const struct spawner_paths *paths, struct err *err);

/*
 * pool.c: does one step of refilling the pools of prepared boxes; false: they are full or cannot be
 * filled.
 */
bool pool_refill(struct spawner *s);
bool pool_wants_root(const struct spawner *s); /* the next step makes a root filesystem */
int pool_take(struct spawner *s, const struct plan *plan, struct berth *ret, struct err *err);
void pool_drop(struct spawner *s); /* frees the pools: after the image changed, and at exit */

/* box.c */
/*
 * A box is created in two steps, so that its creator can talk to it early. box_begin() sends the
 * plan and returns the connection, or NULL with *err; box_settle() records the box and starts it.
 */
struct making *box_begin(struct spawner *s, const struct plan *plan, const int *fds,
                         size_t fd_count, struct box **ret, struct err *err);
/*
 * Fills the descriptors for the creator: its connection, the gate's sockets if requested, and the
 * directories with the changes of cow (copy-on-write) grants. Owned by m.
 */
size_t box_descriptors(const struct making *m, int fds[1 + PLAN_MAX_GRANTS + NETNS_FDS]);
/*
 * Records the box and starts it. On failure, the creator receives the error on its connection, and
 * the caller must end the box. Frees m.
 */
int box_settle(struct spawner *s, struct box *box, const struct plan *plan, struct making *m);
/* Sets the store and the limits of the box from the plan. */
void box_belong(struct box *box, const struct plan *plan);
struct box *box_new(struct spawner *s, const char *id, uint64_t linger);
void box_free(struct box *box);
/* True for boxes of the `host` image, whose /usr is a second overlay. */
/* True if the host's /usr is below that of the box. */
bool box_has_usr(const struct box *box);
void box_take_image(const struct spawner *s, struct box *box, const char *key);
/* Moves the parts of the berth and the connection to the guest into the box. */
void box_enter(struct box *box, struct making *m);
struct box *box_find(struct spawner *s, const char *id);
/* Sets the error for a missing box: ERR_NOT_FOUND, or ERR_BUSY if its record cannot be read. */
int box_missing(const struct spawner *s, const char *id, struct err *err);
/* Kills the box and holds its namespaces. Frozen processes die only after a thaw. */
void box_kill(struct spawner *s, struct box *box);
/* Keeps the network namespace of a dead box for a later one, if it may be used again. */
void box_return_netns(struct spawner *s, struct box *box);
/* Returns the value of due_ms for a box that is created now. */
uint64_t box_due(const struct plan *plan);
/* Removes the resources of a dead box. True: all are removed, and the box is freed. */
bool box_clean(struct spawner *s, struct box *box);
/* After a restart: adopts live boxes and removes the resources of dead ones. */
void boxes_adopt(struct spawner *s);
/* Removes every cgroup without a box. The pools must be empty, because berths have cgroups too. */
void boxes_sweep(struct spawner *s);
int box_add_spares(struct spawner *s, struct box *box, unsigned count);
void box_facts(struct spawner *s, struct box *box, struct plan_facts *ret);
/* Returns the number of refused DNS lookups, counted as datagrams to a closed port. */
uint64_t box_lookups_refused(struct spawner *s, const struct box *box);
/* Returns a socket that is connected to a port on the loopback address of the box, or -1. */
int box_dial(struct spawner *s, struct box *box, uint16_t port, struct err *err);
/*
 * Opens the gate's sockets in the network namespace, in the order of enum netns_fd; owned by the
 * caller. The spawner keeps no copy, so they are closed when the caller exits.
 */
int box_listen(struct spawner *s, struct box *box, int ret[NETNS_FDS], struct err *err);
/*
 * Checks that the limits are in range and that this host can enforce them. A limit of 0 always
 * passes.
 */
int limits_check(const struct spawner *s, const struct plan *plan, struct err *err);

/*
 * verbs.c: requests that are answered at once and neither create nor end a box. They turn the
 * request in *m into its answer. verb_of() returns NULL for other requests.
 */
struct verb_fds {
    int v[PLAN_MAX_GRANTS]; /* descriptors of the answer, closed once they are sent */
    size_t count;
};
typedef int verb_fn(struct spawner *s, struct plan_message *m, struct verb_fds *fds,
                    struct err *err);
verb_fn *verb_of(enum plan_type type);

/* server.c: serves requests until the spawner is stopped, or idle for idle_ms. */
int server_run(struct spawner *s, int listener, uint64_t idle_ms, struct err *err);
