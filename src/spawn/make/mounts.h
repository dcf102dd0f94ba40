/*
 * Wrappers of the kernel's new mount API (fsopen, move_mount) for the few calls that the spawner
 * needs.
 *
 * Every mount is created detached and passed as a descriptor; it disappears with its last
 * descriptor unless a box attached it. All functions return -errno on failure.
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
int mount_writable(int mount); /* makes the mount writable and executable */
int mount_shelve(int mount);   /* makes it read-only, without execution and devices */
int mount_confine(int mount);  /* forbids execution, devices and setuid */
int mount_harden(int mount);   /* forbids devices and setuid */
int mount_devices(int mount);  /* makes it read-only, without execution, but with devices */

/* Attaches a detached mount on dir/path; no symlink is followed inside dir. */
int mount_attach(int mount, int dir, const char *path);

/* Opens dir/path as a mount point: it must be beneath dir, and no symlink is followed. */
int mount_point(int dir, const char *path);

/*
 * Accesses files as the user with this id until act_as(0): on a mount with an id map, only users of
 * the map can create files. The process keeps its capabilities.
 */
void act_as(unsigned id);

struct overlay_plan {
    const int *lowers; /* descriptors of the read-only layers, topmost first */
    size_t lower_count;
    int upper, work; /* writable layer and work directory; -1: read-only overlay */
    unsigned owner;  /* host id of the box's root, with which the overlay writes its upper */
    /* in a user namespace: the overlay uses attributes user.overlay.* instead of trusted.* */
    bool userxattr;
    /* the upper must contain every changed file: renamed directories are not stored as redirects */
    bool whole;
    /* set-id bits and file capabilities take effect: only in the root of a box */
    bool set_id;
};

/*
 * Creates a detached overlay mount of the layers, which are given as descriptors. Kernels before
 * 6.13 accept layers only by name, and before 6.15 only attached ones: by_name names them through
 * /proc/self/fd, and the caller must have attached them.
 */
int overlay_new(const struct overlay_plan *plan, bool by_name);
