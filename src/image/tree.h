/*
 * The tree of an image: one directory, accessed only through descriptors and never through a link
 * that leaves it.
 *
 * Ids on disk are canonical (0-65535); without root they are in the user's subordinate range
 * (struct image_ids).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "image/path.h"

enum { IMAGE_ID_MAX = 65535 };

/* How ids of the image lie on disk. `user` (1000) of a shared range is whoever runs us. */
struct image_ids {
    bool shared;
    uint32_t first;
};
uint32_t image_id_to_disk(const struct image_ids *ids, uint32_t id);
int image_id_from_disk(const struct image_ids *ids, uint32_t on_disk, uint32_t *ret);

/* In the jail of an image's directory: one of those that are in it. -1 with *err. */
int image_dir(const char *name, struct err *err);

/*
 * The directory of an entry, made if it is missing (ids NULL: it is not made); links on the way are
 * followed only as long as they stay within the tree. -1 with *err.
 */
int tree_parent(int root, const char *path, const struct image_ids *ids, struct err *err);
/* The same; *made counts the directories that were made on the way. */
int tree_make_parent(int root, const char *path, const struct image_ids *ids, unsigned *made,
                     struct err *err);

/* Removes dir/name and all below it. A missing one is not an error. */
int image_tree_remove(int dir, const char *name, unsigned depth);
/* All that is in it. */
int tree_empty(int dir, unsigned depth);
