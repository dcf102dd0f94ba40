/*
 * Unpacks layers into a tree. Every entry is checked, and written only below the descriptor of the
 * tree.
 *
 * Kept: directories, files, links, pipes; owner; mode with set-id bits (harmless: boxes run with
 * no_new_privs); whole seconds of the time; attributes user.* and security.capability. Skipped:
 * entries in dev, proc and sys, which a box provides, and other security.* attributes. Refused,
 * with the whole archive: names and links that leave the tree, devices, overlay markers, ids above
 * 65535, and anything over the limits.
 */
#pragma once

#include <archive.h>
#include <stdint.h>

#include "base/err.h"
#include "image/report.h"
#include "image/tree.h"

/* Names of whiteouts: "all that the layers below have in this directory", and other marks. */
#define WHITEOUT_OPAQUE ".wh..wh..opq"
#define WHITEOUT_META ".wh..wh."

/* First entry of a tar that Carrel exported: the configuration of the image. */
#define IMAGE_CONFIG_NAME ".carrel-image.json"

struct image_limits {
    uint64_t entries;
    uint64_t bytes; /* total size of the unpacked files */
    uint64_t disk;  /* disk space by image/cost.h, with temporary files; 0: no limit */
};
#define IMAGE_LIMITS ((struct image_limits){.entries = 2000000, .bytes = 64ull << 30})

struct dir_time {
    char *path;
    int64_t mtime;
};

struct unpack {
    int root;
    struct image_ids ids;
    struct image_limits limits;
    struct report *report;
    bool is_layer;           /* a layer above an image: whiteouts are kept as devices 0:0 */
    int below;               /* files of that image; -1: none */
    bool merges;             /* a layer of OCI, which needs these files (merged.h) */
    uint64_t steps;          /* parts of paths that merged.c resolved */
    uint64_t entries, bytes; /* entries and bytes unpacked so far */
    uint64_t disk;           /* disk space used so far, with entries that were replaced later */
    uint64_t read;           /* bytes of entries read so far; data read twice counts twice */
    struct dir_time *times;  /* times of directories, set at the end */
    size_t time_count, time_size;
    int parent; /* open parent directory of the previous entry; -1: none */
    char parent_path[IMAGE_PATH_SIZE];
    char parent_real[IMAGE_PATH_SIZE]; /* the same without links, if `merges` */
};

/* Counts bytes that the import reads, also if it skips them or reads them twice. ERR_LIMIT if they
 * are far more than the limits. */
int unpack_count_read(struct unpack *u, uint64_t bytes, struct err *err);

/* Count entries and the bytes of files that are about to be unpacked. ERR_LIMIT. */
int unpack_count_entries(struct unpack *u, unsigned count, struct err *err);
int unpack_count_bytes(struct unpack *u, uint64_t bytes, struct err *err);
/* Remembers the time of a directory of the tree, for unpack_finish(). */
int unpack_keep_time(struct unpack *u, const char *path, int64_t mtime, struct err *err);

/* Adds `disk` bytes, which are about to be written. ERR_LIMIT if the sum exceeds limits.disk. */
int unpack_charge(struct unpack *u, uint64_t disk, struct err *err);

struct unpack unpack_begin(int root, struct image_ids ids, struct report *report);
void unpack_done(struct unpack *u);

/* Creates a reader of tar files, plain or compressed with gzip, xz or zstd. NULL: out of memory. */
struct archive *unpack_reader(void);
void unpack_reader_free(struct archive **a);

/*
 * Unpacks entry `e`, whose header has been read. layered: skip whiteouts (`.wh.` names, which
 * delete files of lower layers); unpack_whiteouts() has applied them already.
 */
int unpack_entry(struct unpack *u, struct archive *a, struct archive_entry *e, bool layered,
                 struct err *err);
/* Unpacks all remaining entries. */
int unpack_rest(struct unpack *u, struct archive *a, bool layered, struct err *err);
/* Deletes the files of lower layers that whiteouts of this layer name. Call it before the layer is
 * unpacked. */
int unpack_whiteouts(struct unpack *u, struct archive *a, struct err *err);
/* Sets the times of directories. Call it after the last layer. */
int unpack_finish(struct unpack *u, struct err *err);

/* Reads the next header. Returns 1, or 0 at the end. The data behind the header counts towards the
 * limits even if it is skipped. */
int unpack_next(struct unpack *u, struct archive *a, struct archive_entry **ret, struct err *err);
const char *unpack_name(struct archive_entry *e);
