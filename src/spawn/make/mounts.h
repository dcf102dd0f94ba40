/*
 * The new mount API in the few forms that the spawner needs.
 *
 * Every mount is created detached and passed as a descriptor; it disappears with its last
 * descriptor unless a box attached it. Thin wrappers: -errno on failure.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mount_option {
    const char *key;
    const char *value; /* NULL: the option is a flag */
};

/* Creates a detached mount of a filesystem; attrs are MOUNT_ATTR_*. */
int mount_new(const char *type, const struct mount_option *options, size_t count, uint64_t attrs);

/* Creates a detached clone of the directory at dir/path. */
int mount_clone(int dir, const char *path);

/* Creates a detached clone of a mount and everything mounted in it. */
int mount_clone_all(int mount);

/* Applies the id map of a user namespace to a detached mount. */
int mount_idmap(int mount, int userns);

int mount_read_only(int mount);
int mount_writable(int mount); /* writable and executable */
int mount_shelve(int mount);   /* read-only, no execution, no devices */
int mount_harden(int mount);   /* no devices, no setuid */
int mount_devices(int mount);  /* read-only, no execution, devices allowed */

/* Attaches a detached mount on dir/path; no symlink is followed inside dir. */
int mount_attach(int mount, int dir, const char *path);

/* Opens dir/path as a mount point: it must be beneath dir, and no symlink is followed. */
int mount_point(int dir, const char *path);

/*
 * Accesses files with this id until act_as(0): on an idmapped mount only ids of the map can create
 * files. Capabilities stay.
 */
void act_as(unsigned id);

struct overlay_plan {
    const int *lowers; /* read-only layers, top first */
    size_t lower_count;
    int upper, work; /* writable layer and work directory; -1: read-only overlay */
    unsigned owner;  /* host id of the box's root, with which the overlay writes its upper */
    bool userxattr;  /* in a user namespace: user.overlay.* instead of trusted.* */
    bool whole;      /* the upper must contain every changed file: no redirects */
};

/*
 * Creates a detached overlay of layer descriptors. Kernels before 6.13 accept layers only by name,
 * and before 6.15 only attached ones: by_name names them through /proc/self/fd, and the caller must
 * have attached them.
 */
int overlay_new(const struct overlay_plan *plan, bool by_name);
