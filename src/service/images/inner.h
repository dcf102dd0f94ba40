/*
 * Internal state of images: trees on disk, each with its image.json. Only files of
 * src/service/images include this header; other files call the functions of images/live.h.
 */
#pragma once

#include <jansson.h>

#include "base/image_below.h"
#include "service/exec/plan.h"
#include "service/images/images.h"
#include "service/images/live.h"
#include "service/state.h"

struct build;
struct image_job;
struct seal_want;
struct sealing;

/* Part of struct service. */
struct service_images {
    /* counters of finished work; the other members are counted on request */
    struct image_stats stats;
    struct image_job *jobs;       /* imports, exports and snapshots in progress */
    struct build *builds;         /* builds that have not ended */
    struct seal_want *seal_wants; /* images that wait to be sealed (converted to one erofs file) */
    struct sealing *sealing;      /* the sealing in progress, or NULL */
    bool seals_off;               /* this kernel cannot mount erofs files */
    uint64_t again_ms;            /* time of the next attempt to delete unused trees; 0: never */
    struct map configs;           /* id -> struct image_config, of live machines */
    struct map knowns;            /* id -> struct layer_known (groups.c) */
};

/* The content of a tree's image.json, which never changes: all machines of an image share it. */
struct image_config {
    struct service_images *of; /* has it in `configs`; NULL: the service has ended */
    uint32_t refs;
    char id[IMAGE_ID_SIZE];
    struct exec_defaults defaults;
    json_t *json;       /* owns the texts above */
    json_t *image;      /* part of it: the configuration that an image of the machine gets too */
    const char **pairs; /* of the environment */
    char *names;        /* names of environment variables */
};

/* The image of one machine. */
struct live_image {
    char name[IMAGE_NAME_SIZE]; /* a name of the image, or the start of its id */
    struct image_config *config;
    /* the last image made of the machine, and its stack then; empty: none yet */
    char made[IMAGE_ID_SIZE];
    char *made_stack;
};

/* Reads image.json; NULL if that fails. */
json_t *image_record(const struct service *s, const char *id);

/* Reads the list of images below this one. 0 or -errno. */
int image_below_of(const struct service *s, const char *id, struct image_below *ret);
/* True if a running job needs this image. */
bool image_job_needs(const struct service *s, const char *id);
/* True if this unfinished tree belongs to a job. */
bool image_job_has_tree(const struct service *s, const char *name);
/* True if another image, or a running job, needs this image below it. */
bool image_is_below(const struct service *s, const char *id);

/* Sizes of an image with everything below it. */
struct image_sizes {
    uint64_t bytes, entries, disk;
    bool known; /* false: an image of an earlier version that has lost its names */
};
void image_sizes_of(struct service *s, const char *id, struct image_sizes *ret);
void image_sizes_put(json_t *record, const struct image_sizes *sizes);

/* Schedules another attempt, after a second, to delete trees that a box (machine) still used. */
void images_again(struct service *s);
void image_wipe(struct service *s, const char *name);

/* Deletes a name of an image, and the image if nothing else needs it. */
int image_remove_row(struct service *s, const struct image_row *row, struct err *err);

/* Checks the name of a new image. */
int image_name_check(const char *name, struct err *err);
/* True if this is the name of an intermediate image of a build. */
bool image_is_step(const char *name);
/*
 * Opens the directory that holds the trees of all images. Returns -1 and sets errno if that fails.
 */
int images_open(const struct service *s);

/* In images/seal.c: queues the lowest layer of a named image to be sealed later, unless it is. */
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
