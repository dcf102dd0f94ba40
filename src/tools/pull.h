/* A file of a machine, read piece by piece through the service. */
#pragma once

#include "service/service.h"

/* Everything stays the caller's, and alive until `ended`. */
struct pull_from {
    struct service *service;
    const struct caller *who;
    const char *machine, *path;
    uint32_t uid;
    const bool *stop; /* may be NULL: true ends it early */
};

/* False: that is enough. */
typedef bool pull_piece_fn(void *arg, const uint8_t *bytes, size_t n);
/* The last word, once: whole says that the file was read to its end. */
typedef void pull_ended_fn(void *arg, const struct err *err, bool whole);

void pull(const struct pull_from *from, pull_piece_fn *piece, pull_ended_fn *ended, void *arg);
