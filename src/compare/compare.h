/*
 * Compares two states of a machine's files, on the host and without the machine.
 *
 * Both states are mounted as read-only overlays. Only paths in layers that one of them lacks can
 * differ, so the work depends on the changes, not on the size of the tree. The trees are hostile:
 * links are not followed, only regular files are opened, and names, depth and time are limited. A
 * confined worker, carrel-compare, does the work.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/layers.h"
#include "base/sha256.h"
#include "base/wire/changes.h"

enum {
    COMPARE_LAYERS_MAX = 1024,
    COMPARE_DISKS_MAX = 2 * LAYERS_DISKS_MAX + 1, /* of two stacks, and the machine's own */
    COMPARE_UNDER_SIZE = 4096,
    COMPARE_SKIP_SIZE = 4096,
    COMPARE_ENTRIES_MAX = 5000,   /* paths that are listed */
    COMPARE_LOOKED_MAX = 2000000, /* names that are looked at */
    COMPARE_PATHS_MAX = 1 << 20,  /* bytes of all paths and targets */
    COMPARE_TEXT_MAX = 1 << 20,   /* bytes of all differences of text */
    COMPARE_FILE_MAX = 1 << 20,   /* a longer file is not compared line by line */
    COMPARE_MS = 25000,
    COMPARE_OUT_MAX = 8 << 20,
    COMPARE_PACK_MAX = 200000, /* paths that are packed or deleted */
    COMPARE_PACK_MS = 120000,
    COMPARE_MESSAGE_MAX = 1 << 16,
    COMPARE_OWN_MAX = 16,
    COMPARE_OWN_PATH_SIZE = 64,
    COMPARE_OWN_BYTES_MAX = 8 << 20, /* a longer file is not one of Carrel's own */
};
#define COMPARE_READ_MAX (4ull << 30) /* bytes that are read to compare files of the same size */

enum compare_task { COMPARE_TREES = 1, COMPARE_SIZES, COMPARE_PACK };

/* The descriptors that a worker receives with its order. */
enum compare_fd {
    FD_ROOT_BEFORE,
    FD_USR_BEFORE,
    FD_ROOT_AFTER,
    FD_USR_AFTER,
    FD_DISKS, /* disk_count disks with layers; the machine's own disk is the last one */
    COMPARE_FDS_MAX = FD_DISKS + COMPARE_DISKS_MAX, /* rootless: the user namespace follows */
};

/* The descriptors for COMPARE_PACK. The disk is the last one, as for the other tasks. */
enum pack_fd { PACK_UPPER, PACK_DISK, PACK_FDS };

/*
 * The first byte of each message of COMPARE_PACK, over a socket that keeps messages apart. The list
 * has the lines of baseline_pick() for all paths in the upper. Everything below a path counts as
 * well if the upper deleted the path, replaced it by a file, or hides the directory below it.
 */
enum compare_say {
    COMPARE_ARCHIVE = 'a', /* the next bytes of the archive */
    COMPARE_LIST = 'l',    /* the next bytes of the list */
    COMPARE_END = 'e',     /* both are complete */
    COMPARE_FAILED = 'f',  /* an enum pack_cause and a text: nothing follows */
};
enum pack_cause { PACK_LIMIT = 'l', PACK_CHANGED = 'c', PACK_UNREADABLE = 'u' };
enum { COMPARE_SELF = '=', COMPARE_BELOW = '/' };

/* A file that Carrel itself wrote into the machine, mode 0644, with the hash of its content. */
struct compare_own {
    char path[COMPARE_OWN_PATH_SIZE]; /* without a leading '/' */
    char sha256[SHA256_HEX];
    uint32_t id; /* of its user and group, in the machine */
};

/*
 * The order to a worker, sent as one message. TREES: `layers` are those that only one of the two
 * states has, in any order. SIZES: `layers` are those to measure, or none to list the layers that
 * exist; the disk is the only descriptor. PACK: uses no other field.
 */
struct compare_order {
    uint32_t task;
    uint32_t context; /* lines around a change */
    uint32_t text;    /* 0: do not compare texts line by line */
    uint32_t usr;     /* /usr is a separate overlay; 0: its descriptors are not used */
    uint32_t grant;   /* `layers` are numbers of grants, whose changes are in gN; 0: in N/u, N/U */
    uint32_t whole;   /* no layer says what changed: compare all names */
    uint32_t root_id; /* rootless: id of the machine's root on disk, set by the worker; else 0 */
    uint32_t layer_count;
    uint32_t layers[COMPARE_LAYERS_MAX];
    uint32_t disk_count;               /* TREES: number of disks */
    uint8_t disks[COMPARE_LAYERS_MAX]; /* TREES: the disk of each layer, from 0 */
    char under[COMPARE_UNDER_SIZE];    /* only this path and what is below it; "": everything */
    char skip[COMPARE_SKIP_SIZE];      /* "PATH\n...": directories that are not entered */
    uint32_t own_count;
    struct compare_own own[COMPARE_OWN_MAX]; /* TREES: sets `own` of a change */
};

/* True if the order is well-formed: counts within their limits, a path without "." and "..". */
bool compare_order_ok(const struct compare_order *o);

/* Write records to `out`, the last one a CHANGES_END. Changes that do not fit are only counted, and
 * the CHANGES_END says so. */
void compare_trees(const struct compare_order *o, const int *fds, struct buf *out);
void compare_sizes(const struct compare_order *o, int disk, struct buf *out);

/*
 * Packs the files of an upper (writable layer) and lists its paths, as messages (enum compare_say).
 * userxattr: overlayfs uses attributes named user.overlay.*, because the spawner is rootless.
 */
void compare_pack(int upper, bool userxattr, int socket);

/* Confines this process: afterwards it can only read below its descriptors, compute and answer.
 * -errno on failure. */
int compare_confine(int root);
