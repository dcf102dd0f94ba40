/*
 * Images, for the rest of src/service: the image that a live machine starts from, and the upkeep of
 * image trees on disk. Only images/ knows what is inside struct service_images and struct
 * live_image.
 */
#pragma once

#include <jansson.h>

#include "base/sha256.h"
#include "service/service.h"
#include "store/images.h"

struct exec_defaults;
struct layers;
struct live;
struct live_image;
struct service_images;

struct service_images *service_images_new(void);
void service_images_free(struct service_images *i);

/* Reads image.json of a tree, for a machine of this owner. Returns NULL and sets *err if the image
 * cannot be used. */
struct live_image *live_image_load(struct service *s, const char *owner, const char *id,
                                   struct err *err);
void live_image_free(struct live_image *i);
/* a name that the owner gave the image, or else the beginning of its id */
const char *live_image_name(const struct live_image *i);
const struct exec_defaults *live_image_defaults(const struct live_image *i);

/* The configuration that an image of the machine has, as JSON; the caller owns it. */
json_t *live_image_text(const struct live *l);

/*
 * Finds an image of the caller by name or id. A caller with scope admin finds images of all owners.
 */
int image_find(struct service *s, const struct caller *who, const char *ref, struct image_row *ret,
               struct err *err);
/* True if the tree of the image or its sealed file exists. */
bool image_is_whole(const struct service *s, const char *id);
/* True for "host", and for an image that uses the host's /usr (base/image_below.h). */
bool image_uses_host(const struct service *s, const char *image);
/*
 * A hash of the host's list of packages, which changes with the contents of /usr. Empty: unknown.
 * Reads a file of megabytes, so only workers call it.
 */
void image_host_state(char ret[SHA256_HEX]);
/*
 * Opens the directory of an image from which presets (hosts that package tools need) are read.
 * Returns -1 and sets errno if that fails.
 */
int image_open_presets(const struct service *s, const char *id);
/*
 * The layers `run` of a machine were merged into layer `into`, which has the same content. So an
 * image of the old layers is an image of the new one, and the next image can be above it.
 */
void images_merged(struct live *l, const struct layers *run, uint32_t into);
/*
 * Returns how many layers of the stack are above the last image that was made of the machine, or
 * all. If they were merged with layers of the image, the next image could not be above it.
 */
size_t images_layers_above(const struct live *l, const struct layers *stack);
/*
 * Call it when a machine ends or loses its box. The files of its layers are deleted, so an image
 * that is being made of them fails.
 */
void images_machine_ends(struct live *l);
/* Deletes the tree of an image unless a name, a machine or an image above it uses it. */
void image_release(struct service *s, const char *id);

/* Called when the daemon starts: deletes unknown and unfinished trees. */
void images_sweep(struct service *s);
/* Called by a timer: deletes trees that were in use when they should have been deleted. */
void images_look(struct service *s, uint64_t now_ms);
/* Called when the daemon starts: ends builds of the daemon before. */
void builds_sweep(struct service *s);
/* Called when the daemon stops: builds go no further. builds_free() frees them. */
void builds_release(struct service *s);
void builds_free(struct service_images *i);
/* Number of builds that have not ended. */
size_t builds_count(const struct service *s);
/* Called when the daemon stops: stops sealing. */
void seals_release(struct service *s);
