/*
 * Computes the id of an image: the hash of its tree in walk order (walk.h) and of its
 * configuration.
 *
 * The same files and configuration give the same id on every host. The id of a layer also covers
 * the id of the image below it.
 */
#pragma once

#include "base/image_id.h"
#include "image/report.h"
#include "image/walk.h"

struct seal {
    char id[IMAGE_ID_SIZE];
    uint64_t entries, bytes;
    uint64_t disk; /* upper bound of the disk space, by image/cost.h */
};

/*
 * config: the text that image_config_print() writes. below: id of the image that the tree is a
 * layer above; NULL: the tree is a whole image.
 */
int image_seal(int root, struct image_ids ids, const char *below, const char *config,
               struct report *report, struct seal *ret, struct err *err);
