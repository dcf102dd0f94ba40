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
struct machine_host; /* state of a driver on this host: opened once by the daemon */

struct machine_limits {
    uint64_t mem_bytes; /* 0 in any limit: the default of the kind; in limit(): unchanged */
    uint64_t cpu_milli; /* in limit(): MACHINE_UNLIMITED removes the limit */
    uint64_t pids;
    uint64_t disk_bytes;
};

#define MACHINE_UNLIMITED PLAN_UNLIMITED

/* A vm: a machine with a kernel of its own, in QEMU. */
struct machine_vm {
    const char *hostname;
    const char *kernel; /* path of its kernel; "": choose one of the host */
    uint64_t mem_bytes; /* 0: the default */
    uint64_t cpu_milli; /* decides the number of its processors */
    const char *memory; /* file with saved memory, in which it goes on; NULL: it boots */
    /* It was paused: it goes on in that memory, and its commands with it, or `create` fails. */
    bool was_paused;
};

struct machine_spec {
    const char *id;
    const char *image;
    const char *hostname;
    struct machine_limits limits;
    uint64_t deadline_ms; /* time from now after which the machine ends itself; 0: none */
    bool linger;          /* false: the machine ends when the daemon releases it or dies */
    /*
     * True: `made` is called before the guest has replied. Commands can be sent at once; the first
     * reply shows that the machine exists. False: the machine exists when `made` is called.
     */
    bool early;
    bool same;                   /* the machine existed before and keeps its identity */
    bool cell;                   /* the machine is a cell: every command runs in the cell worker */
    const struct machine_vm *vm; /* the machine is a vm; NULL: it is not */
    bool gate;                   /* open the sockets of the gate: see `doors` */
    const char *stack; /* layers of the machine's root (base/layers.h); NULL: only the image */
    /* Id of a machine. If the host's packages changed after its creation, `create` fails with
     * `unsupported`. NULL: no check. */
    const char *undrifted;
    const struct plan_grant *grants;
    const int *grant_fds; /* one open directory per grant, owned by the caller */
    size_t grant_count;
};

/* Kernel counters of a machine. Without has_memory, has_cpu or has_pids some of them are 0. */
struct machine_stats {
    bool has_memory; /* mem_*_bytes, oom_kills */
    bool has_cpu;    /* cpu_us, io_bytes */
    bool has_pids;   /* pids, pids_refused */
    uint64_t cpu_us;
    uint64_t mem_bytes;
    uint64_t mem_peak_bytes;
    uint64_t mem_limit_bytes;
    uint64_t pids;
    uint64_t io_bytes;            /* bytes that system calls read and wrote */
    uint64_t disk_bytes;          /* bytes used in the upper (the writable layer) */
    uint64_t disk_files_permille; /* files on the disk, in thousandths of its limit */
    uint64_t oom_kills;
    uint64_t pids_refused;
    uint64_t lookups_refused;
    bool frozen;
    bool drifted;
    bool busy; /* on a host without counters: processes other than the guest exist */
};

typedef void machine_done_fn(void *arg, const struct err *err); /* err NULL: success */
/* doors: PLAN_GATE_FDS sockets of the gate in the network of the machine; the callee owns them. */
typedef void machine_doors_fn(void *arg, const int *doors, const struct err *err);
/* fd: a socket to a port of the machine, connected or connecting; the callee owns it. */
typedef void machine_dial_fn(void *arg, int fd, const struct err *err);
typedef void machine_made_fn(void *arg, struct machine *m, const char *warnings,
                             const struct err *err);
/* warnings: what the vm lacks, such as a network; NULL: nothing. */
typedef void machine_move_fn(void *arg, const char *warnings, const struct err *err);
/* changed: files were written since the last switch; with ROOT_IF_CHANGED, the root is new. */
typedef void machine_root_fn(void *arg, bool changed, const struct err *err);
/* Directories of the root and of /usr; the callee owns them. */
typedef void machine_view_fn(void *arg, int root, int usr, const struct err *err);
typedef void machine_lend_fn(void *arg, bool in_use, const struct err *err);
typedef void machine_claim_fn(void *arg, const char *stack, const struct err *err);
typedef void machine_copy_fn(void *arg, const char *how, const struct err *err);
typedef void machine_stats_fn(void *arg, const struct machine_stats *stats, const struct err *err);
/* All machines on this host, of any store. */
typedef void machine_list_fn(void *arg, const struct plan_found *found, size_t count,
                             const struct err *err);

