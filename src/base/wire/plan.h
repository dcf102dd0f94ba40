/*
 * The plan codec: requests to the spawner and its answers.
 *
 * One message is one packet of a SOCK_SEQPACKET socket: a header and fields of
 * (tag, length, bytes), little-endian. Decoding is pure and total: unknown tags,
 * wrong lengths, texts with NUL bytes and values out of range are refused, so
 * that privileged code never sees a half-made plan.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/id.h"
#include "base/layers.h"

enum {
    PLAN_VERSION = 1,
    PLAN_MAX_BYTES = 32768, /* one packet, either way */
    PLAN_MAX_GRANTS = 16,
    PLAN_PATH_SIZE = 1024,
    PLAN_NAME_SIZE = 64,
    PLAN_TEXT_SIZE = 16384,
    PLAN_ROWS_MAX = 32, /* machines in one STATS */
    /* Steered TCP, explicit proxy, DNS by UDP and by TCP; then files of its network's counters:
     * /proc/net/snmp and snmp6. In this order. */
    PLAN_GATE_FDS = 6,
};

#define PLAN_UNLIMITED UINT64_MAX /* cpu_milli in LIMITS: take the limit away */

enum plan_type {
    PLAN_CREATE =
        1,      /* plan, a descriptor a grant  -> PLAN_CREATED + guest connection + gate + uppers */
    PLAN_FACTS, /* id                          -> PLAN_FACTS_ARE */
    /* `not_found` for a box of another store, too: only the daemon of its store ends a box. */
    PLAN_DESTROY,  /* id, store                   -> PLAN_DONE, when nothing is left of it */
    PLAN_STATUS,   /*                             -> PLAN_TEXT, JSON */
    PLAN_STOP,     /* leave, if there is no box   -> PLAN_DONE */
    PLAN_LIST,     /* cursor (0: from the newest) -> PLAN_IDS */
    PLAN_STATS,    /* rows with ids               -> PLAN_STATS_ARE, the same rows filled in */
    PLAN_FREEZE,   /* id, frozen or not           -> PLAN_DONE; `busy`: not yet, ask again */
    PLAN_LIMITS,   /* id, limits (0: as it was)   -> PLAN_DONE */
    PLAN_DEADLINE, /* id, from now (0: none)      -> PLAN_DONE, passed on to the guest */
    PLAN_LISTEN,   /* id                          -> PLAN_DONE + the gate's sockets */
    PLAN_UPPERS,   /* id  -> PLAN_TEXT, "0 3": the numbers of its cow grants + their uppers */
    /*
     * The root becomes these layers and, above them, a new empty upper of that number. The answer
     * is the same when it is so already. `busy`: something is open for writing.
     */
    PLAN_ROOT,  /* id, layer, stack, how        -> PLAN_ROOT_IS + the root's directory */
    PLAN_VIEW,  /* id, stack                    -> PLAN_VIEW_IS + root and /usr of it, read-only */
    PLAN_DISK,  /* id                           -> PLAN_VIEW_IS + its own disk, read-only */
    PLAN_KEEP,  /* id, text: "3 7-9 12"         -> PLAN_DONE; its other layers are removed */
    PLAN_MERGE, /* id, stack, layer             -> PLAN_DONE; `busy`: not yet, ask again */
    PLAN_TELL,  /* id, text: JSON               -> PLAN_DONE; limits, network of its machine.json */
    /*
     * Archives of images, read and written by a worker of the spawner's, which tells what becomes
     * of it over the second descriptor. A name is an image's id or that of one in the making.
     */
    PLAN_UNPACK, /* text: name, bytes of disk; archive, report -> PLAN_DONE, once it has begun */
    PLAN_PACK,   /* text: form, name; archive (erofs: a file), report -> PLAN_DONE, likewise */
    PLAN_DRAW,   /* id, stack; archive, report   -> PLAN_DONE: what a machine is, as an archive */
    PLAN_WIPE, /* text: name, or name/root where that is a file too -> PLAN_DONE; `busy`: in use */
    PLAN_DIAL, /* id, port                     -> PLAN_DONE + a socket to that port in the box */
    PLAN_LEND, /* id, text: paths, one a line  -> PLAN_TEXT; other granted directories go */
    /* A layer, copied to a disk of the store under that number, and synced. */
    PLAN_SAVE, /* id, stack: one layer, layer, text: d-... -> PLAN_DONE; `busy`: ask again */
    PLAN_SHED, /* text: "d-... 3 7-9"          -> PLAN_DONE; its others are removed, or all of it */
    PLAN_COPY, /* id, layer: what its upper holds -> PLAN_TEXT, how; `busy`: ask again */
    /* The box belongs to that store now; the answer is what its root lies on. */
    PLAN_CLAIM, /* id, store                   -> PLAN_TEXT, a stack */
    /* Never another number: spawners of any version answer it, if only with an error. */
    PLAN_HELLO = 63, /*                           -> PLAN_TEXT, its program_id() */
    PLAN_CREATED = 64,
    PLAN_FACTS_ARE,
    PLAN_DONE,
    PLAN_TEXT,
    PLAN_ERROR,
    PLAN_IDS,
    PLAN_STATS_ARE,
    PLAN_ROOT_IS, /* a descriptor, unless nothing was to be done because nothing was written */
    PLAN_VIEW_IS,
};

