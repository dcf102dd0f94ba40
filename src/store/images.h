/*
 * What people call images. Many names may mean one tree, which lies in the store under its id and
 * lives as long as a name or a machine that has not ended needs it.
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

/* In place of what had that name. */
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

/* Of all owners: how many names, and how many trees of what size they mean. */
struct image_totals {
    uint64_t names, trees, bytes;
};
int store_image_totals(struct store *s, struct image_totals *ret, struct err *err);

/* Names and living machines that need the tree; living machines alone. */
int store_image_uses(struct store *s, const char *id, uint64_t *ret, struct err *err);
int store_image_machines(struct store *s, const char *id, uint64_t *ret, struct err *err);
