/*
 * Reports of the image worker to the daemon: one line of JSON each.
 *
 * The last line is the result: an image, an error, or that the work is done.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct report {
    int fd;
    uint64_t told_ms; /* time of the last report of progress */
};

/* Writes at most two reports per second. */
void report_progress(struct report *r, uint64_t entries, uint64_t bytes);
void report_error(struct report *r, const struct err *err);
/* config: JSON. same: the image is a layer that changes no file of the image below. */
struct report_of_image {
    const char *id, *config;
    uint64_t entries, bytes, disk;
    bool same;
};
void report_image(struct report *r, const struct report_of_image *of);
void report_done(struct report *r);
/* manifest: its hash. read: bytes of files that were read. */
void report_backup(struct report *r, const char *manifest, uint64_t entries, uint64_t bytes,
                   uint64_t read);
/* From the reader of an archive to its supervisor (image/apart.h). config: JSON. */
void report_config(struct report *r, const char *config);
