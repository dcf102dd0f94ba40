/*
 * Converts an OCI layout between a directory and the archive that the daemon reads and writes.
 *
 * Only files of a layout are copied: oci-layout, index.json and blobs by their digest.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/tar.h"

typedef int layout_write_fn(void *arg, const void *bytes, size_t n, struct err *err);

/* Packs the directory into an archive, and passes the archive to `write` in pieces. */
int layout_send(const char *dir, layout_write_fn *write, void *arg, struct err *err);

/* Unpacks an archive, which comes in pieces of any size, into a new or empty directory. */
struct layout_reader {
    int dir;  /* the directory; -1: not open */
    int file; /* the file that is being written; -1: none */
    uint64_t left, padding;
    size_t held;
    uint8_t block[TAR_BLOCK];
    struct tar_reader *tar;
    struct tar_entry *entry;
    bool ended;
};
int layout_open(struct layout_reader *r, const char *dir, struct err *err);
int layout_take(struct layout_reader *r, const void *bytes, size_t n, struct err *err);
/* Fails if the archive was incomplete. */
int layout_finish(struct layout_reader *r, struct err *err);
void layout_done(struct layout_reader *r);
