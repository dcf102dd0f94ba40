/*
 * Layers of an archive, in groups: the layers of a group become one layer of the image, so that
 * no image has more than IMAGE_LAYERS_MAX. Up to that number, each layer is a group.
 *
 * The lowest layer is always alone, because many images share it. The other groups have 1, 2, 4, 8
 * or 16 layers. So an image with a few more layers has the same groups below them.
 */
#pragma once

#include "service/images/inner.h"

enum {
    LAYER_DIGEST_SIZE = 72, /* "sha256:", 64 digits and a NUL */
    IMPORT_LAYERS_MAX = 128,
};

struct layer_blob {
    char digest[LAYER_DIGEST_SIZE];
    uint64_t size;
};

/* True if the text is a digest: "sha256:" and 64 hexadecimal digits. Pure. */
bool layer_digest_ok(const char *text);
/* Returns the number of groups. count: layers of the archive, at least 1. Pure. */
size_t layer_groups(size_t count);
/* Returns the layer after the group that starts with layer `first`. Pure. */
size_t layer_group_end(size_t first, size_t count);
/* Writes the name of a group, which its record has: the digest of its only layer, or of the list
 * of its digests. Pure. */
void layer_group_key(const struct layer_blob *layers, size_t first, size_t end,
                     char ret[LAYER_DIGEST_SIZE]);

/*
 * Finds a group above the images `below`, in the images of the owner. An owner who takes over a
 * reader could leave other files than those of the digest, and must not reach other owners so.
 */
bool layer_group_find(struct service *s, const char *owner, const struct image_below *below,
                      const char *key, char ret[IMAGE_ID_SIZE]);

/* Adds an image to those below the next one, unless it is the topmost of them. */
void image_below_push(struct image_below *below, const char *id);

/* Forgets what layer_group_find() keeps in memory. */
void layer_knowns_done(struct service_images *i);
