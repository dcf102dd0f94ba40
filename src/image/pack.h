/*
 * A tree and a configuration become an archive: a plain tar (our own configuration in front), the
 * same packed with zstd, or an OCI layout in a tar. The same image is the same bytes each time.
 */
#pragma once

#include "image/config.h"
#include "image/report.h"
#include "image/walk.h"

enum pack_form { PACK_TAR, PACK_TAR_ZST, PACK_OCI };

struct pack {
    int out;
    int root, usr; /* usr: -1, see struct walk */
    struct image_ids ids;
    const struct image_config *config; /* NULL: none is written */
    struct report *report;
    uint64_t entries, bytes; /* so far */
};

int image_pack(struct pack *p, enum pack_form form, struct err *err);
