/*
 * A root filesystem that is prepared for a box: an id range, a limited filesystem for changes, and
 * the overlay mounts on the image. Only one box uses it.
 *
 * Ids on disk are canonical (0-65535): image and changes are mounted through the id map of the box.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/wire/plan.h"
#include "spawn/disk/overlays.h"
#include "spawn/disk/uppers.h"
#include "spawn/make/image.h"
#include "spawn/make/userns.h"

enum { ROOTFS_GRANTS = PLAN_MAX_GRANTS };

struct rootfs {
    uint32_t slot;
    /* number of the store directory with the changes; 0: the changes have their own filesystem */
    uint32_t upper;
    int lock;   /* lock of the slot (the id range) on this host */
    int userns; /* user namespace with the id map; the box joins it */
    int fs;     /* mount of the filesystem with the box's changes, with the id map */
    int root;   /* overlay of the root */
    int usr;    /* overlay of /usr */
    int meta;   /* read-only mount of the directory m, for /run/carrel */
    /* mount of m on a tmpfs, if fs is a store directory, whose path a box must not see; or -1 */
    int side;
    int held_side; /* another mount of m, to write machine.json later; or -1 */
    int dev;       /* mount of the directory d, for /dev; -1: all boxes share one /dev */
    int shm;       /* mount of the directory s, for /dev/shm, if fs is a tmpfs; or -1 */
    /* read-only mounts of the box's own disk and of the disks of its layers; or -1 */
    int held[DISKS];
    uint32_t layer; /* number of the upper (writable layer) */
    int bench;      /* the workshop, if fs is attached there for old kernels; or -1. Not owned. */
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
    int nest;          /* rootless: the parent of the user namespaces of boxes */
    struct buf inside; /* the program `carrel` for /run/carrel/bin; empty: there is none */
    int workshop;      /* private directory of the spawner, where mounts are attached */
    int store;         /* store directory, where disk images are created */
    bool btrfs;        /* disks are btrfs, so that snapshots take constant time */
    uint64_t usual;    /* default disk size in bytes */
    int made;          /* a btrfs disk of `made_bytes` that rootfs_new() uses; or -1 */
    uint64_t made_bytes;
    bool has_nodes; /* every box has its own /dev */
    struct uppers uppers;
    struct left left;
    bool by_name;     /* overlays require that their layers are attached (kernels before 6.15) */
    bool tmpfs_plain; /* a tmpfs cannot have an id map (kernels before 6.3) */
    /* rootless: a tmpfs lacks the user.* attributes that overlays need (kernels before 6.6) */
    bool tmpfs_bare;
};

struct rootfs_size {
    uint64_t disk_bytes, mem_bytes;
    bool bare; /* do not mount overlays: they are mounted later, with layers */
};

/*
 * Prepares a root and chooses where its changes are stored. If disks are btrfs: in a btrfs image,
 * unless it would be too small. Else in a tmpfs, if the disk limit is at most half the memory
 * limit; such changes count as memory. Else in a directory of the store with a project quota, or
 * without quotas in an ext4 image. A rootless spawner uses only a tmpfs or, if a tmpfs does not
 * support user.* attributes, a directory without a limit.
 */
int rootfs_new(struct rootfs_maker *maker, const struct rootfs_size *size, struct rootfs *ret,
               struct err *err);
void rootfs_close(struct rootfs *r); /* closes the descriptors; the slot (id range) stays in use */

/*
 * True if the changes of a box with these limits would be stored in a tmpfs on a kernel that
 * supports that.
 */
bool rootfs_fits_tmpfs(const struct rootfs_maker *maker, uint64_t disk_bytes, uint64_t mem_bytes);

/* Frees a root that is unused or whose box is dead, and its slot (id range). */
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
