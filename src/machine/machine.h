/*
 * Machines: the operations that every kind of machine implements.
 *
 * Everything runs on the loop thread. A call returns at once; `done` is called later, exactly once
 * and never before the call returns. The caller of `create` or `adopt` owns the struct machine
 * until machine_free(), which releases the machine without ending it; pending calls are then never
 * answered. A kind that lacks an operation leaves it NULL, and the caller gets `unsupported`.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "io/loop.h"
#include "machine/guest.h"

struct machine;
struct machine_host; /* what a kind needs on this host: opened once by the daemon */

struct machine_limits {
    uint64_t mem_bytes; /* 0 each: the kind's default; in `limit`: as it was */
    uint64_t cpu_milli; /* in `limit` MACHINE_UNLIMITED takes it away */
    uint64_t pids;
    uint64_t disk_bytes;
};

#define MACHINE_UNLIMITED PLAN_UNLIMITED

struct machine_spec {
    const char *id;
    const char *image;
    const char *hostname;
    struct machine_limits limits;
    uint64_t deadline_ms; /* from now, kept by the machine itself; 0: none */
    bool linger;          /* false: it ends when this daemon lets go of it or dies */
    /*
     * `made` comes before the guest has said a word: commands can be sent at once, and the first
     * answer to one is what shows that the machine exists. Otherwise it exists when `made` comes.
     */
    bool early;
    bool same;             /* it has been before, and keeps who it is */
    bool gate;             /* the machine's `doors` come with it */
    const char *stack;     /* layers it starts from (base/layers.h); NULL: the image alone */
    const char *undrifted; /* `unsupported` if this machine has drifted; NULL: it may have */
    const struct plan_grant *grants;
    const int *grant_fds; /* one open directory a grant; stay the caller's */
    size_t grant_count;
};

/* What the kernel counts. */
struct machine_stats {
    uint64_t cpu_us;
    uint64_t mem_bytes;
    uint64_t mem_peak_bytes;
    uint64_t mem_limit_bytes;
    uint64_t pids;
    uint64_t io_bytes;            /* read and written by system calls */
    uint64_t disk_bytes;          /* used in the upper */
    uint64_t disk_files_permille; /* of the files that it may hold */
    uint64_t oom_kills;
    uint64_t pids_refused;
    uint64_t lookups_refused;
    bool frozen;
    bool drifted;
    bool busy; /* where nobody counts: something lives there beside the guest */
};

typedef void machine_done_fn(void *arg, const struct err *err); /* err NULL: it is done */
/* The gate's sockets in its network, PLAN_GATE_FDS of them: the callee's to close. */
typedef void machine_doors_fn(void *arg, const int *doors, const struct err *err);
/* A socket to a port inside, connected or about to be: the callee's to close. */
typedef void machine_dial_fn(void *arg, int fd, const struct err *err);
typedef void machine_made_fn(void *arg, struct machine *m, const char *warnings,
                             const struct err *err);
/* changed: something was written since the last time; with if_changed, the root is another now. */
typedef void machine_root_fn(void *arg, bool changed, const struct err *err);
/* Directories of the root and of /usr, the receiver's now. */
typedef void machine_view_fn(void *arg, int root, int usr, const struct err *err);
typedef void machine_lend_fn(void *arg, bool in_use, const struct err *err);
typedef void machine_claim_fn(void *arg, const char *stack, const struct err *err);
typedef void machine_copy_fn(void *arg, const char *how, const struct err *err);
typedef void machine_stats_fn(void *arg, const struct machine_stats *stats, const struct err *err);
/* Every machine that exists on this host, whosever it is. */
typedef void machine_list_fn(void *arg, const struct plan_found *found, size_t count,
                             const struct err *err);

