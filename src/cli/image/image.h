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
    bool quiet, no_cache;
};
int image_build(struct client *c, const char *recipe, const struct build_options *o, json_t **ret,
                struct err *err);
