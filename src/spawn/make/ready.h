/*
 * Ready boxes: complete boxes with a running guest, made in idle time.
 *
 * A ready box is made from a berth with the default limits and a name that no machine has. It is
 * used once: it gets the limits, host name, machine.json, deadline, record and name of a machine,
 * and then the creator is told. Grants must be known before the guest starts, so such a machine is
 * made from a berth. The disk too: ready boxes of an image have the disk size that was requested
 * with the image.
 *
 * Until a ready box is used, the spawner itself holds the end of its connection that the creator
 * will get. If the spawner dies, the guest sees the connection close and ends, and the next spawner
 * cleans up.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/image_id.h"
#include "base/wire/plan.h"

struct spawner;
struct box;
struct making;

enum { READY_MAX = 8, READY_DEFAULT = 3, READY_IMAGES = 4, READY_OF_IMAGE = 3 };

struct ready {
    struct box *box; /* the box, which is not in the spawner's list of boxes yet */
    struct making *making;
};

/*
 * Ready boxes of a requested image and disk size. Each request without a ready box increases the
 * target, up to READY_OF_IMAGE; after five minutes without a request they are dropped.
 */
struct ready_image {
    char image[IMAGE_ID_SIZE]; /* id of the image; empty: this entry is unused */
    uint64_t disk_bytes;       /* 0: the default disk */
    struct ready list[READY_OF_IMAGE];
    size_t count, wanted;
    uint64_t asked_ms;
};

struct ready_pool {
    struct ready list[READY_MAX]; /* ready boxes of the default image, oldest first */
    size_t count, wanted;
    bool broken; /* creating a ready box failed: retry only when the image changes */
    struct ready_image images[READY_IMAGES];
};

/* Does one step of making ready boxes, once the pool of berths is full. False: nothing to do. */
bool ready_refill(struct spawner *s);

/* True if ready_take() has a box of the image `host` for the plan. */
bool ready_has(const struct spawner *s, const struct plan *plan);
/*
 * Takes a ready box that fits this plan; NULL: none fits. *ret is not in the spawner's list of
 * boxes yet.
 */
struct making *ready_take(struct spawner *s, const struct plan *plan, struct box **ret);

void ready_drop(struct spawner *s);
/* Replaces the ready boxes of an image, and of images above it, by new ones. */
void ready_renew(struct spawner *s, const char *image);
/* Drops the ready boxes of an image that is about to be deleted. */
void ready_forget(struct spawner *s, const char *image);
/* Returns the number of ready boxes (created before they are needed) of all images but `host`. */
size_t ready_of_images(const struct spawner *s);

/* True if this name in boxes/ belongs to a ready box. After a crash nobody uses such a box. */
bool ready_is_name(const char *name);
