/* Trees of images on disk, and what the daemon wrote down of each. Only for src/service. */
#pragma once

#include <jansson.h>

#include "service/exec/plan.h"
#include "service/images/images.h"
#include "service/state.h"
#include "store/images.h"

/* What image.json of a tree says; NULL: nothing that can be used, and why. */
struct live_image *live_image_load(struct service *s, const char *id, struct err *err);
void live_image_free(struct live_image *i);

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

/* Removes the tree unless something needs it. */
void image_release(struct service *s, const char *id);
/* At the start: trees that nobody knows, and those that were being made. */
void images_sweep(struct service *s);
/* Trees that could not go because a box still held them: in a second, and again. */
void images_again(struct service *s);
void images_look(struct service *s, uint64_t now_ms);
void image_wipe(struct service *s, const char *name);

/* Is that the name of a step of a build? */
bool image_is_step(const char *name);
/* Is its tree there, or the file that we made of it? */
bool image_is_whole(const struct service *s, const char *id);
/* The images' directory; what presets of one are read from. -1 with errno. */
int images_open(const struct service *s);
int image_open_presets(const struct service *s, const char *id);

/* images/seal.c: an image that has that name becomes a file, by and by, unless it is one. */
void seal_want(struct service *s, const char *name, const char *id);
/* A machine has let go of it: if it is a file by now, its tree may go. */
void seal_rest(struct service *s, const char *id);
void seals_release(struct service *s);

/* Who asked may use it: its own, and with the scope admin those of others. */
int image_find(struct service *s, const struct caller *who, const char *ref, struct image_row *ret,
               struct err *err);
/* Gives the tree that name, in place of what had it, and tells of it. */
int image_name(struct service *s, const struct image_row *row, struct err *err);
void image_view_of(struct service *s, const struct image_row *row, char **config,
                   struct image_view *ret);
