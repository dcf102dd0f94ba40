/*
 * Entry point of the process that reads an archive.
 *
 * Archives may be hostile, so this process is separate from the one that reports to the daemon
 * (image/apart.h).
 */
#pragma once

#include "image/apart.h"
#include "image/tree.h"

struct reading {
    struct image_ids ids;
    uint64_t disk;  /* bytes that the image may take; 0: no limit */
    bool is_layer;  /* the archive is a layer above an image, or above the host's /usr */
    bool has_below; /* the files of that image are at APART_FD_READ_BELOW */
};

/* The apart_fn of the reader. arg: a struct reading. */
int read_archive(void *arg, struct report *report, struct buf *ret, struct err *err);
