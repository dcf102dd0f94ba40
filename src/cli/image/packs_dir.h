/*
 * A directory of images as packs (docs/internals/packs.md): carrel-packs, packs/HASH,
 * manifests/HASH, and images/NAME.json for each image. Packs of several images are stored once.
 *
 * A file has its name only when it is complete and on the disk, and an image is named last. So an
 * interrupted export leaves nothing that an import could take for an image.
 */
#pragma once

#include "cli/layout.h"

struct packs_dir {
    struct layout_reader layout; /* takes the archive: layout_take() */
    const char *name;            /* of the image */
};

/* Opens a directory of packs for an export of image `name`, or creates it. */
int packs_dir_open(struct packs_dir *p, const char *path, const char *name, struct err *err);
/* Fails if the archive was incomplete. */
int packs_dir_finish(struct packs_dir *p, struct err *err);
void packs_dir_done(struct packs_dir *p);

/* Passes image `name` of the directory to `write`, as the archive that the daemon imports. */
int packs_dir_send(const char *path, const char *name, layout_write_fn *write, void *arg,
                   struct err *err);
