/*
 * The files of a COPY step. A client packs what the source names, with paths from its own
 * directory; a build gets an archive with the paths that the files have at the destination.
 *
 * Works on descriptors and blocks, so it runs on a worker thread. The archive is not trusted.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

enum context_kind {
    CONTEXT_DIR,  /* files below a directory, which the destination gets */
    CONTEXT_FILE, /* one file */
    CONTEXT_LINK, /* one symbolic link */
};

struct context_request {
    int in, out;          /* in: tar, or tar in gzip; read from its start on */
    const char *source;   /* path of the step, perhaps with a pattern such as "src/x*" */
    const char *name;     /* of a symbolic link at its destination; NULL: that of the source */
    int mode;             /* permissions of all files; -1: those in the archive */
    uint64_t *bytes_left; /* of archives, not compressed; what this one has is taken from it */
};

int context_write(const struct context_request *r, enum context_kind *ret, struct err *err);

enum { CONTEXT_PATH_SIZE = 4096 };
/*
 * Writes the path of a step as it stands in an archive: without "." and "//", and without its last
 * parts from the first pattern on. Refuses a path that leaves the directory of the client.
 */
int context_source(const char *source, char ret[CONTEXT_PATH_SIZE], struct err *err);
