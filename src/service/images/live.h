/*
 * Images, for the rest of src/service: the image that a live machine starts from, and the upkeep of
 * image trees on disk. Only images/ knows what is inside struct service_images and struct
 * live_image.
 */
#pragma once

#include "service/service.h"
#include "store/images.h"

struct exec_defaults;
struct live_image;
struct service_images;

struct service_images *service_images_new(void);
void service_images_free(struct service_images *i);

/* Reads image.json of a tree. NULL with *err: it cannot be used. */
struct live_image *live_image_load(struct service *s, const char *id, struct err *err);
void live_image_free(struct live_image *i);
const char *live_image_name(const struct live_image *i); /* or the beginning of its id */
const struct exec_defaults *live_image_defaults(const struct live_image *i);

/* Finds an image that the caller may use: its own, or with the scope admin any. */
int image_find(struct service *s, const struct caller *who, const char *ref, struct image_row *ret,
               struct err *err);
/* True if the tree or the sealed file exists. */
bool image_is_whole(const struct service *s, const char *id);
/* Opens the presets of an image. -1 with errno. */
int image_open_presets(const struct service *s, const char *id);
/* Deletes the tree unless something uses it. */
void image_release(struct service *s, const char *id);

/* At the start: deletes unknown and unfinished trees. */
void images_sweep(struct service *s);
/* Called by the tick: deletes trees that were in use before. */
void images_look(struct service *s, uint64_t now_ms);
/* The daemon stops: stops sealing. */
void seals_release(struct service *s);
