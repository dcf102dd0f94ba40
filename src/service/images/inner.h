/*
 * Internal state of images: trees on disk, each with its image.json. Only files of
 * src/service/images include this header; other files call the functions of images/live.h.
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
    /* counters of finished work; the other members are counted on request */
    struct image_stats stats;
    struct seal_want *seal_wants; /* images that wait to be sealed (converted to one erofs file) */
    struct sealing *sealing;      /* the sealing in progress, or NULL */
    bool seals_off;               /* this kernel cannot mount erofs files */
    uint64_t again_ms;            /* time of the next attempt to delete unused trees; 0: never */
};

/* The content of a tree's image.json. */
struct live_image {
    char name[IMAGE_NAME_SIZE]; /* a name of the image, or the start of its id */
    struct exec_defaults defaults;
    json_t *json; /* owns the texts above */
    json_t *config;
    const char *pairs[2 * EXEC_ENV_MAX];
    char text[32 << 10]; /* names of environment variables */
};

/* Renames a finished tree to its id. The staging directory is deleted in any case. */
int image_adopt(struct service *s, const char *staging, const char *id, const char *json,
                struct err *err);

/* Schedules another attempt, after a second, to delete trees that a box (machine) still used. */
void images_again(struct service *s);
void image_wipe(struct service *s, const char *name);

/* True if this is the name of an intermediate image of a build. */
bool image_is_step(const char *name);
/*
 * Opens the directory that holds the trees of all images. Returns -1 and sets errno if that fails.
 */
int images_open(const struct service *s);

/* In images/seal.c: queues a named image to be sealed later, unless it is sealed. */
void seal_want(struct service *s, const char *name, const char *id);
/* A machine released the image: if it is sealed, its tree may be deleted. */
void seal_rest(struct service *s, const char *id);

/*
 * Gives the tree a name and sends an event. If another image has this name, that image loses the
 * name.
 */
int image_name(struct service *s, const struct image_row *row, struct err *err);
void image_view_of(struct service *s, const struct image_row *row, char **config,
                   struct image_view *ret);
