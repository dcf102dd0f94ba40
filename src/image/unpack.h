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

/* In a plain archive of ours, before the tree: the image's configuration. */
#define IMAGE_CONFIG_NAME ".carrel-image.json"

struct image_limits {
    uint64_t entries;
    uint64_t bytes; /* of contents, unpacked */
    uint64_t disk;  /* by image/cost.h, with what is laid aside meanwhile; 0: no limit */
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
    uint64_t entries, bytes; /* so far */
    uint64_t disk;           /* likewise: what was replaced counts too */
    uint64_t read;           /* likewise: bytes behind headers, each time that they are read */
    struct dir_time *times;  /* of directories, set at the end */
    size_t time_count, time_size;
    int parent; /* of the entry before; -1 */
    char parent_path[IMAGE_PATH_SIZE];
};

/* Counts what is about to be written; `limit` once it is more than the quota leaves. */
int unpack_charge(struct unpack *u, uint64_t disk, struct err *err);

struct unpack unpack_begin(int root, struct image_ids ids, struct report *report);
void unpack_done(struct unpack *u);

/* A reader for tar alone, plain or packed with gzip, xz or zstd. NULL: out of memory. */
struct archive *unpack_reader(void);
void unpack_reader_free(struct archive **a);

/*
 * One entry, which has been read as *e. layered: `.wh.` names take away what is below; they were
 * applied before by unpack_whiteouts().
 */
int unpack_entry(struct unpack *u, struct archive *a, struct archive_entry *e, bool layered,
                 struct err *err);
/* All that is left in it. */
int unpack_rest(struct unpack *u, struct archive *a, bool layered, struct err *err);
/* What a layer takes away from those below it, before anything of it is there. */
int unpack_whiteouts(struct unpack *u, struct archive *a, struct err *err);
/* After the last layer. */
int unpack_finish(struct unpack *u, struct err *err);

/* Reads the next header: 1, 0 at the end. What follows it counts, whether it is kept or not. */
int unpack_next(struct unpack *u, struct archive *a, struct archive_entry **ret, struct err *err);
const char *unpack_name(struct archive_entry *e);
