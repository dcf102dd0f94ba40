/*
 * Encodes and decodes messages to and from the spawner: requests (plans) and answers.
 *
 * One message is one packet of a SOCK_SEQPACKET socket: a header and fields of
 * (tag, length, bytes), little-endian. Decoding is pure and total: unknown tags,
 * wrong lengths, texts with NUL bytes and values out of range are refused, so
 * that privileged code never sees an incomplete request.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/layers.h"

/*
 * Without root, a machine's user namespace lies in one of its own, the nest, which has only the ids
 * of that machine. This is the id of the spawner's user in it, and so of files of the machine's
 * user.
 */
#define ID_NEST_USER 100000u

enum {
    PLAN_VERSION = 1,
    PLAN_MAX_BYTES = 32768, /* largest packet, request or answer */
    PLAN_MAX_GRANTS = 16,
    PLAN_PATH_SIZE = 1024,
    PLAN_NAME_SIZE = 64,
    PLAN_TEXT_SIZE = 16384,
    PLAN_ROWS_MAX = 32, /* machines in one STATS */
    /*
     * Descriptors of the gate, in this order: redirected TCP, explicit proxy, DNS over UDP and over
     * TCP, then /proc/net/snmp and snmp6, the network counters of the box.
     */
    PLAN_GATE_FDS = 6,
};

#define PLAN_UNLIMITED UINT64_MAX /* cpu_milli in LIMITS: remove the limit */

enum plan_type {
    PLAN_CREATE =
        1, /* plan, a descriptor per grant -> PLAN_CREATED + guest connection + gate + uppers */
    PLAN_FACTS, /* id                          -> PLAN_FACTS_ARE */
    /*
     * `not_found` also for a box of another store: only the daemon of its own store may end a box.
     */
    PLAN_DESTROY,  /* id, store                   -> PLAN_DONE, once the box is removed */
    PLAN_STATUS,   /*                             -> PLAN_TEXT, JSON */
    PLAN_STOP,     /* exit, if no box exists      -> PLAN_DONE */
    PLAN_LIST,     /* cursor (0: from the newest) -> PLAN_IDS */
    PLAN_STATS,    /* rows with ids               -> PLAN_STATS_ARE, the same rows filled in */
    PLAN_FREEZE,   /* id, frozen or not           -> PLAN_DONE; `busy`: not yet, ask again */
    PLAN_LIMITS,   /* id, limits (0: unchanged)   -> PLAN_DONE */
    PLAN_DEADLINE, /* id, ms from now (0: none)   -> PLAN_DONE, passed on to the guest */
    PLAN_LISTEN,   /* id                          -> PLAN_DONE + the gate's sockets */
    PLAN_UPPERS,   /* id  -> PLAN_TEXT, "0 3": the numbers of its cow grants + upper directories */
    /*
     * Switches the root to these layers and, above them, a new empty upper (the writable layer)
     * with number `layer`. The answer is the same if the root is so already. `busy`: a file is open
     * for writing.
     */
    PLAN_ROOT, /* id, layer, stack, how        -> PLAN_ROOT_IS + the root's directory */
    PLAN_VIEW, /* id, stack                    -> PLAN_VIEW_IS + its root and /usr, read-only */
    /* text: empty: its own disk; or the id of a machine, or of a disk of the store (d-...) */
    PLAN_DISK,  /* id, text                     -> PLAN_VIEW_IS + the disk, read-only */
    PLAN_KEEP,  /* id, text: "3 7-9 12"         -> PLAN_DONE; deletes all other layers of the box */
    PLAN_MERGE, /* id, stack, layer             -> PLAN_DONE; `busy`: not yet, ask again */
    PLAN_TELL,  /* id, text: JSON               -> PLAN_DONE; writes limits, net to machine.json */
    /*
     * Archives of images. A worker process of the spawner reads or writes the archive and reports
     * its progress and result on the second descriptor. A name is the id of an image, or of one
     * being made.
     */
    /* text: name, bytes of disk and, for a layer, the image below; archive, report */
    PLAN_UNPACK, /*                              -> PLAN_DONE, once it has begun */
    PLAN_PACK,   /* text: form, name; archive (erofs: a file), report -> PLAN_DONE, once begun */
    /*
     * Writes the files of a machine to an archive. text: if not empty, only what differs from this
     * image, in the first `layer` layers of the stack.
     */
    PLAN_DRAW, /* id, stack, text, layer; archive, report, perhaps a record -> PLAN_DONE */
    PLAN_WIPE, /* text: name, or name/root where that is a file too -> PLAN_DONE; `busy`: in use */
    /* port 0: the serial console of a vm */
    PLAN_DIAL, /* id, port                     -> PLAN_DONE + a socket to that port in the box */
    PLAN_LEND, /* id, text: paths, one per line -> PLAN_TEXT; unmounts other granted directories */
    /* Copies a layer to a disk of the store under number `layer`, and syncs it. */
    PLAN_SAVE, /* id, stack: one layer, layer, text: d-... -> PLAN_DONE; `busy`: ask again */
    PLAN_SHED, /* text: "d-... 3 7-9"         -> PLAN_DONE; deletes the other layers, or the disk */
    /* Copies its upper to this layer; 0: only syncs, and says "same" if the last copy is equal. */
    PLAN_COPY, /* id, layer                   -> PLAN_TEXT, how; `busy`: ask again */
    /* Gives the box to this store. The answer is the stack (list of layers) below its root. */
    PLAN_CLAIM, /* id, store                   -> PLAN_TEXT, a stack */
    /*
     * Volumes of the store (spawn/disk/volume.h). text: "make v-... BYTES" makes the filesystem of
     * a new volume; "free v-..." only asks whether the volume is mounted.
     */
    PLAN_VOLUME, /* text                       -> PLAN_DONE; `busy`: it is mounted */
    /*
     * Opens two states of a volume of the box. text: "cow N": the volume, and the volume with the
     * changes of grant N; one directory of a volume. "rw": two volumes; two directories.
     */
    PLAN_PEEK, /* id, text; directories        -> PLAN_VIEW_IS + before, after, read-only */
    /*
     * Starts the vm of a box that runs nothing (spawn/vm/boot.h). text: the kernel's command line;
     * mem_bytes: memory of the guest; gate: enum plan_boot; kernel, initrd and, if it is to go on,
     * its saved memory. changed: 1: fails if it cannot go on in that memory; 0: it boots then.
     * The text of the answer says how it starts, then whether with KVM, then what is missing.
     */
    PLAN_BOOT, /* id, text, limits, gate, changed -> PLAN_TEXT + the standard error of QEMU */
    /* Ends the vm. changed: 1: the machine is a box from now on. `busy`: ask again */
    PLAN_HALT, /* id, changed                  -> PLAN_DONE */
    /* As MERGE, but the new layer has only /home and /root of the layers, of which one may do. */
    PLAN_MERGE_HOME, /* id, stack, layer        -> PLAN_DONE; `busy`: not yet, ask again */
    /* changed: enum plan_memory. disk_bytes: largest size of the file; 0: no limit */
    PLAN_MEMORY, /* id, changed, limits; file  -> PLAN_DONE; `busy`: ask again */
    /* This number never changes: spawners of every version answer it, at least with an error. */
    PLAN_HELLO = 63, /*                           -> PLAN_TEXT, its program_id() */
    PLAN_CREATED = 64,
    PLAN_FACTS_ARE,
    PLAN_DONE,
    PLAN_TEXT,
    PLAN_ERROR,
    PLAN_IDS,
    PLAN_STATS_ARE,
    PLAN_ROOT_IS, /* with a descriptor, unless nothing was written and so nothing was done */
    PLAN_VIEW_IS,
};

