/*
 * Functions that `carrel image` and `carrel image build` share.
 *
 * The daemon makes images; the CLI only sends and receives archives.
 */
#pragma once

#include <stdbool.h>

#include "cli/client.h"

/* Imports an archive as image `name` (NULL: the name in the archive). size 0: unknown. */
int image_upload(struct client *c, int fd, const char *what, uint64_t size, const char *name,
                 bool quiet, json_t **ret, struct err *err);
int image_show(struct client *c, const char *name, json_t **ret, struct err *err);

struct build_options {
    const char *name;
    const char *file;        /* the recipe or Dockerfile; NULL: found in the directory */
    const char *const *args; /* variables of a Dockerfile, NAME=VALUE */
    size_t arg_count;
    const char *const *net; /* hosts and presets that lines may reach */
    size_t net_count;
    bool quiet, no_cache;
};
/* `path` is a recipe, a Dockerfile, or a directory. */
int image_build(struct client *c, const char *path, const struct build_options *o, json_t **ret,
                struct err *err);
