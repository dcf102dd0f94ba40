/*
 * Translates a Dockerfile into a recipe. Pure: reads no file and asks nobody.
 *
 * Supported: FROM (one stage), RUN, COPY, ADD of local files, ENV, ARG, WORKDIR, USER, CMD,
 * ENTRYPOINT and SHELL, in shell and exec form, with line continuation, comments, `# escape`,
 * variables, and here-documents of RUN. EXPOSE, LABEL, VOLUME, HEALTHCHECK, STOPSIGNAL and
 * MAINTAINER have no effect and are listed in the notes. Everything else is an error with its line.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"
#include "cli/image/recipe.h"

/* The path of programs if neither the base image nor the Dockerfile sets PATH. */
#define DOCKERFILE_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

struct dockerfile_input {
    const char *const *args; /* values of --build-arg, NAME=VALUE */
    size_t arg_count;
    const char *const *env; /* variables of the base image, NAME=VALUE */
    size_t env_count;
    const char *user, *workdir; /* of the base image; NULL or "": root and "/" */
};

/* True if the first instruction of the text is one of a Dockerfile. */
bool dockerfile_is(const char *bytes, size_t len);

/*
 * Translates the Dockerfile. `notes` (may be NULL) gets a line for each instruction without effect.
 * The input of the base image matters only after FROM, so a caller may read the name of the base
 * from ret->lines[0] and translate again.
 */
int dockerfile_read(const char *bytes, size_t len, const struct dockerfile_input *in,
                    struct recipe *ret, struct buf *notes, struct err *err);

/*
 * Writes the name that an image of a registry has in Carrel: "debian:12" for
 * docker.io/library/debian:12, "ghcr.io.org.app:1" for ghcr.io/org/app:1, without ":latest". False:
 * the name is too long or not valid.
 */
bool dockerfile_image_name(const char *reference, char *ret, size_t size);
