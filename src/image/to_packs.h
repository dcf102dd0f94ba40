/*
 * Writes an image as packs (docs/internals/packs.md), in a tar. Equal images give equal bytes.
 *
 * The tar has the files `carrel-packs`, then for each layer, lowest first, `packs/HASH` and
 * `manifests/HASH`, and at the end `image.json`, which names them.
 */
#pragma once

#include "image/pack.h"

#define PACKS_MARK "carrel-packs" /* first entry of the tar: its name shows the format */
#define PACKS_VERSION "1\n"       /* content of that entry */
#define PACKS_IMAGE "image.json"

int image_to_packs(struct pack *p, struct err *err);
