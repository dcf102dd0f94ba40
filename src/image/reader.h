/*
 * Entry point of the process that reads an archive.
 *
 * Archives are hostile, so this process is separate from the one that reports (image/apart.h).
 */
#pragma once

#include "image/apart.h"
#include "image/tree.h"

struct reading {
    struct image_ids ids;
    uint64_t disk; /* that it may take; 0: no limit */
};

/* An apart_fn. arg: a struct reading. */
int read_archive(void *arg, struct report *report, struct buf *ret, struct err *err);