struct machine_unpack {
    const char *name; /* id of the unfinished image */
    uint64_t disk_bytes;
    /* image that the archive is a layer above; "host": the host's /usr is; NULL: none */
    const char *below;
};

struct machine_draw {
    const char *stack;
    const char *base; /* NULL: all files */
    /* number of layers, from the top of the stack, that may differ from the base */
    size_t layers;
    /* all files that changed, as a backup: the record of the backup before, which may be empty.
     * 0 or less: no backup */
    int record;
};

struct machine_driver {
    const char *kind;
    /* store: id of the store that owns new machines; NULL: none, as in tests of a driver. */
    struct machine_host *(*open)(struct loop *loop, const char *store, struct err *err);
    void (*close)(struct machine_host *host);
    void (*list)(struct machine_host *host, machine_list_fn *done, void *arg);
    void (*create)(struct machine_host *host, const struct machine_spec *spec,
                   machine_made_fn *done, void *arg);
    /*
     * Takes over an existing machine. Done when its guest replies, or after two seconds. vm: it is
     * a vm; a switch of its root boots it with these values. NULL: it is a box; a vm in it is left
     * from a move that was not recorded, and is ended.
     */
    void (*adopt)(struct machine_host *host, const char *id, const struct machine_vm *vm,
                  machine_made_fn *done, void *arg);
    /*
     * Makes a box in which no program runs a vm: boots it, and `guest` becomes that of the vm.
     * After a failure the machine is a box as before.
     */
    void (*move)(struct machine *m, const struct machine_vm *vm, machine_move_fn *done, void *arg);
    /*
     * Saves the memory of a vm to a new file (base/wire/vm_memory.h) and stops the vm. After a
     * success go_on() must be called, which completes the file; after a failure the vm goes on.
     * how: MEMORY_GO_ON, STAY or REPAIR of enum plan_memory; after a failed STAY the vm goes on.
     */
    void (*save_memory)(struct machine *m, int file, uint64_t max_bytes, machine_done_fn *done,
                        void *arg);
    void (*go_on)(struct machine *m, enum plan_memory how, machine_done_fn *done, void *arg);
    /* The next switch of the root lets the vm go on in this memory instead of booting it. */
    void (*recall)(struct machine *m, const char *memory);
    /* Makes a machine of any store belong to our store. stack: the layers below its root. */
    void (*claim)(struct machine_host *host, const char *id, machine_claim_fn *done, void *arg);
    /*
     * Destroys a machine by its id. Succeeds if nothing of the machine is left, also for an id that
     * does not exist, or if the machine belongs to another store.
     */
    void (*destroy)(struct machine_host *host, const char *id, machine_done_fn *done, void *arg);
    /*
     * Freezes every process of the machine except its guest, which still serves files and logs.
     * No command may be started meanwhile: the guest would block until the thaw. Timeouts of
     * commands and the deadline continue. `busy`: a process did not freeze within two seconds.
     */
    void (*freeze)(struct machine *m, bool frozen, machine_done_fn *done, void *arg);
    /* `busy`: more memory is in use than the new limit allows. The disk limit changes only if the
     * store has project quota. */
    void (*limit)(struct machine *m, const struct machine_limits *limits, machine_done_fn *done,
                  void *arg);
    void (*set_deadline)(struct machine *m, uint64_t in_ms, machine_done_fn *done, void *arg);
    /* Requests of one turn of the loop are sent together, so hundreds at once are fine. */
    void (*stats)(struct machine *m, machine_stats_fn *done, void *arg);
    /* Checks that no process but the guest exists. `busy`: there are others. */
    void (*alone)(struct machine *m, machine_done_fn *done, void *arg);
    /*
     * Switches the root to the layers of `stack` with a new empty upper (writable layer) of number
     * `layer`, which must be new. The files written so far become the layer of the old number.
     * how: enum plan_root. `busy`: a process other than the guest exists, or a file is open for
     * writing. Repeating a request that succeeded is harmless.
     */
    void (*root)(struct machine *m, const char *stack, uint32_t layer, unsigned how,
                 machine_root_fn *done, void *arg);
    /* Opens the merged files of a stack (list of layers), read-only, with user ids as on disk. */
    void (*view)(struct machine *m, const char *stack, machine_view_fn *done, void *arg);
    /*
     * Opens a disk, read-only: N/u and N/U hold the changes of its layer N in the root and in /usr.
     * name: as in a stack (list of layers). NULL: the machine's own disk; then usr is the user
     * namespace of the user ids on disk if rootless, else -1.
     */
    void (*disk)(struct machine *m, const char *name, machine_view_fn *done, void *arg);
    /*
     * Merges layers of this machine into a new layer of that number, while the machine runs.
     * `busy`: in progress, ask again.
     */
    void (*merge)(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
                  void *arg);
    /* The same with only /home and /root of the layers, of which one is enough. */
    void (*merge_home)(struct machine *m, const char *stack, uint32_t layer, machine_done_fn *done,
                       void *arg);
    /* ranges: layer numbers, such as "3 7-9 12". Removes all other layers of this machine except
     * its upper. */
    void (*keep)(struct machine *m, const char *ranges, machine_done_fn *done, void *arg);
    /*
     * Copies the upper of a frozen machine to a layer of that number. how: btrfs, reflink or copy.
     * `busy`: in progress, ask again. Number 0, before the freeze: writes unsaved data to disk, so
     * that the copy is fast, and answers `same` if nothing was written since the last copy;
     * `unsupported`: the disk is not btrfs, so files have to be copied.
     */
    void (*copy)(struct machine *m, uint32_t number, machine_copy_fn *done, void *arg);
    /*
     * Copies a layer (a stack of one) to a disk of the store under that number, where it survives a
     * restart of the host. `busy`: in progress, ask again.
     */
    void (*save)(struct machine *m, const char *layer, const char *disk, uint32_t number,
                 machine_done_fn *done, void *arg);
    /* ranges: layer numbers, such as "3 7-9". Removes all other layers saved on that disk; NULL:
     * removes all. */
    void (*shed)(struct machine_host *host, const char *disk, const char *ranges,
                 machine_done_fn *done, void *arg);
    /* Sets the network of `/run/carrel/machine.json` in the machine: one JSON object. */
    void (*tell)(struct machine *m, const char *network, machine_done_fn *done, void *arg);
    /*
     * Unpacks an archive to an image (base/image_id.h) in a process of its own. `done` is called
     * when the process has started. It reports on `report` with lines of JSON; the last line is the
     * result. Keep the descriptors open until `done`. An unfinished image has an id of the kind `n`
     * and must be deleted with `wipe` or renamed to its final id.
     */
    void (*unpack)(struct machine_host *host, const struct machine_unpack *what, int archive,
                   int report, machine_done_fn *done, void *arg);
    /* Writes an image to an archive. form: tar, tar.zst, oci, or erofs to an empty file. */
    void (*pack)(struct machine_host *host, const char *form, const char *image, int archive,
                 int report, machine_done_fn *done, void *arg);
    /*
     * Writes the merged files of a stack of a machine to a tar archive. With what->base, writes
     * only what differs from that image, as a layer with whiteouts.
     */
    void (*draw)(struct machine *m, const struct machine_draw *what, int archive, int report,
                 machine_done_fn *done, void *arg);
    /* Deletes an image. `busy`: a machine uses it. Succeeds if the image does not exist. */
    void (*wipe)(struct machine_host *host, const char *name, machine_done_fn *done, void *arg);
    /*
     * Sends a request about volumes of the store to the spawner (PLAN_VOLUME). `busy`: the volume
     * is mounted.
     */
    void (*volume)(struct machine_host *host, const char *request, machine_done_fn *done,
                   void *arg);
    /*
     * Opens two states of a volume of the machine, read-only (PLAN_PEEK). dirs: the directories of
     * the volumes in the store, which stay open until `done`. usr is the second state.
     */
    void (*peek)(struct machine *m, const char *request, const int *dirs, size_t count,
                 machine_view_fn *done, void *arg);
    /* Reports pools and fallbacks of this kind as one JSON object, for metrics and doctor. */
    void (*status)(struct machine_host *host,
                   void (*done)(void *arg, const char *json, const struct err *err), void *arg);
    /*
     * Opens the gate's sockets again, once those of an earlier daemon are closed. `busy`: a program
     * in the machine uses one of their ports.
     */
    void (*listen)(struct machine *m, machine_doors_fn *done, void *arg);
    /*
     * Keeps the granted directories at these paths (one per line) and removes all others. in_use: a
     * process in the machine still has a removed one open and can use it until the process ends. A
     * vm boots again for it, which ends everything in it.
     */
    void (*lend)(struct machine *m, const char *paths, machine_lend_fn *done, void *arg);
    /* port 0: the serial console of a vm (spawn/vm/serial.h). */
    void (*dial)(struct machine *m, uint16_t port, machine_dial_fn *done, void *arg);
    void (*let_go)(struct machine *m); /* called by machine_free() */
};