/* Whose a box is once its creator's connection is closed. */
enum plan_linger {
    PLAN_NOBODYS, /* it ends */
    PLAN_KEPT,    /* it stays until somebody removes it */
    PLAN_DAEMONS, /* the same, and LIST tells of it: what no daemon wants any more is removed */
};

enum plan_grant_mode { PLAN_GRANT_RO = 1, PLAN_GRANT_COW, PLAN_GRANT_RW };

/* "ro", "cow", "rw" */
const char *plan_mode_name(enum plan_grant_mode mode);
bool plan_mode_by_name(const char *name, enum plan_grant_mode *ret);

struct plan_grant {
    enum plan_grant_mode mode;
    char path[PLAN_PATH_SIZE]; /* absolute, inside the machine */
    bool private;              /* what others own in it stays closed: it is one user's to give */
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
    uint64_t same;                /* it has been before: it keeps who it is */
    uint64_t gate;                /* CREATED brings PLAN_GATE_FDS, before the uppers */
    char stack[LAYERS_TEXT_SIZE]; /* base/layers.h; empty: the image alone */
    char store[ID_SIZE];          /* of the daemon that asks: a box belongs to one store */
    char undrifted[ID_SIZE];      /* refused if this machine has drifted; empty: it may have */
    size_t grant_count;
    struct plan_grant grants[PLAN_MAX_GRANTS]; /* last, so that unused ones need not be copied */
};

/* What the kernel counted for a box: the reasons behind an end. */
struct plan_facts {
    uint64_t oom_kills;
    uint64_t pids_refused;
    uint64_t mem_peak_bytes;
    uint64_t cpu_us;
    uint64_t mem_limit_bytes;
    uint64_t lookups_refused; /* name lookups that had nowhere to go */
    uint64_t drifted;         /* the host's packages changed since its image was made */
};

/* What a box uses now. Numbers only: they are sent in this order. */
struct plan_stats {
    uint64_t exists; /* 0: there is no such box, and nothing below says anything */
    uint64_t cpu_us;
    uint64_t mem_bytes;
    uint64_t mem_peak_bytes;
    uint64_t mem_limit_bytes;
    uint64_t pids;
    uint64_t io_bytes; /* read and written by system calls of what lives and has been reaped */
    uint64_t disk_bytes;
    uint64_t disk_files_permille; /* of the files that it may hold */
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

/* What LIST tells of a box: enough to know whose it is, and to take it over. */
struct plan_found {
    char id[ID_SIZE];
    char store[ID_SIZE];                             /* empty: made before boxes had one */
    char image[PLAN_NAME_SIZE];                      /* empty: not known */
    uint64_t layer;                                  /* of its root; 0: not known */
    uint64_t mem_bytes, cpu_milli, pids, disk_bytes; /* as asked for; 0: the default */
    uint64_t left_ms;                                /* of its lifetime; 0: it has none */
};

enum { PLAN_FOUND_SIZE = 256 }; /* a line of it, with its newline and NUL */

size_t plan_found_print(const struct plan_found *found, char to[PLAN_FOUND_SIZE]);
/* Without its newline. A line with an id alone is one of an older spawner. */
bool plan_found_parse(const char *line, struct plan_found *ret);

/* How a root becomes another. */
enum plan_root {
    ROOT_IF_CHANGED = 1, /* nothing is done when nothing was written */
    ROOT_UNDRIFTED = 2,  /* `unsupported` when the host's packages changed since it was made */
    ROOT_ALONE = 4,      /* the guest was asked already, and nothing was started since */
};

/* A decoded message; which members are filled follows from type. */
struct plan_message {
    enum plan_type type;
    uint64_t tag;     /* the answer repeats it: DESTROY is answered late, the others in order */
    struct plan plan; /* CREATE; for requests about one machine plan.id and what they change */
    uint64_t frozen;  /* FREEZE */
    uint64_t port;    /* DIAL */
    uint64_t layer;   /* ROOT, LAYER */
    uint64_t changed; /* ROOT: how, of enum plan_root; ROOT_IS: it was, or that is not known */
    uint64_t cursor;  /* LIST; IDS: for the next page, 0 after the last */
    struct plan_facts facts; /* FACTS_ARE */
    struct err error;        /* ERROR, with error_code beside it */
    uint64_t error_code;
    /* TEXT: JSON; CREATED: warnings, one a line, may be empty; IDS: a struct plan_found a line */
    char text[PLAN_TEXT_SIZE];
    size_t row_count; /* STATS, STATS_ARE */
    struct plan_row rows[PLAN_ROWS_MAX];
};

/* Makes an ERROR message of an error. */
void plan_error(struct plan_message *m, const struct err *err);

/* Bytes written into buf[PLAN_MAX_BYTES]. */
size_t plan_encode(const struct plan_message *m, char *buf);

/* The one type that answers a request beside ERROR; 0: it is no request. */
enum plan_type plan_reply(enum plan_type request);

int plan_decode(const char *bytes, size_t len, struct plan_message *ret, struct err *err);
