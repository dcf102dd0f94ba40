/*
 * Configuration of an image: environment, user, working directory, command, processor.
 *
 * Read from an OCI configuration or from our own format. Ours is canonical, because the image id is
 * computed from its bytes. All input is hostile and has a cap.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    CONFIG_ENV_MAX = 256,
    CONFIG_WORDS_MAX = 256, /* of a command */
    CONFIG_TEXT_MAX = 4096, /* of one text */
    CONFIG_BYTES_MAX = 32 << 10,
    CONFIG_JSON_MAX = 4 << 20, /* of a document of others */
};

struct image_config {
    char *user;    /* "1000", "app:staff"; NULL: root */
    char *workdir; /* absolute; NULL: "/" */
    char *arch;    /* "amd64", "arm64"; NULL: it does not say */
    struct config_texts {
        char *v[CONFIG_ENV_MAX];
        size_t count;
    } env; /* "NAME=VALUE", sorted by name, each name once */
    struct config_texts entrypoint, command;
};

void image_config_done(struct image_config *c);

/* Of an OCI or Docker image. */
int image_config_read_oci(const char *json, size_t len, struct image_config *ret, struct err *err);
/* Ours. */
int image_config_read(const char *json, size_t len, struct image_config *ret, struct err *err);
int image_config_print(const struct image_config *c, struct buf *ret, struct err *err);

/* Adds NAME=VALUE, in place of the value that it has. */
int image_config_set_env(struct image_config *c, const char *pair, struct err *err);

/* This host's name for its processor. */
const char *image_arch(void);
