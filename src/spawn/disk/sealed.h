/*
 * Sealed images: each is stored as one file, `images/ID/root.erofs`, from which it is mounted.
 *
 * Each is mounted once, in the workshop directory, at first use. Boxes get clones of that mount, so
 * they share its page cache. The workshop is in a private namespace and disappears with the
 * spawner. A file is mounted only if the spawner's user owns it, nobody else may write to it, and
 * its header names this image.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"
#include "base/image_id.h"
#include "spawn/make/image.h"

struct spawner;

/* largest number of images mounted at a time; the least recently used is replaced */
enum { SEALED_MAX = 32 };

struct sealed {
    char id[IMAGE_ID_SIZE]; /* id of the mounted image; empty: the slot is free */
    int mount;
    uint64_t used_ms;
};

struct sealed_images {
    struct sealed list[SEALED_MAX];
    bool tried; /* sealed_probe() has tested the kernel */
    int why;    /* result of that test. 0: supported; else -errno */
};

/*
 * Tests whether this kernel can mount an erofs file with an id map. Only the first call tests it. 0
 * or -errno.
 */
int sealed_probe(struct spawner *s);
/* Like sealed_probe(), with an error for the user. */
int sealed_can(struct spawner *s, struct err *err);

/*
 * Opens the image with that key: an image with all its layers, each stored as a sealed file or as a
 * directory, or an older build of the image `host` (see image_open_key()).
 */
int sealed_image(struct spawner *s, const char *key, struct image *ret, struct err *err);

/* Opens the merged files of an image, read-only and with user ids as stored on disk; -1 with *err.
 */
int sealed_view(struct spawner *s, const char *id, struct err *err);

/*
 * True if the layer of image `id` is part of the image `key`. Also true if that cannot be read: an
 * image in doubt is not deleted.
 */
bool sealed_is_part(const struct spawner *s, const char *key, const char *id);

bool sealed_is_mounted(struct spawner *s, const char *id);

/* Unmounts the image once the last box that uses it is gone. */
void sealed_forget(struct spawner *s, const char *id);
