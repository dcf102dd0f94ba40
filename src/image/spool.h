/*
 * Temporary files of an image archive (OCI layout, Docker archive): the document that refers to a
 * file may come after it. Entry names are only compared; files on disk have numbers as names.
 */
#pragma once

#include <archive.h>
#include <archive_entry.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "image/oci.h"
#include "image/report.h"
#include "image/unpack.h"

enum { SPOOL_FILES_MAX = 1024 };

struct spool {
    int dir;
    size_t count;
    uint64_t bytes, limit;
    struct unpack *unpack; /* what is laid aside is charged to it */
    struct report *report;
    char *names[SPOOL_FILES_MAX]; /* NULL: it could not be kept */
};

void spool_done(struct spool *s);

/* Anything but a file is passed over. */
int spool_take(struct spool *s, struct archive *a, struct archive_entry *e, struct err *err);

/* A descriptor at its start; `not_found`. */
int spool_open(const struct spool *s, const char *name, struct err *err);
/* A whole document. */
int spool_read(const struct spool *s, const char *name, size_t max, struct buf *ret,
               struct err *err);
/* Opens a blob of an OCI layout, after it was found to be what its digest says. */
int spool_open_blob(const struct spool *s, const struct oci_blob *blob, struct err *err);
int spool_read_blob(const struct spool *s, const struct oci_blob *blob, struct buf *ret,
                    struct err *err);
/* Of a whole file; it stands at its start afterwards. */
int spool_hash(int fd, char ret[OCI_DIGEST_SIZE], uint64_t *ret_size, struct err *err);
