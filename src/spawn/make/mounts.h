/*
 * The new mount API in the few shapes the spawner needs.
 *
 * Every mount is made detached and travels as a descriptor; it vanishes with its last
 * descriptor unless a box took it. Thin wrappers: -errno on failure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mount_option {
    const char *key;
    const char *value; /* NULL: a flag */
};

/* A detached mount of a filesystem; attrs are MOUNT_ATTR_*. */
int mount_new(const char *type, const struct mount_option *options, size_t count, uint64_t attrs);

/* A detached copy of what lies at dir/path. */
int mount_clone(int dir, const char *path);

/* A detached copy of a mount and of all that is mounted in it. */
int mount_clone_all(int mount);

/* Show a detached mount's ids through the map of a user namespace. */
int mount_idmap(int mount, int userns);

int mount_read_only(int mount);
int mount_writable(int mount); /* and executable */
int mount_shelve(int mount);   /* nothing can be written, run or opened as a device */
int mount_harden(int mount);   /* no devices, no setuid */
int mount_devices(int mount);  /* read-only, nothing to execute, and devices work */

/* Attach a detached mount on dir/path; no symlink is followed inside dir. */
int mount_attach(int mount, int dir, const char *path);

/* Open dir/path as a place to mount on: beneath dir, no symlinks. */
int mount_point(int dir, const char *path);

/*
 * Touch files with this id until act_as(0): through an idmapped mount only ids inside its map can
 * make files. Capabilities stay.
 */
void act_as(unsigned id);

struct overlay_plan {
    const int *lowers; /* top first */
    size_t lower_count;
    int upper, work; /* -1: a read-only overlay */
    unsigned owner;  /* id the overlay acts as on its upper: the box's root on the host */
    bool userxattr;  /* in a user namespace: user.overlay.* instead of trusted.* */
    bool whole; /* the upper holds every changed file itself: no renamed directory by reference */
};

/*
 * A detached overlay from layer descriptors. Kernels before 6.13 take layers only by name, and
 * before 6.15 only such as are attached in the caller's namespace: there by_name names them
 * through /proc/self/fd, and the caller has attached them meanwhile.
 */
int overlay_new(const struct overlay_plan *plan, bool by_name);
