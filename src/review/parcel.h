/*
 * A change set beside the directory it is meant for: what would be added, modified or removed
 * there, and what is refused.
 *
 * The archive is a machine's choice: names that are absolute or climb are refused, and the
 * directory is only ever looked at below itself, following no link.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/fs/baseline.h"
#include "base/tar.h"

enum { PARCEL_ITEMS_MAX = 100000, PARCEL_HEX = 65 };

struct parcel_item {
    char *path;
    enum tar_kind kind;
    uint32_t mode;
    const char *bytes; /* of a file, in the archive, or own */
    char *own;
    size_t n;
    char *target;            /* of a link */
    char sha256[PARCEL_HEX]; /* of the content, or of the target; of what is removed: what it was */
    char before[PARCEL_HEX]; /* of what is modified: what it was */
    char change;             /* A M D, or = */
    const char *refused;     /* why it is not taken; NULL */
    unsigned flags;
    uint64_t step; /* of the machine, by the file's time; 0: not known */
    int64_t mtime; /* seconds */
    bool wanted;
    bool differs;        /* refused because both sides changed it */
    const char *partner; /* of a file that has another name now: the other one; else NULL */
};

struct parcel {
    char *archive; /* mapped */
    size_t size;
    int dir;                   /* stays the caller's */
    struct parcel_item *items; /* sorted by path */
    size_t count;
};

/*
 * How the owner's own work is told: by what the directory held when it was lent, else by what
 * changed in it after since_ms. What it held then and the archive has not was removed in the
 * machine; of others only with `mirror`.
 */
struct parcel_side {
    const struct baseline *base; /* NULL, or of another directory: not known */
    int64_t since_ms;
    bool mirror;
    /* Files that the machine's image brought: they are there, and no change. NULL: not known. */
    bool (*is_image)(const void *arg, const char *path);
    const void *arg;
};

/* Takes the mapping. dir -1: there is nothing to compare with. */
int parcel_open(struct parcel *p, char *archive, size_t size, int dir,
                const struct parcel_side *side, struct err *err);
void parcel_close(struct parcel *p);

/* Below dir, following no link: O_PATH of the parent, and *ret_name the last part. -1: -errno. */
int parcel_parent(int dir, const char *path, const char **ret_name);
/* Hash of a file, or of a link's target; false: there is no such thing, or it is something else. */
bool parcel_hash(int dir, const char *path, char ret[PARCEL_HEX]);
void parcel_hash_bytes(const void *bytes, size_t n, char ret[PARCEL_HEX]);
