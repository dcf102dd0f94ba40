/*
 * A root filesystem made in advance for a box: an id range, a limited filesystem for changes, and
 * the overlay mounts on the image. It is used by one box only.
 *
 * Ids on disk are canonical (0-65535): image and changes are mounted through the id map of the box.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/disk/overlays.h"
#include "spawn/disk/uppers.h"
#include "spawn/make/image.h"
#include "spawn/make/userns.h"

enum { ROOTFS_GRANTS = PLAN_MAX_GRANTS };

struct rootfs {
    uint32_t slot;
    uint32_t
        upper; /* its changes are in that directory of the store; 0: in a filesystem of their own */
    int lock;  /* holds the slot on the whole host */
    int userns;      /* the id map; the box itself moves in */
    int fs;          /* the filesystem of its changes, seen through the map */
    int root;        /* overlay of the image's skeleton */
    int usr;         /* overlay of /usr */
    int meta;        /* read-only view of m, for /run/carrel */
    int side;        /* m where fs is a directory of the store, whose path would show; else -1 */
    int held_side;   /* a view of that for whoever writes to it later; or -1 */
    int dev;         /* d, for /dev; -1 where all boxes share one */
    int shm;         /* fs/s, for /dev/shm, where fs is a tmpfs; else -1 */
    int held[DISKS]; /* read-only views of its disk and of those below it; -1 where there is none */
    uint32_t layer;  /* the number of its upper */
    int bench; /* the workshop, where fs is attached for kernels that want it so; -1. Not owned. */
};

#define ROOTFS_NONE                                                \
    ((struct rootfs){.lock = -1,                                   \
                     .userns = -1,                                 \
                     .fs = -1,                                     \
                     .root = -1,                                   \
                     .usr = -1,                                    \
                     .meta = -1,                                   \
                     .side = -1,                                   \
                     .held_side = -1,                              \
                     .dev = -1,                                    \
                     .shm = -1,                                    \
                     .held = {-1, -1, -1, -1, -1, -1, -1, -1, -1}, \
                     .bench = -1})

struct rootfs_maker {
    struct slots slots;
    struct image *image;
    int proc;
    bool rootless;
    int nest;       /* rootless: the user namespace above the boxes' */
    int workshop;   /* the spawner's private scratch directory: where mounts are attached */
    int store;      /* where disk images are made */
    bool btrfs;     /* and they are btrfs, so that a snapshot of them is nothing */
    uint64_t usual; /* bytes of disk for a box that names none */
    bool has_nodes; /* every box has a /dev of its own */
    struct uppers uppers;
    struct left left;
    bool by_name;     /* overlays need their layers attached (kernels before 6.15) */
    bool tmpfs_plain; /* tmpfs cannot be idmapped (kernels before 6.3) */
    bool
        tmpfs_bare; /* rootless: tmpfs keeps no user attributes, which overlays need (before 6.6) */
};

struct rootfs_size {
    uint64_t disk_bytes, mem_bytes;
    bool bare; /* without overlays: those of the layers that it will lie on come later */
};

/*
 * Where disks are to be btrfs, changes go to an image of it, if it is not too small for that. Else
 * they go to tmpfs when the disk limit is at most half the memory limit, since they are charged
 * to it; otherwise to a directory of the store with a project quota; where there is none, to an
 * ext4 image. A rootless spawner has tmpfs alone; where that is bare, a directory of the store
 * without a limit.
 */
int rootfs_new(struct rootfs_maker *maker, const struct rootfs_size *size, struct rootfs *ret,
               struct err *err);
void rootfs_close(struct rootfs *r); /* the descriptors; the slot stays taken */

/* Would its changes go to tmpfs, if this kernel can do that? */
bool rootfs_fits_tmpfs(const struct rootfs_maker *maker, uint64_t disk_bytes, uint64_t mem_bytes);

/* Gives an unused or dead root back, with its slot. */
void rootfs_drop(struct rootfs_maker *maker, struct rootfs *r);

/* Writes machine.json where only the host can. */
int rootfs_meta(const struct rootfs_maker *maker, struct rootfs *r, const char *json,
                struct err *err);

/* What its overlays are made of, without layers and upper. */
struct stack rootfs_stack(const struct rootfs_maker *maker, const struct rootfs *r);

/* The directory on a box's disk that holds what a cow grant changed. */
void rootfs_grant_name(char ret[16], unsigned number);

/* A granted directory as it will appear in the box; `upper` of a cow one goes to the creator. */
int rootfs_grant(struct rootfs_maker *maker, struct rootfs *r, const struct plan_grant *grant,
                 unsigned number, int host_dir, int *ret_mount, int *ret_upper, struct err *err);
