/*
 * A root filesystem that is prepared for a box: an id range, a limited filesystem for changes, and
 * the overlay mounts on the image. Only one box uses it.
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
    uint32_t upper;  /* number of the store directory with its changes; 0: they have a filesystem */
    int lock;        /* lock of the slot (the id range) on this host */
    int userns;      /* user namespace with the id map; the box joins it */
    int fs;          /* the filesystem of its changes, with the id map */
    int root;        /* overlay of the root */
    int usr;         /* overlay of /usr */
    int meta;        /* read-only mount of the directory m, for /run/carrel */
    int side;        /* mount of m, if fs is a store directory, whose path must not show; or -1 */
    int held_side;   /* another mount of m, for later writes; or -1 */
    int dev;         /* mount of the directory d, for /dev; -1: all boxes share one */
    int shm;         /* mount of the directory s, for /dev/shm, if fs is a tmpfs; or -1 */
    int held[DISKS]; /* read-only mounts of its disk and of the disks of its layers; or -1 */
    uint32_t layer;  /* number of its upper (writable layer) */
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
    int nest;       /* rootless: the parent of the user namespaces of boxes */
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
    bool bare; /* without overlays: they are mounted later, with layers */
};

/*
 * Prepares a root and chooses where its changes are stored. If disks are btrfs: in a btrfs image,
 * unless it would be too small. Else in a tmpfs, if the disk limit is at most half the memory
 * limit; such changes count as memory. Else in a directory of the store with a project quota, or
 * without quotas in an ext4 image. A rootless spawner uses only a tmpfs or, if that keeps no user
 * attributes, a directory without a limit.
 */
int rootfs_new(struct rootfs_maker *maker, const struct rootfs_size *size, struct rootfs *ret,
               struct err *err);
void rootfs_close(struct rootfs *r); /* closes descriptors; the slot stays taken */

/* True if changes would be stored in a tmpfs on a kernel that supports it. */
bool rootfs_fits_tmpfs(const struct rootfs_maker *maker, uint64_t disk_bytes, uint64_t mem_bytes);

/* Frees an unused or dead root and its slot. */
void rootfs_drop(struct rootfs_maker *maker, struct rootfs *r);

/* Writes machine.json, which the box can only read. */
int rootfs_meta(const struct rootfs_maker *maker, struct rootfs *r, const char *json,
                struct err *err);

/* Returns the stack of the root's overlays, without layers and upper. */
struct stack rootfs_stack(const struct rootfs_maker *maker, const struct rootfs *r);

/* Writes the name of the directory on a box's disk with the changes of a copy-on-write grant. */
void rootfs_grant_name(char ret[16], unsigned number);

/*
 * Mounts a granted directory as the box will see it. *ret_upper: the changes of a copy-on-write
 * grant, for the creator of the box.
 */
int rootfs_grant(struct rootfs_maker *maker, struct rootfs *r, const struct plan_grant *grant,
                 unsigned number, int host_dir, int *ret_mount, int *ret_upper, struct err *err);
