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

/* Names in the tar of a backup, besides packs/HASH. */
#define BACKUP_MANIFESTS "manifests"
#define BACKUP_RECORD "known"

struct backup {
    char manifest[SHA256_HEX]; /* its hash, as a text */
    uint64_t read;             /* bytes of files that were read */
};

/*
 * Writes a tar of what a backup adds to the one before: packs, the manifest, and the record for the
 * next one. before: a file with the record of the backup before; empty: there is none.
 */
int image_backup(struct pack *p, int before, struct backup *ret, struct err *err);
