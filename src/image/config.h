/*
 * Configuration of an image: environment, user, working directory, command, processor.
 *
 * The configuration is read from an OCI configuration or from Carrel's own format. Carrel's format
 * is canonical, because the image id is computed from its bytes. Input may be hostile, so every
 * size has a limit.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

enum {
    CONFIG_ENV_MAX = 256,
    CONFIG_WORDS_MAX = 256,      /* arguments of a command */
    CONFIG_TEXT_MAX = 4096,      /* bytes of one string */
    CONFIG_BYTES_MAX = 32 << 10, /* bytes of a configuration in Carrel's format */
    CONFIG_JSON_MAX = 4 << 20,   /* bytes of a configuration that is parsed */
};

struct image_config {
    char *user;    /* "1000", "app:staff"; NULL: root */
    char *workdir; /* absolute path; NULL: "/" */
    char *arch;    /* "amd64", "arm64"; NULL: not stated */
    struct config_texts {
        char *v[CONFIG_ENV_MAX];
        size_t count;
    } env; /* "NAME=VALUE", sorted by name, each name once */
    struct config_texts entrypoint, command;
};

void image_config_done(struct image_config *c);

/* Reads the configuration of an OCI or Docker image. */
int image_config_read_oci(const char *json, size_t len, struct image_config *ret, struct err *err);
/* Reads or prints a configuration in Carrel's own format. */
int image_config_read(const char *json, size_t len, struct image_config *ret, struct err *err);
int image_config_print(const struct image_config *c, struct buf *ret, struct err *err);

/* Sets the environment variable in `pair` (NAME=VALUE). Replaces its earlier value. */
int image_config_set_env(struct image_config *c, const char *pair, struct err *err);

/* OCI's name of the processor of this host, such as "amd64". */
const char *image_arch(void);
