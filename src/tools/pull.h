/*
 * Reads a file of a machine in pieces through the service.
 *
 * Pieces are not stored: the caller gets each one, and may stop the reading.
 */
#pragma once

#include "service/service.h"

/* All members belong to the caller and must live until `ended`. */
struct pull_from {
    struct service *service;
    const struct caller *who;
    const char *machine, *path;
    uint32_t uid;
    const bool *stop; /* may be NULL; true ends the reading early */
};

/* Return false to stop reading. */
typedef bool pull_piece_fn(void *arg, const uint8_t *bytes, size_t n);
/* Called once at the end; whole: the file was read completely. */
typedef void pull_ended_fn(void *arg, const struct err *err, bool whole);

void pull(const struct pull_from *from, pull_piece_fn *piece, pull_ended_fn *ended, void *arg);
