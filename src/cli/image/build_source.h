/*
 * What an image is built from: a recipe, or a Dockerfile that is translated into one, and the
 * directory whose files it may copy.
 *
 * The directory is opened once, so that nobody can replace it during the build.
 */
#pragma once

#include "cli/client.h"
#include "cli/image/dockerignore.h"
#include "cli/image/image.h"
#include "cli/image/recipe.h"

struct build_source {
    int dir; /* -1: not open */
    struct recipe recipe;
    bool is_dockerfile;
    struct dockerignore ignore;
    json_t *base; /* configuration of a Dockerfile's base image; NULL: none */
};

/* Reads `path`: a recipe, a Dockerfile, or a directory that contains one of them. */
int build_source_read(struct build_source *s, struct client *c, const char *path,
                      const struct build_options *o, struct err *err);
void build_source_done(struct build_source *s);
/* User and directory of the base image; root and "/" if it sets none. */
const char *build_source_user(const struct build_source *s);
const char *build_source_workdir(const struct build_source *s);
