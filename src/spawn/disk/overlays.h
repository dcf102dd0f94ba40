/*
 * The overlay mounts of a root: an image, layers above it, and an upper for new changes.
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
 * Mounts that are no longer needed. Closing one waits for all CPUs, so the undertaker does it after
 * the answer.
 */
enum { LEFT_MAX = 30 };
struct left {
    int fds[LEFT_MAX];
    size_t count;
};
/* Takes the descriptor; closes it at once if there are too many. */
void left_add(struct left *l, int fd);

struct stack {
    const struct image *image;
    uint32_t owner;   /* host id of the box's root, which the overlays act as */
    int userns;       /* the id map; -1: none, for views of the host */
    int disks[DISKS]; /* mounts; 0 is the box's own. Attached for old kernels. */
    size_t count;
    struct {
        unsigned disk;
        uint32_t number;
    } layers[LAYERS_MAX]; /* topmost first */
    uint32_t upper;       /* number on disk 0; 0: read-only */
};

#define STACK_NONE ((struct stack){.userns = -1, .disks = {-1, -1, -1, -1, -1, -1, -1, -1, -1}})

/* Detached overlays of root and /usr; /usr is -1 for an image that contains it. */
int stack_mount(struct rootfs_maker *maker, const struct stack *stack, int *ret_root, int *ret_usr,
                struct err *err);

/*
 * Creates an upper on disk 0 with the owner and mode of the topmost layer. An existing one was
 * never used and is deleted.
 */
int stack_new_upper(const struct stack *stack, struct err *err);

/* The same on a disk without an id map; owner: id of root on it. */
int layer_make(int disk, uint32_t number, uint32_t owner);

/* 1: it has no changes. -errno. */
int layer_is_empty(int disk, uint32_t number);

/* A lower directory with the id map of the box. Rootless, files of the host cannot be mapped. */
int lower_new(const struct rootfs_maker *maker, int dir, int userns);
/* Sets the error for an image layer or granted directory that cannot be used. */
int lower_failed(struct err *err, int made, const char *what, const char *remedy);

/* lowers: topmost first; the one at `loose` is a detached mount, the others are attached. */
struct upper_place {
    int fs; /* -1: read-only */
    const char *upper, *work;
};
int overlay_on(struct rootfs_maker *maker, uint32_t owner, const int *lowers, size_t count,
               size_t loose, const struct upper_place *place, bool whole);

/* Attaches a mount in the workshop for old kernels, and removes it again. */
int bench_put(const struct rootfs_maker *maker, int mount, const char *name);
void bench_clear(const struct rootfs_maker *maker, const char *name);
