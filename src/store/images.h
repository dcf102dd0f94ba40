/*
 * Names of images. Several names may refer to one file tree. The tree is stored under its id and
 * kept as long as a name or a live machine uses it.
 */
#pragma once

#include "base/image_id.h"
#include "store/db.h"

enum { IMAGE_ORIGIN_SIZE = 128 };

struct image_row {
    char owner[STORE_NAME_SIZE];
    char name[IMAGE_NAME_SIZE]; /* unique among the owner's images */
    char id[IMAGE_ID_SIZE];
    int64_t created_ms;
    uint64_t bytes, entries;
    char origin[IMAGE_ORIGIN_SIZE]; /* "import", "machine m-...", "build" */
    uint64_t disk_bytes;            /* disk space of its tree */
    char token[ID_SIZE];            /* id of the API token that created the image; empty: none */
};

struct image_list {
    struct image_row *rows;
    size_t count;
};

void image_list_done(struct image_list *list);

/* Adds the row of an image, or replaces the owner's row with the same name. */
int store_image_put(struct store *s, const struct image_row *row, struct err *err);
/*
 * Finds an image by its name, its id, or at least the first 6 characters of its id. owner NULL: of
 * any owner. ERR_NOT_FOUND, or ERR_INVALID if several images match.
 */
int store_image_find(struct store *s, const char *owner, const char *text, struct image_row *ret,
                     struct err *err);
/* Lists images, sorted by name; at most STORE_PAGE_MAX. */
int store_image_list(struct store *s, const char *owner, struct image_list *ret, struct err *err);
int store_image_delete(struct store *s, const char *owner, const char *name, struct err *err);

/* For all owners: the number of names, and the number and size of their trees. */
struct image_totals {
    uint64_t names, trees, bytes;
};
int store_image_totals(struct store *s, struct image_totals *ret, struct err *err);

/*
 * Counts the names and live machines of all owners that use the tree. store_image_machines()
 * counts only the machines: of all owners if owner is NULL. Tell an owner only of its own.
 */
int store_image_uses(struct store *s, const char *id, uint64_t *ret, struct err *err);
int store_image_machines(struct store *s, const char *owner, const char *id, uint64_t *ret,
                         struct err *err);
