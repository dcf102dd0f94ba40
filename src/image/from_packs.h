/*
 * Reads an image that image/to_packs.h wrote. The archive may be hostile: every file in it must
 * have the hash that names it, and the tree is unpacked with the checks of image/unpack.h.
 */
#pragma once

#include <archive.h>

#include "image/config.h"
#include "image/spool.h"
#include "image/unpack.h"

/* One layer, which libarchive reads as a tar: see from_packs_read(). */
struct from_packs;

enum { FROM_PACKS_LAYERS_MAX = 128 };

/* Names of the files of an image, as image.json lists them. */
struct packs_image {
    json_t *json;
    size_t layers;
};

void packs_image_done(struct packs_image *i);
/* Reads image.json and the configuration in it. */
int packs_image_read(const struct spool *s, struct packs_image *ret, struct image_config *config,
                     struct err *err);

/* Opens layer `i`. marks: only its whiteouts are read. */
struct from_packs *from_packs_open(const struct spool *s, struct unpack *u,
                                   const struct packs_image *image, size_t i, bool marks,
                                   struct err *err);
void from_packs_close(struct from_packs **f);
/* An archive_read_callback. */
la_ssize_t from_packs_read(struct archive *a, void *from_packs, const void **ret);
/* True with *err if from_packs_read() failed: the reason, which libarchive does not keep. */
bool from_packs_failed(const struct from_packs *f, struct err *err);
