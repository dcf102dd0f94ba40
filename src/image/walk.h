/*
 * Walks a tree in canonical order: a directory before its entries, names sorted by bytes. Ids,
 * exports and snapshots all use this walk, so equal trees give equal results.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "image/tree.h"

struct walk_entry {
    const char *path; /* "" for the root */
    mode_t mode;      /* with its type */
    uint32_t uid, gid;
    int64_t mtime;
    uint64_t size;      /* of a file */
    const char *target; /* of a symbolic link */
    const char *twin;   /* an earlier path of the same file: this one is a hard link to it */
    bool linked;        /* there are other names of it */
    int fd;             /* of a file, at its start; else -1 */
};

typedef int walk_fn(void *arg, const struct walk_entry *e, struct err *err);

struct walk {
    int root;
    int usr; /* instead of the root's own /usr; -1: that one */
    struct image_ids ids;
    walk_fn *fn;
    void *arg;
    bool strict; /* refuse attributes that an image cannot have: no id tells of them */
};

/* Sockets and devices have no place in an image and are passed over. */
int image_walk(const struct walk *w, struct err *err);

/* Attributes of a file that belong to an image, in order. Pieces live during the call. */
typedef int walk_attribute_fn(void *arg, const char *name, const void *value, size_t size,
                              struct err *err);
int image_attributes(const struct walk_entry *e, walk_attribute_fn *fn, void *arg, struct err *err);
