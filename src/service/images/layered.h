/*
 * Imports an image that arrives layer by layer, and keeps its layers.
 *
 * The archive is an OCI layout in the order in which it can be used: index.json with one manifest,
 * the manifest, the configuration, and the layers, lowest first. Each group of layers
 * (images/groups.h), mostly one layer, is unpacked by a worker of its own while it arrives, above
 * the groups before it. It becomes an image only if the bytes of each layer have the digest of the
 * manifest. A group that the owner has above the same groups is not unpacked again, and the archive
 * need not have its layers.
 *
 * One image_job carries out all groups, one after the other. job->below has those that are
 * complete, so they are deleted with the job unless the image is complete.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct image_job;
struct image_layered;

struct image_layered *image_layered_new(struct image_job *job);
void image_layered_free(struct image_layered *l);

/* Takes bytes of the archive, as image_feed() does. */
size_t image_layered_feed(struct image_layered *l, const char *bytes, size_t count, bool last);
/* The pipe to the worker has room again. */
void image_layered_room(struct image_layered *l);

/* Id of the group that the owner has and that is being received; empty: none. */
const char *image_layered_found(const struct image_layered *l);

/* True while the group at hand is below the one that gets the name. */
bool image_layered_goes_on(const struct image_layered *l);
/* job->row.id is a complete group: continues with the next one. */
void image_layered_next(struct image_layered *l);
