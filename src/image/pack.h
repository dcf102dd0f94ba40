/*
 * Packs a tree and its configuration into an archive: a tar whose first entry is the configuration
 * in Carrel's format, the same compressed with zstd, or an OCI layout in a tar. Equal images give
 * equal bytes.
 */
#pragma once

#include "image/config.h"
#include "image/report.h"
#include "image/walk.h"

enum pack_form { PACK_TAR, PACK_TAR_ZST, PACK_OCI };

struct pack {
    int out;
    int root, usr; /* directories to pack, as in struct walk */
    /* layers of the image, lowest first, which an OCI layout keeps apart; count 0: only `root` */
    const int *layers;
    size_t layer_count;
    struct image_ids ids;
    const struct image_config *config; /* NULL: no configuration is written */
    const struct over *over;           /* as in struct walk; whiteouts become `.wh.` entries */
    struct report *report;
    unsigned threads;        /* that compress, at least 1; the bytes do not depend on it */
    uint64_t entries, bytes; /* entries and bytes written so far */
};

int image_pack(struct pack *p, enum pack_form form, struct err *err);
