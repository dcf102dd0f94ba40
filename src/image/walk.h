/*
 * Walks a tree in canonical order: a directory before its entries, names sorted by bytes. Ids,
 * exports and snapshots all use this walk, so equal trees give equal results.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "image/over.h"
#include "image/tree.h"

struct walk_entry {
    const char *path; /* "" for the root */
    mode_t mode;      /* permissions and file type; S_IFCHR: a whiteout */
    uint32_t uid, gid;
    int64_t mtime;
    uint64_t size;      /* bytes of a regular file */
    const char *target; /* target of a symbolic link */
    const char *twin;   /* an earlier path of the same file: this one is a hard link to it */
    bool linked;        /* the file has several hard links */
    int fd;             /* open regular file, at its start; else -1 */
};

typedef int walk_fn(void *arg, const struct walk_entry *e, struct err *err);

struct walk {
    int root;
    int usr;                     /* directory that replaces /usr of the tree; -1: none */
    const struct over *usr_over; /* visit only what differs in that directory; NULL: all */
    struct image_ids ids;
    walk_fn *fn;
    void *arg;
    bool strict; /* refuse attributes that an image cannot have: the image id does not cover them */
    bool whiteouts;          /* the tree is a layer: its whiteouts are entries */
    const struct over *over; /* visit only what a layer above an image contains; NULL: all */
};

/*
 * Calls w->fn for each entry. Skips sockets and devices, which an image cannot contain. With
 * w->over, a name of the image below that is missing, or is skipped, is a whiteout.
 */
int image_walk(const struct walk *w, struct err *err);

/* Calls `fn` for each attribute of a file that belongs to an image, sorted by name. Name and value
 * are valid only during the call. */
typedef int walk_attribute_fn(void *arg, const char *name, const void *value, size_t size,
                              struct err *err);
int image_attributes(const struct walk_entry *e, walk_attribute_fn *fn, void *arg, struct err *err);
