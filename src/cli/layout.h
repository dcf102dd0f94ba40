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

/*
 * Sends a file below `dir` as entry `as` of an archive. what: the kind of directory, for errors.
 * layout_send_end() ends the archive.
 */
int layout_send_file(int dir, const char *path, const char *as, const char *what,
                     layout_write_fn *write, void *arg, struct err *err);
/* Sends `size` bytes of a file from `at` on, and their padding. */
int layout_send_bytes(int fd, uint64_t at, uint64_t size, const char *path, layout_write_fn *write,
                      void *arg, struct err *err);
int layout_send_end(layout_write_fn *write, void *arg, struct err *err);

/* Packs the directory into an archive, and passes the archive to `write` in pieces. */
int layout_send(const char *dir, layout_write_fn *write, void *arg, struct err *err);

struct layout_reader;

/* What happens to the files of an archive. */
struct layout_kind {
    const char *what; /* for errors */
    /* Opens r->file for r->entry. -1 as r->file: the file is skipped. */
    int (*begin)(struct layout_reader *r, struct err *err);
    /* The file is complete, and is closed afterwards. NULL: nothing to do. */
    int (*end)(struct layout_reader *r, struct err *err);
};

/* Unpacks an archive, which comes in pieces of any size, into a directory. */
struct layout_reader {
    const struct layout_kind *kind;
    int dir;  /* the directory; -1: not open */
    int file; /* the file that is being written; -1: none */
    uint64_t left, padding;
    size_t held;
    uint8_t block[TAR_BLOCK];
    struct tar_reader *tar;
    struct tar_entry *entry;
    bool ended;
};
/* For an OCI layout: `dir` must be new or empty. */
int layout_open(struct layout_reader *r, const char *dir, struct err *err);
bool layout_is_empty(int dir);
/* For another kind. Takes `dir`. */
void layout_start(struct layout_reader *r, const struct layout_kind *kind, int dir);
int layout_take(struct layout_reader *r, const void *bytes, size_t n, struct err *err);
/* Fails if the archive was incomplete. */
int layout_finish(struct layout_reader *r, struct err *err);
void layout_done(struct layout_reader *r);
