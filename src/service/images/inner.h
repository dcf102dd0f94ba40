/*
 * The inside of images: trees on disk, and the image.json of each. Only files of src/service/images
 * include this header; others call the functions of images/live.h.
 */
#pragma once

#include <jansson.h>

#include "service/exec/plan.h"
#include "service/images/images.h"
#include "service/images/live.h"
#include "service/state.h"

struct seal_want;
struct sealing;

/* Part of struct service. */
struct service_images {
    struct image_stats stats;     /* what was done; the rest is counted when somebody asks */
    struct seal_want *seal_wants; /* images that are to become files */
    struct sealing *sealing;      /* the one that does now */
    bool seals_off;               /* this kernel cannot mount such files */
    uint64_t again_ms;            /* when to try again to remove some; 0: never */
};

/* What image.json of a tree says. */
struct live_image {
    char name[IMAGE_NAME_SIZE]; /* one that it has, or the beginning of its id */
    struct exec_defaults defaults;
    json_t *json; /* what the texts above lie in */
    json_t *config;
    const char *pairs[2 * EXEC_ENV_MAX];
    char text[32 << 10]; /* names of variables */
};

/* Takes a tree in the making over under its id; the staging is gone afterwards in any case. */
int image_adopt(struct service *s, const char *staging, const char *id, const char *json,
                struct err *err);

/* Trees that could not go because a box still held them: in a second, and again. */
void images_again(struct service *s);
void image_wipe(struct service *s, const char *name);

/* Is that the name of an intermediate image of a build? */
bool image_is_step(const char *name);
/* The images' directory. -1 with errno. */
int images_open(const struct service *s);

/* images/seal.c: an image that has that name becomes a file, by and by, unless it is one. */
void seal_want(struct service *s, const char *name, const char *id);
/* A machine has let go of it: if it is a file by now, its tree may go. */
void seal_rest(struct service *s, const char *id);

/* Gives the tree that name, in place of what had it, and tells of it. */
int image_name(struct service *s, const struct image_row *row, struct err *err);
void image_view_of(struct service *s, const struct image_row *row, char **config,
                   struct image_view *ret);