/* What happens to a box when the connection of its creator closes. */
enum plan_linger {
    PLAN_NOBODYS, /* the box ends */
    PLAN_KEPT,    /* the box stays until it is removed */
    PLAN_DAEMONS, /* the box stays, and LIST reports it, so that a daemon can remove it */
};

enum plan_grant_mode { PLAN_GRANT_RO = 1, PLAN_GRANT_COW, PLAN_GRANT_RW };

/* "ro", "cow", "rw" */
const char *plan_mode_name(enum plan_grant_mode mode);
bool plan_mode_by_name(const char *name, enum plan_grant_mode *ret);

struct plan_grant {
    enum plan_grant_mode mode;
    char path[PLAN_PATH_SIZE]; /* absolute, inside the machine */
    bool private;              /* files of other users in it stay inaccessible */
    bool volume;               /* the descriptor is the directory of a volume in the store */
};

struct plan {
    char id[ID_SIZE];
    char image[PLAN_NAME_SIZE];
    char hostname[PLAN_NAME_SIZE];
    uint64_t mem_bytes;  /* 0: the default */
    uint64_t cpu_milli;  /* thousandths of a cpu; 0: no limit */
    uint64_t pids;       /* 0: the default */
    uint64_t disk_bytes; /* 0: the default */
    uint64_t deadline_ms;
    uint64_t linger;              /* enum plan_linger */
    uint64_t same;                /* 1: the machine existed before and keeps its identity */
    uint64_t cell;                /* 1: a cell machine: every command runs in the cell worker */
    uint64_t gate;                /* 1: CREATED has PLAN_GATE_FDS, before the uppers */
    char stack[LAYERS_TEXT_SIZE]; /* base/layers.h; empty: the image alone */
    char store[ID_SIZE];          /* store of the daemon; the box belongs to it */
    /* Refuse if the host's packages changed since this machine was created; empty: no check. */
    char undrifted[ID_SIZE];
    size_t grant_count;
    struct plan_grant grants[PLAN_MAX_GRANTS]; /* last, so that unused ones need not be copied */
};

/* What the kernel counted for a box. The numbers explain why its commands ended. */
struct plan_facts {
    uint64_t oom_kills;
    uint64_t pids_refused;
    uint64_t mem_peak_bytes;
    uint64_t cpu_us;
    uint64_t mem_limit_bytes;
    uint64_t lookups_refused; /* DNS lookups that were sent to a closed port */
    uint64_t drifted;         /* 1: the host's packages changed since the box was made */
};

