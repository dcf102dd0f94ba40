/*
 * Names of images. Several names may refer to one tree, which is stored under its id and is kept as
 * long as a name or a live machine uses it.
 */
#pragma once

#include "base/image_id.h"
#include "store/db.h"

enum { IMAGE_ORIGIN_SIZE = 128 };

struct image_row {
    char owner[STORE_NAME_SIZE];
    char name[IMAGE_NAME_SIZE]; /* unique among the owner's */
    char id[IMAGE_ID_SIZE];
    int64_t created_ms;
    uint64_t bytes, entries;
    char origin[IMAGE_ORIGIN_SIZE]; /* "import", "machine m-...", "build" */
    uint64_t disk_bytes;            /* that its tree takes */
    char token[ID_SIZE];            /* that it came by; empty: none */
};

struct image_list {
    struct image_row *rows;
    size_t count;
};

void image_list_done(struct image_list *list);

/* Replaces an existing image with that name. */
int store_image_put(struct store *s, const struct image_row *row, struct err *err);
/*
 * By name, or by an id or at least 6 characters of its beginning. owner NULL: of any. `not_found`,
 * or `invalid` when several images fit.
 */
int store_image_find(struct store *s, const char *owner, const char *text, struct image_row *ret,
                     struct err *err);
/* By name; at most STORE_PAGE_MAX. */
int store_image_list(struct store *s, const char *owner, struct image_list *ret, struct err *err);
int store_image_delete(struct store *s, const char *owner, const char *name, struct err *err);

/* For all owners: the number of names, and the number and size of their trees. */
struct image_totals {
    uint64_t names, trees, bytes;
};
int store_image_totals(struct store *s, struct image_totals *ret, struct err *err);

/* The number of names and live machines that use the tree; and of live machines only. */
int store_image_uses(struct store *s, const char *id, uint64_t *ret, struct err *err);
int store_image_machines(struct store *s, const char *id, uint64_t *ret, struct err *err);
