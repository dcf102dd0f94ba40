/*
 * The overlay mounts of a root: an image, layers above it, and an upper (the writable layer).
 *
 * A layer is a numbered directory on a disk: u and U hold the changes in the root and in /usr; w
 * and W are the kernel's work directories while the layer is an upper. Disks are mounted through
 * the id map of the box, so ids on disk are canonical.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/layers.h"
#include "spawn/make/image.h"

struct rootfs_maker;

enum { DISKS = 1 + LAYERS_DISKS_MAX, LAYER_FIRST = 1 };

/*
 * Mounts that are no longer needed. Closing a mount is slow, because the kernel waits for all CPUs.
 * So the undertaker closes them after the request was answered.
 */
enum { LEFT_MAX = 30 };
struct left {
    int fds[LEFT_MAX];
    size_t count;
};
/*
 * Adds the descriptor of a mount to the list, which then owns it. If the list is full, the
 * descriptor is closed at once.
 */
void left_add(struct left *l, int fd);

struct stack {
    const struct image *image;
    uint32_t owner; /* host id of the box's root user, which the overlays act as */
    int userns;     /* user namespace with the id map; -1: user ids as stored on disk */
    /* mounts of disks; disks[0] is the box's own. They are attached if the kernel is old. */
    int disks[DISKS];
    size_t count;
    struct stack_layer {
        unsigned disk;
        uint32_t number;
        bool usr_is_bare; /* the layer changes nothing in /usr: its overlay does without it */
    } layers[LAYERS_MAX]; /* layers below the upper, topmost first */
    bool keeps_usr;       /* the overlay of /usr exists: usr.h */
    /* layer number of the upper on disk 0; 0: no upper, the overlays are read-only */
    uint32_t upper;
};

#define STACK_NONE ((struct stack){.userns = -1, .disks = {-1, -1, -1, -1, -1, -1, -1, -1, -1}})

/* Creates detached overlays of root and /usr; /usr is -1 for an image that contains it. */
int stack_mount(struct rootfs_maker *maker, const struct stack *stack, int *ret_root, int *ret_usr,
                struct err *err);

/*
 * Creates the upper on disk 0, with owner and mode of the topmost layer. If a directory of that
 * layer number exists, it was never used and is deleted.
 */
int stack_new_upper(const struct stack *stack, struct err *err);

/*
 * Creates the directories of a layer on a disk without an id map. owner: user id of the box's root
 * on that disk.
 */
int layer_make(int disk, uint32_t number, uint32_t owner);

/* Returns 1 if the layer contains no changes, 0 if it contains some, or -errno. */
int layer_is_empty(int disk, uint32_t number);
/* The same for its changes in /usr. */
int layer_usr_is_empty(int disk, uint32_t number);

/*
 * Creates the directory `part` (u or U) of layer `to`, with owner, mode and attributes of the same
 * directory of layer `from`. Both are on the same disk.
 */
int layer_twin(int disk, uint32_t from, uint32_t to, char part, uint32_t owner);

/*
 * Clones a mount of the directory `dir`, with the id map of the box unless the spawner is rootless.
 */
int lower_new(const struct rootfs_maker *maker, int dir, int userns);
/*
 * Sets the error for an image layer or granted directory that cannot be used. made: what
 * lower_new() returned; what: text of the failed action.
 */
int lower_failed(struct err *err, int made, const char *what, const char *remedy);

/*
 * overlay_on() mounts an overlay of the lower directories, topmost first. `loose_count` of them,
 * from `loose` on, are detached mounts; the others are attached. `place` names the upper and work
 * directories.
 */
struct lower_list {
    const int *fds;
    size_t count, loose, loose_count;
};
struct upper_place {
    int fs; /* filesystem of the upper and work directories; -1: the overlay is read-only */
    const char *upper, *work;
    bool set_id; /* the overlay is the root of a box, where set-id bits take effect */
};
int overlay_on(struct rootfs_maker *maker, uint32_t owner, const struct lower_list *lowers,
               const struct upper_place *place, bool whole);

/* bench_put() attaches a mount in the workshop, for old kernels; bench_clear() detaches it. */
int bench_put(const struct rootfs_maker *maker, int mount, const char *name);
void bench_clear(const struct rootfs_maker *maker, const char *name);
