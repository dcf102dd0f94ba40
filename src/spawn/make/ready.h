/*
 * Ready boxes: complete boxes with a running guest, made in idle time.
 *
 * A ready box is made from a berth with the default limits and a name that no machine has. When it
 * is used it gets limits, host name, machine.json, deadline, record and name; only then is the
 * creator told. It is used once. A plan with grants or another disk size must be known before the
 * guest starts, so it is served from a berth.
 *
 * Until then the spawner holds the creator's connection: if the spawner dies, the guest sees it
 * close and ends, and the next spawner cleans up.
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
    struct box *box; /* in no list yet */
    struct making *making;
};

/*
 * The same of an image that is being asked for: each time that none was ready one more is wanted,
 * up to READY_OF_IMAGE; after five minutes without a request they go.
 */
struct ready_image {
    char image[IMAGE_ID_SIZE]; /* empty: unused */
    struct ready list[READY_OF_IMAGE];
    size_t count, wanted;
    uint64_t asked_ms;
};

struct ready_pool {
    struct ready list[READY_MAX]; /* oldest first */
    size_t count, wanted;
    bool broken; /* making one failed: not tried again before the image changes */
    struct ready_image images[READY_IMAGES];
};

/* One step of refilling, from a full pool of berths; false when there is nothing to do. */
bool ready_refill(struct spawner *s);

/* A box for this plan, ready to be talked to; NULL if none fits. It is in no list yet. */
struct making *ready_take(struct spawner *s, const struct plan *plan, struct box **ret);

void ready_drop(struct spawner *s);
/* Those of one image: others are made in their place. */
void ready_renew(struct spawner *s, const char *image);
/* Those of one image, which is about to go. */
void ready_forget(struct spawner *s, const char *image);
/* How many of images are ready. */
size_t ready_of_images(const struct spawner *s);

/* After a crash: does this name in boxes/ belong to one that nobody was given? */
bool ready_is_name(const char *name);
