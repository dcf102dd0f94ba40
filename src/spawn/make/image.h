/*
 * The image `host`: the default image, which needs no download.
 *
 * It is a skeleton (chosen parts of /etc, the package database, empty directories) built once in
 * the store, and the host's own /usr. image.c lists all files that it contains; other files of the
 * host are left out. Its key is the state of the host's packages; when that changes, a new image is
 * built, and older boxes are `drifted`.
 *
 * Other images are in the same directory, each under its id (base/image_id.h). They consist of
 * `root` or `root.erofs` (spawn/disk/sealed.h), of metadata from the daemon and, if other images
 * are below this one, of a list of them (base/image_below.h).
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/image_below.h"
#include "base/image_id.h"

struct image {
    char key[IMAGE_ID_SIZE];   /* id of the state of the host's packages at the build */
    int skeleton;              /* descriptor of the root directory of the image's lowest layer */
    int over[IMAGE_BELOW_MAX]; /* of the layers above it, topmost first */
    size_t over_count;
    int usr;      /* descriptor of the host's /usr; -1: the image contains its own /usr */
    int usr_dirs; /* rootless: copies of /usr's directories that belong to the box; else -1 */
    int usr_over; /* what an image that is lent the host's /usr has in it; else -1 */
    /* added to user ids on disk: 0, or for a rootless spawner the start of its user's id range */
    uid_t base;
};

/*
 * Opens the image `host` in the directory `store`, and builds it if needed. host: descriptor of the
 * host's "/".
 */
int image_open(int store, int host, uid_t base, struct image *ret, struct err *err);

#define IMAGE_NONE ((struct image){.skeleton = -1, .usr = -1, .usr_dirs = -1, .usr_over = -1})

/* Opens an older build of the image `host` by its key. */
int image_open_key(int store, int host, const char *key, uid_t base, struct image *ret,
                   struct err *err);

/* True if the host's packages changed since the image was built. */
bool image_stale(const struct image *image, int host);

void image_close(struct image *image);