struct machine_driver {
    const char *kind;
    /* store: the id of ours, which machines belong to; NULL: nobody's, as in tests of a driver. */
    struct machine_host *(*open)(struct loop *loop, const char *store, struct err *err);
    void (*close)(struct machine_host *host);
    void (*list)(struct machine_host *host, machine_list_fn *done, void *arg);
    void (*create)(struct machine_host *host, const struct machine_spec *spec,
                   machine_made_fn *done, void *arg);
    /* One that exists. Comes with its guest's first word, or after two seconds without. */
    void (*adopt)(struct machine_host *host, const char *id, machine_made_fn *done, void *arg);
    /* It belongs to our store from now on, whosever it was; stack: what its root lies on. */
    void (*claim)(struct machine_host *host, const char *id, machine_claim_fn *done, void *arg);
    /*
     * By id. Done: nothing of it is left, or it belongs to another store; so an id that does not
     * exist is done.
     */
    void (*destroy)(struct machine_host *host, const char *id, machine_done_fn *done, void *arg);
    /*
     * Stops every process of the machine but its guest, which goes on to serve files and logs.
     * No command may be started meanwhile: the guest would stand still until the thaw. Times of
     * commands and the deadline go on. `busy` when something does not stop within two seconds.
     */
    void (*freeze)(struct machine *m, bool frozen, machine_done_fn *done, void *arg);
    /* `busy`: more memory is in use than that. Disk only where the store has project quota. */
    void (*limit)(struct machine *m, const struct machine_limits *limits, machine_done_fn *done,
                  void *arg);
    void (*set_deadline)(struct machine *m, uint64_t in_ms, machine_done_fn *done, void *arg);
    /* Those of one turn travel together: asking for hundreds is fine. */
    void (*stats)(struct machine *m, machine_stats_fn *done, void *arg);
    /* `busy`: something lives in it besides the guest. */
    void (*alone)(struct machine *m, machine_done_fn *done, void *arg);
    /*
     * The root becomes these layers with a new empty upper of that number above, which the machine
     * has not had before; what was written so far is the layer of the old number. `how` is of enum
     * plan_root. `busy`: something lives in it besides the guest, or
     * writes. Asking again for what has been done is fine.
     */
    void (*root)(struct machine *m, const char *stack, uint32_t layer, unsigned how,
                 machine_root_fn *done, void *arg);
    /* What a stack shows: read-only, with ids as on disk. */
    void (*view)(struct machine *m, const char *stack, machine_view_fn *done, void *arg);
    /*
     * The machine's own disk, likewise: N/u and N/U are what its layer N changed in the root and in
     * /usr. With it comes, rootless, the user namespace whose ids are on it; else -1.
     */
    void (*disk)(struct machine *m, machine_view_fn *done, void *arg);
    /*
     * A layer of that number that shows what these do, all of this machine; it goes on meanwhile.
     * `busy`: under way, ask again.
     */
    void (*merge)(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
                  void *arg);
    /* "3 7-9 12": all other layers of this machine, but its upper, are removed. */
    void (*keep)(struct machine *m, const char *ranges, machine_done_fn *done, void *arg);
    /*
     * What was written since the last layer becomes a layer of that number too; the machine must be
     * frozen. how: btrfs, reflink or copy. `busy`: under way, ask again. Number 0, before it is
     * frozen: what would make that slow is done now; `unsupported`: it takes what was changed.
     */
    void (*copy)(struct machine *m, uint32_t number, machine_copy_fn *done, void *arg);
    /*
     * A layer (a stack of one) is copied to a disk of the store under that number, and is there
     * whatever happens to the host. `busy`: under way, ask again.
     */
    void (*save)(struct machine *m, const char *layer, const char *disk, uint32_t number,
                 machine_done_fn *done, void *arg);
    /* "3 7-9": what else was saved on that disk is removed; NULL: all of it. */
    void (*shed)(struct machine_host *host, const char *disk, const char *ranges,
                 machine_done_fn *done, void *arg);
    /* What `/run/carrel/machine.json` inside says of its network: one JSON object. */
    void (*tell)(struct machine *m, const char *network, machine_done_fn *done, void *arg);
    /*
     * Archives of images (base/image_id.h), read and written by a process of its own: `done` comes
     * when that has begun, and what becomes of it comes over `report` as lines of JSON, the last of
     * which says how it ended. Descriptors stay the caller's until `done`. A tree in the making is
     * named by an id of the kind `n`, and must go by `wipe` or be renamed to what it is.
     */
    void (*unpack)(struct machine_host *host, const char *name, uint64_t disk_bytes, int archive,
                   int report, machine_done_fn *done, void *arg);
    /* form: tar, tar.zst, oci; erofs: archive is an empty file. */
    void (*pack)(struct machine_host *host, const char *form, const char *image, int archive,
                 int report, machine_done_fn *done, void *arg);
    /* What a stack of a machine shows, as a plain archive. */
    void (*draw)(struct machine *m, const char *stack, int archive, int report,
                 machine_done_fn *done, void *arg);
    /* `busy`: a machine uses it. One that is not there is done. */
    void (*wipe)(struct machine_host *host, const char *name, machine_done_fn *done, void *arg);
    /* Pools and fallbacks of this kind, one JSON object, for metrics and doctor. */
    void (*status)(struct machine_host *host,
                   void (*done)(void *arg, const char *json, const struct err *err), void *arg);
    /*
     * Opens the gate's sockets anew, once those of an earlier daemon are closed. `busy`: a program
     * in the machine has taken a port of them.
     */
    void (*listen)(struct machine *m, machine_doors_fn *done, void *arg);
    /*
     * Of its granted directories those at these paths (one a line) stay, all others are taken away.
     * `in_use`: something inside still has one of them open, and works with it as long as it lives.
     */
    void (*lend)(struct machine *m, const char *paths, machine_lend_fn *done, void *arg);
    void (*dial)(struct machine *m, uint16_t port, machine_dial_fn *done, void *arg);
    void (*let_go)(struct machine *m); /* machine_free() */
};

extern const struct machine_driver box_driver;

/* Common to all kinds; a driver's struct starts with it. */
struct machine {
    const struct machine_driver *driver;
    struct machine_host *host;
    char id[ID_SIZE];
    struct guest *guest;         /* commands, files, terminals; NULL for a kind without a guest */
    unsigned calls;              /* under way: each uses the machine until it is answered */
    int uppers[PLAN_MAX_GRANTS]; /* changes of cow grants, in their order; -1 where there is none */
    bool uppers_lost;            /* nobody could find them again */
    int doors[PLAN_GATE_FDS];    /* as made, until somebody takes them; -1: none */
    /*
     * Called once when it has ended (deadline, killed, destroyed by anybody, host trouble), with
     * the reason; may be NULL. A guest that breaks the protocol is ended.
     */
    void (*on_end)(void *arg, struct machine *m, const struct err *why);
    /*
     * The connection was lost, the machine lives, and `guest` is a new one: whatever was pending
     * has been answered, attach to its commands as after `adopt`. May be NULL.
     */
    void (*on_back)(void *arg, struct machine *m);
    void *on_arg;
};

void machine_free(struct machine *m);

/* A call of its driver or a request to its guest is not answered yet: machine_free() would be the
 * end of it. One that has ended answers them all, in a few seconds at most. */
bool machine_is_asked(const struct machine *m);

/*
 * Ends every process but the guest, in a machine that is not frozen. Done: none is left; `busy`
 * when something does not die within two seconds.
 */
void machine_halt(struct machine *m, struct loop *loop, machine_done_fn *done, void *arg);