/* Bits of plan_stats.exists: counters that this host does not have. Their numbers are 0. */
enum plan_uncounted {
    PLAN_NO_MEMORY = 2, /* mem_bytes, mem_peak_bytes, mem_limit_bytes, oom_kills */
    PLAN_NO_CPU = 4,    /* cpu_us, io_bytes */
    PLAN_NO_PIDS = 8,   /* pids, pids_refused */
};

/* What a box uses now. All members are numbers, which are sent in this order. */
struct plan_stats {
    uint64_t exists; /* 0: the box does not exist, and the other numbers mean nothing; else 1 and
                        enum plan_uncounted */
    uint64_t cpu_us;
    uint64_t mem_bytes;
    uint64_t mem_peak_bytes;
    uint64_t mem_limit_bytes;
    uint64_t pids;
    uint64_t io_bytes; /* read and written by system calls of live and reaped processes */
    uint64_t disk_bytes;
    uint64_t disk_files_permille; /* used part of the files that the disk may hold */
    uint64_t oom_kills;
    uint64_t pids_refused;
    uint64_t lookups_refused;
    uint64_t frozen;
    uint64_t drifted;
};

struct plan_row {
    char id[ID_SIZE];
    struct plan_stats stats;
};

/* What LIST reports about a box: enough to find its store, and to take the box over. */
struct plan_found {
    char id[ID_SIZE];
    char store[ID_SIZE];                             /* empty: made before boxes had a store */
    char image[PLAN_NAME_SIZE];                      /* empty: not known */
    uint64_t layer;                                  /* number of its upper; 0: not known */
    uint64_t mem_bytes, cpu_milli, pids, disk_bytes; /* as asked for; 0: the default */
    uint64_t left_ms;                                /* rest of its lifetime; 0: no limit */
    uint64_t vm;                                     /* 1: a vm runs in it */
};

enum { PLAN_FOUND_SIZE = 256 }; /* size of a line, with its newline and NUL */

size_t plan_found_print(const struct plan_found *found, char to[PLAN_FOUND_SIZE]);
/* `line` has no newline. An older spawner sends the id alone. */
bool plan_found_parse(const char *line, struct plan_found *ret);

/* Options of PLAN_ROOT. */
enum plan_root {
    ROOT_IF_CHANGED = 1, /* do nothing if nothing was written */
    ROOT_UNDRIFTED = 2,  /* `unsupported` if the host's packages changed since the box was made */
    ROOT_ALONE = 4,      /* the caller asked the guest already: no command runs */
};

/* Options of PLAN_BOOT. A spawner without KVM, or an older one, lets QEMU translate. */
enum plan_boot {
    BOOT_NET = 1, /* with a network */
    BOOT_KVM = 2, /* with KVM; saved memory that was saved without it goes on without it */
};

/* What PLAN_MEMORY does. */
enum plan_memory {
    MEMORY_GO_ON,  /* the file is completed, and the vm goes on; done when both is so */
    MEMORY_SAVE,   /* stops the vm and saves its memory to a file; one of the others must follow */
    MEMORY_STAY,   /* as GO_ON, but the vm stays stopped: its box is to end */
    MEMORY_REPAIR, /* a vm that stayed stopped goes on; harmless if it runs */
};

/* A decoded message; `type` decides which members are set. */
struct plan_message {
    enum plan_type type;
    uint64_t tag;     /* the answer repeats it: DESTROY is answered late, others in order */
    struct plan plan; /* CREATE; requests about one machine set plan.id and what they change */
    uint64_t frozen;  /* FREEZE */
    uint64_t port;    /* DIAL */
    uint64_t layer;   /* ROOT, MERGE, SAVE, COPY */
    uint64_t changed; /* HALT, BOOT: see there; ROOT: enum plan_root; MEMORY: enum plan_memory;
                         ROOT_IS: 1 if files changed, or if unknown */
    uint64_t cursor;  /* LIST: where to start; IDS: cursor of the next page, 0: none */
    struct plan_facts facts; /* FACTS_ARE */
    struct err error;        /* ERROR, with error_code beside it */
    uint64_t error_code;
    /*
     * TEXT: JSON; CREATED: warnings, one per line, may be empty; IDS: a struct plan_found per line
     */
    char text[PLAN_TEXT_SIZE];
    size_t row_count; /* STATS, STATS_ARE */
    struct plan_row rows[PLAN_ROWS_MAX];
};

/* Makes *m an ERROR message with this error. */
void plan_error(struct plan_message *m, const struct err *err);

/* Encodes m into buf[PLAN_MAX_BYTES] and returns the number of bytes. */
size_t plan_encode(const struct plan_message *m, char *buf);

/* The type that answers this request, besides ERROR; 0: the type is not a request. */
enum plan_type plan_reply(enum plan_type request);

int plan_decode(const char *bytes, size_t len, struct plan_message *ret, struct err *err);
