/*
 * Temporary files of an image archive (OCI layout, Docker archive). They are needed because the
 * document that refers to a file may come after the file. Entry names are only compared; files on
 * disk have numbers as names.
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
    struct unpack *unpack; /* its disk limit includes the temporary files */
    struct report *report;
    char *names[SPOOL_FILES_MAX]; /* entry name of each file */
};

void spool_done(struct spool *s);

/* Stores entry `e` of the archive if it is a regular file. Skips all others, and files of packs
 * that are there already. */
int spool_take(struct spool *s, struct archive *a, struct archive_entry *e, struct err *err);

/* Opens the file with that entry name. ERR_INVALID if the archive does not contain it. */
int spool_open(const struct spool *s, const char *name, struct err *err);
/* Reads a whole file of at most `max` bytes. */
int spool_read(const struct spool *s, const char *name, size_t max, struct buf *ret,
               struct err *err);
/* Checks the digest and size of a blob of an OCI layout, and opens it. */
int spool_open_blob(const struct spool *s, const struct oci_blob *blob, struct err *err);
int spool_read_blob(const struct spool *s, const struct oci_blob *blob, struct buf *ret,
                    struct err *err);
/* Computes the digest and size of a whole file, and seeks back to its start. */
int spool_hash(int fd, char ret[OCI_DIGEST_SIZE], uint64_t *ret_size, struct err *err);
