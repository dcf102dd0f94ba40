/*
 * Packs a tree and its configuration into an archive: a tar whose first entry is the configuration
 * in Carrel's format, the same compressed with zstd, an OCI layout in a tar, whose layers may be
 * compressed with zstd, or packs in a tar.
 * Equal images give equal bytes.
 */
#pragma once

#include <archive.h>

#include "image/config.h"
#include "image/report.h"
#include "image/walk.h"

enum pack_form { PACK_TAR, PACK_TAR_ZST, PACK_OCI, PACK_OCI_ZST, PACK_PACKS };

struct pack {
    int out;
    int root, usr; /* directories to pack, as in struct walk */
    /* layers of the image, lowest first, which an OCI layout and packs keep apart; count 0: only
     * `root` */
    const int *layers;
    size_t layer_count;
    struct image_ids ids;
    const struct image_config *config; /* NULL: no configuration is written */
    const struct over *over;           /* as in struct walk; whiteouts become `.wh.` entries */
    struct report *report;
    unsigned threads;        /* that compress, at least 1; the bytes do not depend on it */
    bool zstd;               /* compress the layers of an OCI layout; set by image_pack() */
    uint64_t entries, bytes; /* entries and bytes written so far */
};

int image_pack(struct pack *p, enum pack_form form, struct err *err);

/* ---- for image/to_packs.c ---- */

/* A tar that is written to p->out. NULL with *err. */
struct archive *pack_writer_open(struct pack *p, struct err *err);
int pack_writer_close(struct archive *a, struct err *err);
void pack_writer_free(struct archive **a);
/* Writes a file of the tar. */
int pack_put_text(struct archive *to, const char *name, const struct buf *text, struct err *err);
