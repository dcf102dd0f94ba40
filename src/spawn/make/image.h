/*
 * The image `host`: the default, which needs no download.
 *
 * It is a skeleton (chosen parts of /etc, the package database, empty directories) built once in
 * the store, and the host's own /usr. It is an allow-list: it lacks all files that image.c does not
 * name. Its key is the state of the host's packages; when that changes, a new image is built, and
 * older boxes are `drifted`.
 *
 * Imported images are in the same directory, each under its id (base/image_id.h).
 * They consist of `root` or `root.erofs` (spawn/disk/sealed.h), and of metadata from the daemon.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/image_id.h"

struct image {
    char key[IMAGE_ID_SIZE]; /* id of the state of the host's packages at the build */
    int skeleton;            /* root directory of the image in the store */
    int usr;                 /* the host's /usr; -1: the image contains /usr */
    int usr_dirs; /* rootless: copies of /usr's directories that belong to the box; else -1 */
    uid_t base;   /* added to ids on disk: 0, or the start of a rootless user's range */
};

/* Opens the image in store (an open directory), building it if needed. host is an open "/". */
int image_open(int store, int host, uid_t base, struct image *ret, struct err *err);

#define IMAGE_NONE ((struct image){.skeleton = -1, .usr = -1, .usr_dirs = -1})

/* Opens an older build by its key, or an imported image by its id. */
int image_open_key(int store, int host, const char *key, uid_t base, struct image *ret,
                   struct err *err);

/* True if the host's packages changed since the image was built. */
bool image_stale(const struct image *image, int host);

void image_close(struct image *image);
