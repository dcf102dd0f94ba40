/*
 * The directories of this host that callers may hand over by their path: those of `roots` in
 * carrel.conf that belong to the caller's owner. Nobody can add one over the API.
 */
#pragma once

#include "service/service.h"

struct roots {
    char paths[CONF_ROOTS_MAX][CONF_TEXT_SIZE];
    size_t count;
    bool is_own;               /* the caller's owner runs the daemon */
    char conf[CONF_TEXT_SIZE]; /* path of carrel.conf; empty unless is_own */
};

int service_roots_read(struct service *s, const struct caller *who, struct roots *ret,
                       struct err *err);
/* Opens a directory, or a file, below one of them. */
int roots_open(struct service *s, const struct caller *who, const char *path, bool is_file,
               struct err *err);
