/*
 * Compares the archive of a change set with the directory it is meant for: which files would be
 * added, modified or deleted, and which are refused.
 *
 * A machine wrote the archive. So paths that are absolute or contain ".." are refused, and nothing
 * outside the directory is read: no link is followed.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs/baseline.h"
#include "base/sha256.h"
#include "base/tar.h"

enum { PARCEL_ITEMS_MAX = 100000 };

struct parcel_item {
    char *path;
    enum tar_kind kind;
    uint32_t mode;
    const char *bytes; /* contents of a file: in the archive, or in `own` */
    char *own;         /* allocated contents, or NULL */
    size_t n;
    char *target;            /* target of a link */
    char sha256[SHA256_HEX]; /* hash of the content or target; if deleted, of the old one */
    char before[SHA256_HEX]; /* if modified: hash of the version in the directory */
    char change;             /* A added, M modified, D deleted, = unchanged */
    const char *refused;     /* reason why the file is refused, or NULL */
    unsigned flags;
    uint64_t step; /* number of the step that changed the file, by its mtime; 0: unknown */
    int64_t mtime; /* seconds */
    bool wanted;
    bool differs;        /* refused because owner and machine both changed it */
    const char *partner; /* the other path of a renamed file; else NULL */
};

struct parcel {
    char *archive; /* mapped into memory */
    size_t size;
    int dir;                   /* owned by the caller */
    struct parcel_item *items; /* sorted by path */
    size_t count;
    bool is_elsewhere; /* the baseline is of another directory, or there is none */
};

/*
 * How to recognise the owner's own changes: by a baseline of the directory from when the machine
 * got it, else by changes after since_ms. A file of the baseline that the archive lacks was deleted
 * in the machine. With `mirror` every file that the archive lacks counts as deleted. With
 * `changes_only` the archive has only the changes and the baseline only these and deleted paths, so
 * nothing else in the directory is looked at.
 */
struct parcel_side {
    const struct baseline *base; /* NULL or of another directory: not used */
    int64_t since_ms;
    bool mirror, changes_only;
    /* True for a file that the machine's image contains: it is not a change. NULL: unknown. */
    bool (*is_image)(const void *arg, const char *path);
    const void *arg;
};

/* Takes ownership of the mapping `archive`. dir -1: there is nothing to compare with. */
int parcel_open(struct parcel *p, char *archive, size_t size, int dir,
                const struct parcel_side *side, struct err *err);
void parcel_close(struct parcel *p);

/* Opens the parent of a path (O_PATH), below dir and following no link; *ret_name is the last part.
 * Or -errno. */
int parcel_parent(int dir, const char *path, const char **ret_name);
/* Hashes a regular file, or the target of a symbolic link; false for anything else. */
bool parcel_hash(int dir, const char *path, char ret[SHA256_HEX]);