extern const struct machine_driver box_driver;

/* Common to all kinds; the struct of a driver starts with a struct machine. */
struct machine {
    const struct machine_driver *driver;
    struct machine_host *host;
    char id[ID_SIZE];
    struct guest *guest;         /* commands, files, terminals; NULL for a kind without a guest */
    unsigned calls;              /* pending calls: each uses the machine until its reply comes */
    int uppers[PLAN_MAX_GRANTS]; /* changes of cow (copy-on-write) grants, in order; -1: none */
    bool uppers_lost;            /* `uppers` could not be opened again */
    bool is_ending;              /* `destroy` was called: its guest is about to disappear */
    const char *rebooted;        /* a vm: why it restarted while no daemon ran; NULL: it did not */
    const char *start;           /* a vm: how it started: boot, clone, memory; NULL: not known */
    const char *accel;           /* a vm: what runs its code: kvm, tcg; NULL: not known */
    int doors[PLAN_GATE_FDS];    /* sockets of the gate, until the service takes them; -1: none */
    /*
     * Called once when the machine has ended (deadline, kill, destroy, failure of the host), with
     * the reason; may be NULL. A machine whose guest breaks the protocol is ended.
     */
    void (*on_end)(void *arg, struct machine *m, const struct err *why);
    /*
     * Called when the connection was lost, the machine lives, and `guest` is a new connection.
     * Pending requests have failed; attach to the commands again, as after `adopt`. May be NULL.
     */
    void (*on_back)(void *arg, struct machine *m);
    /*
     * Called when a vm has restarted by itself, for this reason, and boots again. All its programs
     * have ended. on_back or on_end is called next. May be NULL.
     */
    void (*on_reboot)(void *arg, struct machine *m, const char *why);
    /*
     * Called when a vm was powered off from inside, or restarts too often. True: the receiver saves
     * its files, and destroys its box; false: it ends at once. May be NULL.
     */
    bool (*on_off)(void *arg, struct machine *m, const char *why);
    /* A program in the machine called `carrel`: see guest_call_fn. Answer with
     * guest_call_answer(m->guest, ...). May be NULL. */
    void (*on_call)(void *arg, struct machine *m, uint32_t id, const struct msg_bytes *words);
    void *on_arg;
};

void machine_free(struct machine *m);

/* True if a call of the driver or a request to the guest is pending, which machine_free() would
 * drop. A machine that has ended completes all of them within a few seconds. */
bool machine_is_asked(const struct machine *m);

/*
 * Kills every process except the guest, in a machine that is not frozen. Succeeds when none is
 * left; `busy`: a process did not end within two seconds.
 */
void machine_halt(struct machine *m, struct loop *loop, machine_done_fn *done, void *arg);
