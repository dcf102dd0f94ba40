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
/*
 * Does the same for an archive whose source may fail: after its last byte is_complete() says
 * whether it is complete. If not, the daemon discards it.
 */
struct upload_source {
    int fd;
    const char *what;
    uint64_t size; /* 0: unknown */
    bool layered;  /* an OCI layout in the order that keeps its layers (arrange.h) */
    int (*is_complete)(void *arg, struct err *err);
    void *arg;
};
int image_upload_from(struct client *c, const struct upload_source *from, const char *name,
                      bool quiet, json_t **ret, struct err *err);
/* Writes an image to a descriptor; `form` is that of the API, `what` names the target in errors. */
int image_download(struct client *c, const char *name, const char *form, bool quiet, int fd,
                   const char *what, struct err *err);
int image_show(struct client *c, const char *name, json_t **ret, struct err *err);

/* An image in a registry. */
struct registry_options {
    const char *reference; /* [HOST/]NAME[:TAG] */
    const char *name;      /* in Carrel; NULL: made from the reference */
    bool insecure, quiet;
};
int image_pull(struct client *c, const struct registry_options *o, json_t **ret, struct err *err);
int image_push(struct client *c, const char *image, const struct registry_options *o, json_t **ret,
               struct err *err);

struct build_options {
    const char *name;
    const char *file;        /* the recipe or Dockerfile; NULL: found in the directory */
    const char *const *args; /* variables of a Dockerfile, NAME=VALUE */
    size_t arg_count;
    const char *const *net; /* hosts and presets that lines may reach */
    size_t net_count;
    bool quiet, no_cache;
    bool detach; /* do not wait for the build */
};
/* `path` is a recipe, a Dockerfile, or a directory. *ret: the image, or with detach the build. */
int image_build(struct client *c, const char *path, const struct build_options *o, json_t **ret,
                struct err *err);
