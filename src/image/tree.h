/*
 * The tree of an image: one directory, accessed only through descriptors and never through a link
 * that leaves it.
 *
 * User and group ids on disk are those of the image (0-65535). If Carrel runs without root, they
 * are in the user's range of subordinate ids (struct image_ids).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "base/err.h"
#include "image/path.h"

enum { IMAGE_ID_MAX = 65535 };

/* Maps ids of the image to ids on disk. If `shared`, id 1000 becomes 0 (the user who runs Carrel),
 * and others follow `first`. */
struct image_ids {
    bool shared;
    uint32_t first;
};
uint32_t image_id_to_disk(const struct image_ids *ids, uint32_t id);
int image_id_from_disk(const struct image_ids *ids, uint32_t on_disk, uint32_t *ret);

/* Opens directory `name` of the image. Call it in the jail. -1 with *err. */
int image_dir(const char *name, struct err *err);

/*
 * Opens the parent directory of an entry. Creates it if it does not exist and `ids` is not NULL.
 * Links on the way must stay within the tree. -1 with *err.
 */
int tree_parent(int root, const char *path, const struct image_ids *ids, struct err *err);
/* Like tree_parent(), and adds the number of created directories to *made. */
int tree_make_parent(int root, const char *path, const struct image_ids *ids, unsigned *made,
                     struct err *err);

/* Removes dir/name and everything below it. Succeeds if dir/name does not exist. */
int image_tree_remove(int dir, const char *name, unsigned depth);
/* Removes everything in `dir`, but not `dir` itself. */
int tree_empty(int dir, unsigned depth);
