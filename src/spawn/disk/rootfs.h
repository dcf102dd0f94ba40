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
    uint32_t upper; /* its changes are in that directory of the store; 0: in their own filesystem */
    int lock;       /* holds the slot for the whole host */
    int userns;     /* the id map; the box joins it */
    int fs;         /* the filesystem of its changes, through the map */
    int root;       /* overlay of the image's skeleton */
    int usr;        /* overlay of /usr */
    int meta;       /* read-only mount of m, for /run/carrel */
    int side;       /* m, if fs is a directory of the store, whose path must not show; else -1 */
    int held_side;  /* a mount of that for later writes; or -1 */
    int dev;        /* d, for /dev; -1 if all boxes share one */
    int shm;        /* fs/s, for /dev/shm, if fs is a tmpfs; else -1 */
    int held[DISKS]; /* read-only mounts of its disk and those below; or -1 */
    uint32_t layer;  /* number of its upper */
    int bench;       /* the workshop, if fs is attached there for old kernels; or -1. Not owned. */
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
    int nest;       /* rootless: the user namespace above those of boxes */
    int workshop;   /* private directory of the spawner, where mounts are attached */
    int store;      /* where disk images are created */
    bool btrfs;     /* disks are btrfs, so that snapshots cost nothing */
    uint64_t usual; /* default disk size in bytes */
    bool has_nodes; /* every box has its own /dev */
    struct uppers uppers;
    struct left left;
    bool by_name;     /* overlays need their layers attached (kernels before 6.15) */
    bool tmpfs_plain; /* tmpfs cannot be idmapped (kernels before 6.3) */
    bool
        tmpfs_bare; /* rootless: tmpfs keeps no user attributes, which overlays need (before 6.6) */
};

struct rootfs_size {
    uint64_t disk_bytes, mem_bytes;
    bool bare; /* without overlays: they are made later, with its layers */
};

/*
 * Chooses where changes go. If disks are btrfs: to a btrfs image, unless it would be too small.
 * Else to tmpfs if the disk limit is at most half the memory limit, which they count for. Else to a
 * directory of the store with a project quota, or without quotas to an ext4 image. A rootless
 * spawner has only tmpfs or, without user attributes there, a directory without a limit.
 */
int rootfs_new(struct rootfs_maker *maker, const struct rootfs_size *size, struct rootfs *ret,
               struct err *err);
void rootfs_close(struct rootfs *r); /* closes descriptors; the slot stays taken */

/* True if its changes would go to tmpfs on a kernel that supports it. */
bool rootfs_fits_tmpfs(const struct rootfs_maker *maker, uint64_t disk_bytes, uint64_t mem_bytes);

/* Frees an unused or dead root and its slot. */
void rootfs_drop(struct rootfs_maker *maker, struct rootfs *r);

/* Writes machine.json, which the box can only read. */
int rootfs_meta(const struct rootfs_maker *maker, struct rootfs *r, const char *json,
                struct err *err);

/* The stack of its overlays, without layers and upper. */
struct stack rootfs_stack(const struct rootfs_maker *maker, const struct rootfs *r);

/* The directory on a box's disk with the changes of a cow grant. */
void rootfs_grant_name(char ret[16], unsigned number);

/* Mounts a granted directory as the box will see it; `upper` of a cow grant goes to the creator. */
int rootfs_grant(struct rootfs_maker *maker, struct rootfs *r, const struct plan_grant *grant,
                 unsigned number, int host_dir, int *ret_mount, int *ret_upper, struct err *err);
