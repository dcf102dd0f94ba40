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
 * Copies of mounts that nobody needs any more. Closing one waits for all cpus, so it is done by the
 * undertaker, after the answer.
 */
enum { LEFT_MAX = 30 };
struct left {
    int fds[LEFT_MAX];
    size_t count;
};
/* Takes it; when there are too many it is closed at once. */
void left_add(struct left *l, int fd);

struct stack {
    const struct image *image;
    uint32_t owner;   /* box root's number on the host: who the overlays act as */
    int userns;       /* the id map; -1: none, as for views of the host */
    int disks[DISKS]; /* mounts; 0 is the box's own. For old kernels they are attached. */
    size_t count;
    struct {
        unsigned disk;
        uint32_t number;
    } layers[LAYERS_MAX]; /* topmost first */
    uint32_t upper;       /* its number, on disk 0; 0: read-only */
};

#define STACK_NONE ((struct stack){.userns = -1, .disks = {-1, -1, -1, -1, -1, -1, -1, -1, -1}})

/* Detached overlays of the root and of /usr, the latter -1 for an image that has its own. */
int stack_mount(struct rootfs_maker *maker, const struct stack *stack, int *ret_root, int *ret_usr,
                struct err *err);

/*
 * A fresh upper of that number on disk 0, its directories as those of the uppermost layer are. What
 * lies there already was never used by anybody and goes.
 */
int stack_new_upper(const struct stack *stack, struct err *err);

/* The same on a disk that is not yet seen through a map; owner: root's id on it. */
int layer_make(int disk, uint32_t number, uint32_t owner);

/* 1: nothing was changed in it. -errno. */
int layer_is_empty(int disk, uint32_t number);

/* A lower layer as the box will see its ids. Rootless there is no map to put on the host's files.
 */
int lower_new(const struct rootfs_maker *maker, int dir, int userns);
/* Why a layer of the image or a lent directory cannot be used. */
int lower_failed(struct err *err, int made, const char *what, const char *remedy);

/* lowers from the top; that at `loose` is a detached mount, the others are attached. */
struct upper_place {
    int fs; /* -1: read-only */
    const char *upper, *work;
};
int overlay_on(struct rootfs_maker *maker, uint32_t owner, const int *lowers, size_t count,
               size_t loose, const struct upper_place *place, bool whole);

/* Attaches a mount in the workshop where old kernels want that, and takes it away again. */
int bench_put(const struct rootfs_maker *maker, int mount, const char *name);
void bench_clear(const struct rootfs_maker *maker, const char *name);
